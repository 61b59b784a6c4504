"""Optimization: the fields of train that say by which rule, how fast and how long the weights are updated."""

import difflib
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag, ValidationInfo, field_validator

from tasks.duration import Duration
from tasks.section import Section, kind_if_none
from tasks.target import Metric

NUMBER, FLAG, PATTERNS = "a number", "true or false", "a list of patterns"
_ADAM = {"beta_1": NUMBER, "beta_2": NUMBER, "epsilon": NUMBER, "weight_decay": NUMBER}

# Keras's optimizers with the arguments that are the user's. Written down here, so that a wrong one is refused without
# an import of Keras; a test holds it against Keras. Left out is what has a field of its own (learning rate, clipping,
# averages) and what goes wrong on several replicas (accumulation and loss scaling by the optimizer).
OPTIMIZERS: dict[str, tuple[str, dict[str, str]]] = {
    "adadelta": ("Adadelta", {"rho": NUMBER, "epsilon": NUMBER, "weight_decay": NUMBER}),
    "adafactor": (
        "Adafactor",
        {
            "beta_2_decay": NUMBER,
            "epsilon_1": NUMBER,
            "epsilon_2": NUMBER,
            "clip_threshold": NUMBER,
            "relative_step": FLAG,
            "weight_decay": NUMBER,
        },
    ),
    "adagrad": ("Adagrad", {"initial_accumulator_value": NUMBER, "epsilon": NUMBER, "weight_decay": NUMBER}),
    "adam": ("Adam", {**_ADAM, "amsgrad": FLAG}),
    "adamax": ("Adamax", _ADAM),
    "adamw": ("AdamW", {**_ADAM, "amsgrad": FLAG}),
    "ftrl": (
        "Ftrl",
        {
            "learning_rate_power": NUMBER,
            "initial_accumulator_value": NUMBER,
            "l1_regularization_strength": NUMBER,
            "l2_regularization_strength": NUMBER,
            "l2_shrinkage_regularization_strength": NUMBER,
            "beta": NUMBER,
            "weight_decay": NUMBER,
        },
    ),
    "lamb": ("Lamb", _ADAM),
    "lion": ("Lion", {"beta_1": NUMBER, "beta_2": NUMBER, "weight_decay": NUMBER}),
    "muon": (
        "Muon",
        {
            **dict.fromkeys(("adam_beta_1", "adam_beta_2", "adam_weight_decay", "epsilon", "weight_decay"), NUMBER),
            "exclude_layers": PATTERNS,
            "exclude_embeddings": FLAG,
            **dict.fromkeys(("muon_a", "muon_b", "muon_c", "adam_lr_ratio", "momentum", "ns_steps"), NUMBER),
            "nesterov": FLAG,
            "rms_rate": NUMBER,
        },
    ),
    "nadam": ("Nadam", _ADAM),
    "rmsprop": (
        "RMSprop",
        {"rho": NUMBER, "momentum": NUMBER, "epsilon": NUMBER, "centered": FLAG, "weight_decay": NUMBER},
    ),
    "schedule_free_adamw": ("ScheduleFreeAdamW", {**_ADAM, "warmup_steps": NUMBER}),
    "sgd": ("SGD", {"momentum": NUMBER, "nesterov": FLAG, "weight_decay": NUMBER}),
}
_ELSEWHERE = {
    "learning_rate": "train.optimizer.learning_rate",
    "global_clipnorm": "train.clip, which clips after the sum over the replicas",
    "clipnorm": "train.clip, which clips after the sum over the replicas",
    "clipvalue": "train.clip, which clips after the sum over the replicas",
}


def _name(given: Any) -> Any:
    """Returns our name of an optimizer that is given by Keras's class or in another spelling of it."""
    plain = str(given).replace("_", "").lower()
    return next((name for name in OPTIMIZERS if name.replace("_", "") == plain), given)


class _Schedule(Section):
    """How the learning rate moves; a function of the step."""

    depends_on_total: ClassVar[bool] = False
    """Whether the learning rate of a step depends on train.total, so that a training cannot be made longer."""
    warmup: Duration | None = None
    """Length of the rise from zero; default: none."""


class ConstantSchedule(_Schedule):
    """The learning rate stays as it is after warm-up."""

    kind: Literal["constant"] = "constant"


class CosineSchedule(_Schedule):
    """The learning rate rises linearly during warm-up, then falls to zero along a half cosine."""

    depends_on_total = True
    kind: Literal["cosine"] = "cosine"


class StepSchedule(_Schedule):
    """The learning rate is multiplied by a factor from each boundary on."""

    kind: Literal["step"] = "step"
    boundaries: tuple[Duration, ...] = Field(min_length=1)
    """Where it changes, from the start of the training on, such as [30 epochs, 60 epochs]."""
    factors: tuple[Annotated[float, Field(gt=0)], ...]
    """One for each boundary, each of train.optimizer.learning_rate and not of what it was before: [0.1, 0.01]."""

    @field_validator("factors")
    @classmethod
    def _are_as_many(cls, factors: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        boundaries = info.data.get("boundaries")
        if boundaries is not None and len(factors) != len(boundaries):
            raise ValueError(f"must be one for each of the {len(boundaries)} boundaries")
        return factors


class PolynomialSchedule(_Schedule):
    """The learning rate falls as a power of the steps that are left, in a line unless told otherwise."""

    depends_on_total = True
    kind: Literal["polynomial"] = "polynomial"
    power: float = Field(1, gt=0)
    """Power of the share of steps that are left."""
    end_factor: float = Field(0, ge=0, le=1)
    """Share of the learning rate to which it falls."""


class ExponentialSchedule(_Schedule):
    """The learning rate is multiplied by a factor again and again after warm-up."""

    kind: Literal["exponential"] = "exponential"
    every: Duration
    """Length in which it is multiplied once."""
    factor: float = Field(gt=0)
    """By what, such as 0.97."""
    staircase: bool = False
    """Whether it changes at the end of each such length only, not from step to step."""


# Told apart first, so that what is said of one weight is not mixed with what the word should have been.
ClassWeights = Annotated[
    Annotated[Literal["balanced"], Tag("word")]
    | Annotated[dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]], Tag("weights")],
    Discriminator(lambda value: "weights" if isinstance(value, dict) else "word"),
]


