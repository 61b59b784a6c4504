"""Size: a number of bytes with its unit."""

import re
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

UNITS = {
    "B": 1,
    **{f"{p}B": 10 ** (3 * i) for i, p in enumerate("KMGT", 1)},
    **{f"{p}iB": 2 ** (10 * i) for i, p in enumerate("KMGT", 1)},
}
PATTERN = rf"^[1-9][0-9]* ?({'|'.join(UNITS)})$"


class Size(str):
    """A whole number and a unit of bytes, as a config has it: `64 KB`, `128 MiB` or `6 GB`."""

    __slots__ = ()

    def __new__(cls, text: Any) -> Self:
        """Returns the size that `text` names; raises ValueError with the rule if it names none."""
        if not isinstance(text, str) or not re.fullmatch(PATTERN, text):
            raise ValueError("must be a whole number and a unit, such as '64 KB', '128 MiB' or '6 GB'")
        return super().__new__(cls, text)

    @property
    def size_bytes(self) -> int:
        number = self.rstrip("BiKMGT ")
        return int(number) * UNITS[self.removeprefix(number).strip()]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls, serialization=core_schema.to_string_ser_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": PATTERN, "examples": ["64 KB", "128 MiB", "6 GB"]}
