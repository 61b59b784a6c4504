"""Optimization: the fields of train.optimizer and train.clip, which say by which rule the weights are updated."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from tasks.duration import Duration
from tasks.section import Section, kind_if_none


class ConstantSchedule(Section):
    """The learning rate stays as it is."""

    kind: Literal["constant"] = "constant"


class CosineSchedule(Section):
    """The learning rate rises linearly during warm-up, then falls to zero along a half cosine."""

    kind: Literal["cosine"] = "cosine"
    warmup: Duration | None = None
    """Length of the rise from zero; default: none."""


class Clip(Section):
    """A limit to the gradient of the global batch: it is applied once, after the sum over all replicas."""

    by: Literal["global_norm", "variable_norm", "value"] = "global_norm"
    """What is limited: the norm of all gradients together, which keeps their direction; that of each variable's; or
    each number by itself, to [-limit, limit]."""
    limit: float = Field(gt=0)
    """Largest norm or absolute value that is left as it is."""


class OptimizerConfig(Section):
    """A Keras optimizer and its learning rate."""

    name: Literal["sgd", "adam", "adamw", "lion"] = "adamw"
    """Which of Keras's optimizers."""
    learning_rate: float = Field(1e-3, gt=0)
    """Step size for one optimizer update at its highest."""
    schedule: Annotated[ConstantSchedule | CosineSchedule, Field(discriminator="kind"), kind_if_none("cosine")] = (
        CosineSchedule()
    )
    """How the learning rate moves during training."""
    args: dict[str, JsonValue] = {}
    """Further arguments of the Keras optimizer, such as momentum or weight_decay."""