class EarlyStopping(Section):
    """The training ends before its total when a figure of the validation does not improve any more."""

    metric: Metric = "val_loss"
    """The figure that has to improve."""
    patience: int = Field(5, ge=1)
    """Epochs without an improvement after which the training ends."""
    min_delta: float = Field(0, ge=0)
    """What it has to improve by more than, in the metric's own unit, to count."""


class EmaConfig(Section):
    """Exponential moving averages of the weights, beside them in the checkpoints."""

    momentum: float = Field(0.999, gt=0, lt=1)
    """Share of an average that stays in each step; the weights of about the last 1 / (1 - momentum) steps count."""
    evaluate: bool = False
    """Whether the averages are validated, evaluated and exported in place of the weights."""


LearningRateSchedule = Annotated[
    ConstantSchedule | CosineSchedule | StepSchedule | PolynomialSchedule | ExponentialSchedule,
    Field(discriminator="kind"),
    kind_if_none("cosine"),
]


class Clip(Section):
    """A limit to the gradient of the global batch: it is applied once, after the sum over all replicas."""

    by: Literal["global_norm", "variable_norm", "value"] = "global_norm"
    """What is limited: the norm of all gradients together, which keeps their direction; that of each variable's; or
    each number by itself, to [-limit, limit]."""
    limit: float = Field(gt=0)
    """Largest norm or absolute value that is left as it is."""


class OptimizerConfig(Section):
    """A Keras optimizer and its learning rate."""

    name: Annotated[
        Literal[
            "sgd",
            "adam",
            "adamw",
            "lion",
            "adadelta",
            "adafactor",
            "adagrad",
            "adamax",
            "ftrl",
            "lamb",
            "muon",
            "nadam",
            "rmsprop",
            "schedule_free_adamw",
        ],
        BeforeValidator(_name),
    ] = "adamw"
    """Which of Keras's optimizers; its class's name will do too, such as RMSprop."""
    learning_rate: float = Field(1e-3, gt=0)
    """Step size for one optimizer update at its highest."""
    scale_learning_rate: Literal["none", "linear", "sqrt"] = "none"
    """Whether it is multiplied by feed.global_batch_size / reference_batch_size, or the square root of that."""
    reference_batch_size: int = Field(256, gt=0)
    """Global batch size for which learning_rate is given, if it is scaled."""
    schedule: LearningRateSchedule = CosineSchedule()
    """How the learning rate moves during training."""
    args: dict[str, JsonValue] = {}
    """Further arguments of the Keras optimizer, such as momentum or weight_decay."""
    exclude_from_weight_decay: tuple[str, ...] = ()
    """Regular expressions, such as bias or ^embedding/: a weight in whose path (layer/weight) one is found is left out
    of the weight decay."""

    @field_validator("args")
    @classmethod
    def _are_its_arguments(cls, args: dict[str, JsonValue], info: ValidationInfo) -> dict[str, JsonValue]:
        name = info.data.get("name")
        if name is None:  # refused itself
            return args
        known = OPTIMIZERS[name][1]
        for argument, value in args.items():
            if argument not in known:
                close = difflib.get_close_matches(argument, known, n=1)
                fix = f"; did you mean {close[0]}?" if close else ""
                if argument in _ELSEWHERE:
                    fix = f"; use {_ELSEWHERE[argument]}"
                raise ValueError(f"must be arguments of {name}, which has {', '.join(sorted(known))}{fix}")
            if not _fits(value, known[argument]):
                raise ValueError(f"must be arguments of {name}, whose {argument} is {known[argument]}")
        return args

    @field_validator("exclude_from_weight_decay")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"must be regular expressions, and {pattern!r} is none ({error})") from None
        sound = {"name", "args"} <= info.data.keys()  # otherwise they are refused themselves
        if patterns and sound and not decays(info.data["name"], info.data["args"]):
            raise ValueError("must be empty where there is no weight decay; add args={weight_decay: 0.01}")
        return patterns


def decays(name: str, args: dict[str, JsonValue]) -> bool:
    """Returns whether an optimizer has a weight decay; two of Keras's have one unless it is taken away."""
    defaults = {
        "adamw": {"weight_decay": 0.004},
        "muon": {"weight_decay": 0.004, "adam_weight_decay": 0.004},
    }
    taken: dict[str, JsonValue] = {**defaults.get(name, {}), **args}
    return bool(taken.get("weight_decay") or taken.get("adam_weight_decay"))


def _fits(value: JsonValue, kind: str) -> bool:
    if value is None:
        return True
    if kind == PATTERNS:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, bool) if kind == FLAG else isinstance(value, int | float) and not isinstance(value, bool)
