"""The formats: as what a model is exported, with what beside it, and what it must prove before it gets its name."""

from importlib.util import find_spec
from typing import Literal

from pydantic import Field, field_validator

from tasks.errors import ConfigError
from tasks.section import Section

Format = Literal["savedmodel", "keras", "onnx"]
# By extra of pyproject.toml: the packages that it is for.
_EXTRAS = {"onnx": ("onnx", "onnxruntime", "tf2onnx"), "serve": ("tensorflow_serving",)}


class ExportConfig(Section):
    """In which formats a model is exported, and what each must prove before the model gets its name."""

    formats: tuple[Format, ...] = ("savedmodel",)
    """The SavedModel, which is registered and served, and what lies beside it: keras (model.keras, weights and config)
    and onnx (model.onnx; extra onnx)."""
    num_parity_examples: int = Field(256, gt=0)
    """Real examples of the evaluated split that are sent through every signature and format."""
    tolerance: float = Field(1e-5, gt=0)
    """Largest allowed difference between the exported and the trained model: of a probability, or of a predicted number
    in deviations of the training split."""
    num_timed_calls: int = Field(50, ge=1)
    """Calls of the signature serving_default, for one example and for 64, from which its latency is told; for a model
    that takes seconds it is told from as many as fit into 30 s."""
    warmup_requests: int = Field(0, ge=0, le=300)
    """Real examples for each signature that TensorFlow Serving sends to the model before it takes requests (extra
    serve); it reads at most 1000 in all."""

    @field_validator("formats")
    @classmethod
    def _has_the_savedmodel(cls, formats: tuple[Format, ...]) -> tuple[Format, ...]:
        if "savedmodel" not in formats:
            raise ValueError("must have savedmodel, which is what is registered and served")
        if len(set(formats)) < len(formats):
            raise ValueError("names one of them twice")
        return formats


def check_formats(config: ExportConfig) -> None:
    """Raises ConfigError, before any work, if what the export needs is not installed: packages of an extra."""
    for setting, wanted, extra in (
        ("export.formats", "onnx" in config.formats, "onnx"),
        ("export.warmup_requests", config.warmup_requests > 0, "serve"),
    ):
        missing = [package for package in _EXTRAS[extra] if wanted and find_spec(package) is None]
        if missing:
            raise ConfigError(
                f"{setting}: needs {', '.join(missing)}, not installed here; pip install 'millstream[{extra}]', or "
                "leave it out"
            )
