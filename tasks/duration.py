"""Duration: a length of training in steps, epochs or examples."""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

PATTERN = r"^[1-9][0-9]* (steps|epochs|examples)$"


@dataclass(frozen=True)
class Duration:
    """`count` times `unit`; in a config it is written `500 steps`, `3 epochs` or `100000 examples`."""

    count: int
    unit: str

    @classmethod
    def parse(cls, text: Any) -> "Duration":
        """Returns the duration that `text` names; raises ValueError with the rule if it names none."""
        if isinstance(text, Duration):
            return text
        if not isinstance(text, str) or not re.match(PATTERN, text):
            raise ValueError("must be a whole number and a unit: '500 steps', '3 epochs' or '100000 examples'")
        count, unit = text.split(" ")
        return cls(int(count), unit)

    def steps(self, *, num_examples: int, global_batch_size: int, steps_per_epoch: int) -> int:
        """Returns the number of optimizer updates, at least 1; `examples` that end inside a batch round up."""
        if self.unit == "steps":
            return self.count
        if self.unit == "epochs":
            return self.count * steps_per_epoch
        # Whole epochs first: with a short last batch an epoch is more steps than examples / batch says.
        epochs, rest = divmod(self.count, num_examples)
        return epochs * steps_per_epoch + min(steps_per_epoch, -(-rest // global_batch_size))

    def __str__(self) -> str:
        return f"{self.count} {self.unit}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.parse, serialization=core_schema.to_string_ser_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": PATTERN, "examples": ["500 steps", "3 epochs", "100000 examples"]}
