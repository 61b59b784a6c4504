"""Duration: a length of training in steps, epochs or examples."""

import re
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

PATTERN = r"^[1-9][0-9]* (steps|epochs|examples)$"


class Duration(str):
    """A whole number and a unit, as a config has it: `500 steps`, `3 epochs` or `100000 examples`."""

    __slots__ = ()

    def __new__(cls, text: Any) -> Self:
        """Returns the duration that `text` names; raises ValueError with the rule if it names none."""
        if not isinstance(text, str) or not re.fullmatch(PATTERN, text):
            raise ValueError("must be a whole number and a unit: '500 steps', '3 epochs' or '100000 examples'")
        return super().__new__(cls, text)

    def steps(self, *, num_examples: int, global_batch_size: int, steps_per_epoch: int) -> int:
        """Returns the number of optimizer updates, at least 1; `examples` that end inside a batch round up."""
        number, unit = self.split(" ")
        if unit == "steps":
            return int(number)
        if unit == "epochs":
            return int(number) * steps_per_epoch
        # Whole epochs first: with a short last batch an epoch is more steps than examples / batch says.
        epochs, rest = divmod(int(number), num_examples)
        return epochs * steps_per_epoch + min(steps_per_epoch, -(-rest // global_batch_size))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls, serialization=core_schema.to_string_ser_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": PATTERN, "examples": ["500 steps", "3 epochs", "100000 examples"]}
