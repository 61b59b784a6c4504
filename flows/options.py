"""Options that several commands share."""

from typing import Annotated

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object instead of text.")]
Overrides = Annotated[str, Parameter(help="key=value laid over the config, such as train.total='3 epochs'.")]
