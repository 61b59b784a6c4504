"""Starting weights: which weights of an earlier training a model begins with, in place of drawn ones."""

import os
from typing import Annotated, Literal

from pydantic import Field, field_validator

from tasks.patterns import Pattern
from tasks.section import Section

SUFFIX = ".safetensors"


class _WarmStart(Section):
    exclude: tuple[Pattern, ...] = ()
    """Regular expressions, such as ^head/: weights in whose path (layer/weight) one is found are drawn anew."""


class RunWeights(_WarmStart):
    """The weights of a run's best checkpoint."""

    kind: Literal["run"] = "run"
    run: str
    """Id of a run in this workspace that is trained to its end."""


class AliasWeights(_WarmStart):
    """The weights of a registered model."""

    kind: Literal["alias"] = "alias"
    alias: str = Field(pattern=r"^[^/:%\"'@]+@[^/:%\"'@]+$")
    """Name and alias in the MLflow registry, such as digits@champion; its run must lie in this workspace."""


class FileWeights(_WarmStart):
    """The weights in a file; what the other kinds become when a run begins."""

    kind: Literal["file"] = "file"
    file: str
    """A .safetensors file, of a checkpoint or of arrays by the paths of their weights (layer/weight)."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Its digest, which is part of the run's key; a file of another is refused."""
    averages: bool = False
    """Take a checkpoint's averages (train.ema) and not the weights that they are of."""
    origin: str | None = None
    """Of which run or alias the file was, for the record."""

    @field_validator("file")
    @classmethod
    def _is_of_arrays_alone(cls, file: str) -> str:
        if not file.endswith(SUFFIX):
            raise ValueError(
                f"must end in {SUFFIX}: .h5, .keras, .pt and pickled files are not read, because they may carry code; "
                "write the arrays with safetensors.numpy.save_file, by the paths of their weights"
            )
        return os.path.abspath(os.path.expanduser(file))


WarmStart = Annotated[RunWeights | AliasWeights | FileWeights | None, Field(discriminator="kind")]
