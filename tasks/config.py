"""The config: one frozen pydantic tree that names everything a run depends on."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, ValidationError, field_validator

from tasks.augmentation import Augmentation
from tasks.combinations import check_combinations
from tasks.deployment import DeployConfig
from tasks.distribution import AllReduced, Distribute, Mirrored, ParameterServer
from tasks.duration import Duration
from tasks.errors import ConfigError
from tasks.evaluation import EvaluateConfig
from tasks.formats import ExportConfig
from tasks.gate import GateConfig, check_gate
from tasks.optimization import ClassWeights, Clip, EarlyStopping, EmaConfig, OptimizerConfig
from tasks.overrides import lay_over
from tasks.patterns import Pattern
from tasks.schema import explain
from tasks.section import Section
from tasks.size import Size
from tasks.sources import ArraySource, DigitsSource, ImageFolderSource, Located, Source, TfdsSource
from tasks.splits import FractionSplits, Splits
from tasks.starting_weights import WarmStart
from tasks.strict_yaml import read_tree
from tasks.sweep import SweepConfig
from tasks.target import BestMetric, MulticlassTarget, Target, fit_target
from tasks.texts import UNCOUNTED, BytesText, FeedText, Tokens, WordsText

# Fields that change how a run is carried out but not what it computes. They are left out of the run's key,
# so that an interrupted run goes on under other values of them.
OPERATIONAL_FIELDS = frozenset(
    {
        # Where the data lie; what they are is in the data digest.
        "data.source.path",
        "data.source.folder",
        "data.source.data_dir",
        "data.num_workers",
        # A limit: over it there are no shards.
        "data.source.max_unpacked",
        "feed.cache",
        "feed.memory_limit",
        "feed.parallel_calls",
        "feed.prefetch_batches",
        "model.folder",
        # The digest says what is in it.
        "model.warm_start.file",
        "model.warm_start.origin",
        "train.checkpoint_every",
        "train.keep_checkpoints",
        "train.max_restarts",
        # A run that stopped goes on with rollback; one that never met a value that is not finite is the same under all.
        "train.on_nonfinite",
        "train.max_rollbacks",
        # With batch statistics it does change the result: a training that has begun holds to it (tasks/train/setup.py).
        "train.microbatch",
        "train.allow_bn_change",
        "train.invariance",
        "train.recompute",
        "train.steps_per_call",
        "train.profile_steps",
        "distribute",
        "evaluate.batch_size",
        # What is exported beside the SavedModel, and what is told of it.
        "export.formats",
        "export.num_timed_calls",
        "export.warmup_requests",
        # What is told of the best checkpoint, not which it is; another report is made where they differ.
        "evaluate.num_resamples",
        "evaluate.slices",
        "evaluate.min_slice_examples",
        "evaluate.num_worst",
        "evaluate.check_leaks",
        # What becomes of a model, not what it is.
        "promote.gate",
        "promote.max_champion_age_days",
        "tracking",
        "deploy",
        "sweep",
    }
)
# Fields that came later: shards and runs from before keep their names where none is used.
LEFT_OUT_DEFAULTS = {
    "data.target": {"kind": "multiclass"},
    "data.append": False,
    "data.splits.validation_window": None,
    "data.splits.test_window": None,
}


ImportPath = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]


class DataConfig(Section):
    """What the examples are and how they become shards; a change writes new shards."""

    source: Source = DigitsSource()
    """Where the examples come from."""
    target: Target = MulticlassTarget()
    """What is learned of them."""
    splits: Splits = FractionSplits()
    """Which example goes to which split."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Decides the split of each example and its place in the shards."""
    shard_size: Size = Size("128 MB")
    """Aimed-at size of one shard ('64 KB', '128 MB'): large enough to stream, small enough to spread."""
    num_shards: int | None = Field(None, ge=1)
    """Exact number of shards of the training split, in place of their size."""
    shard_multiple: int = Field(1, ge=1)
    """Shards of each split are a multiple of this, such as the number of readers, unless there are fewer examples."""
    compression: Literal["none", "gzip", "zlib"] = "none"
    """Compression of the shards; one that is compressed is read from its start only, and so shuffled as one block."""
    max_bad_fraction: float = Field(0, ge=0, lt=1)
    """Largest share of examples that may be unusable; they are left out, listed and counted."""
    append: bool = False
    """Whether new files of a source get shards of their own beside those that are there, which stay; or all anew."""

    text: Tokens | None = None
    """Tokens to be counted for feed.text.kind=words, in each text feature; default: none, which costs nothing."""

    num_workers: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Images decoded, examples encoded and shards written at once; auto: one a core. Changes no byte."""

    def identity(self) -> dict[str, Any]:
        """Returns the group as JSON without its operational fields: what decides the shards."""
        return _without_operational(self.model_dump(mode="json"), "data.")


class FeedConfig(Section):
    """How shards become global batches."""

    global_batch_size: int = Field(64, gt=0)
    """Examples in one optimizer update, over all replicas."""
    block: int = Field(256, gt=0)
    """Neighbouring examples that are read at once; blocks are shuffled. Smaller mixes better, larger reads faster."""
    window: int = Field(16384, gt=0)
    """Examples shuffled among each other in memory; at least five blocks, unless the split is smaller."""
    sampling: Literal["uniform", "class_balanced"] = "uniform"
    """Which examples an epoch shows: each one once; or as many, drawn from each window so that every class of the split
    comes equally often, the rare ones several times."""
    last_batch: Literal["keep", "drop"] = "keep"
    """What becomes of an epoch's short last batch: trained on exactly (padded and masked), or left out."""
    shard_policy: Literal["records", "files"] = "records"
    """How several workers share a split: each reads all records and decodes its own rows, so that batches do not depend
    on the number of workers; or each reads files of its own, for data that one host cannot read fast enough: then they
    do, and the end of an epoch that does not fill a batch of every worker is left out."""
    service: Annotated[str, Field(pattern=r"^grpc://[^/]+:[0-9]+$")] | None = None
    """Address of a tf.data service ('grpc://host:5050') whose hosts read and decode the training split; they must see
    the shards under the same path. The order of examples is then no function of the seed: `train.deterministic=false`
    has to say so too."""
    cache: Literal["auto", "decoded", "memory", "disk", "none"] = "auto"
    """Where the split is kept after it was read once: in memory as the model sees it (decoded) or as it is stored
    (memory), on disk beside the shards as the model sees it (disk), or nowhere; auto: the first of these that fits, and
    disk only for images. Never changes the order."""
    memory_limit: Size = Size("2 GB")
    """Memory that window, cache and batches of one feed may take ('6 GB'); at most half of it is for the cache."""
    prefetch_batches: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Global batches made ahead of the step that takes them; auto: 4, or what fits into memory_limit."""
    parallel_calls: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Global batches decoded at once; auto: one a core, or what fits into memory_limit. Never changes the order."""
    image_size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None
    """Height and width in pixels to which encoded images are brought: resized to cover it, then cut to the middle."""
    text: FeedText = BytesText()
    """As what the model gets a text."""
    clip_quantiles: tuple[float, float] | None = None
    """Two of 0.01, 0.05, 0.25, 0.5, 0.75, 0.95 and 0.99, such as [0.01, 0.99]: numbers are held between these quantiles
    of the training split before they are normalised, so that outliers weigh less; default: they are not."""
    max_categories: int = Field(1000, ge=1)
    """Values of a category with a place of their own in the model's input, the most frequent; all others share one."""
    augment: tuple[Augmentation, ...] = ()
    """Random changes of the training images, in this order; never in evaluation or in the exported model."""
    augment_input: str | None = None
    """The input that they change; default: the only one that is an image."""

    @field_validator("clip_quantiles")
    @classmethod
    def _in_order(cls, shares: tuple[float, float] | None) -> tuple[float, float] | None:
        if shares is not None and not 0 <= shares[0] < shares[1] <= 1:
            raise ValueError("must be two shares between 0 and 1, the lower one first, such as [0.01, 0.99]")
        return shares


class ModelConfig(Section):
    """Which Keras model is built."""

    build: ImportPath = "tasks.models.cnn:build"
    """Import path 'module:function'; called as f(inputs, num_classes, **args), returns a keras.Model of logits:
    one for two classes; of a regression so many numbers."""
    args: dict[str, JsonValue] = {}
    """Further arguments of the build function."""
    folder: str | None = None
    """Folder put on the import path; default: the config's own folder."""
    freeze: tuple[Pattern, ...] = ()
    """Regular expressions, such as ^conv[12]_: layers in whose path one is found are not trained, and their batch
    normalisation works by its moving statistics."""
    warm_start: WarmStart = None
    """The weights that training begins with; default: drawn ones."""


class TrainConfig(Section):
    """How long and by which rule the model learns."""

    total: Duration = Duration("10 epochs")
    """Length of training."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Decides initial weights, order of examples and dropout masks."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The update rule."""
    ema: EmaConfig | None = None
    """Averages of the weights; default: none are kept."""
    class_weights: ClassWeights | None = None
    """By what an example's loss is multiplied: {class name: weight}, else 1; or balanced: n / (num_classes n_class)."""
    loss: Annotated[str, Field(pattern=r"^(auto|mse|mae|huber|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$")] = "auto"
    """auto: cross-entropy; of a regression, in deviations of the training split, the squared error, or mae, or huber
    (squared up to 1, absolute beyond). Or the import path 'module:function' of a loss of one's own, found as
    model.build is: called as f(targets, outputs), both in deviations for a regression, it returns the loss of each
    example, [b]."""
    label_smoothing: float = Field(0, ge=0, lt=1)
    """Share of each label that is spread evenly over all classes."""
    clip: Clip | None = None
    """The limit to the gradient, such as {by: global_norm, limit: 1.0}; default: none."""
    microbatch: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    """Examples that a replica takes at once: its part of a global batch is cut into such pieces, whose gradients are
    summed before the one update, so that less memory is needed; auto: the largest of all, a half, a quarter, ... that
    fits, found by trying; default: all of its part. It is halved when a device runs out of memory."""
    allow_bn_change: bool = False
    """Whether that may be done in the middle of a training with batch normalisation, whose weights it changes."""
    precision: Literal["float32", "float64", "mixed_float16", "mixed_bfloat16", "auto"] = "float32"
    """Type of weights and activations; float64: for proofs; mixed: 16 bits, weights in float32; auto: by the GPUs."""
    deterministic: bool = True
    """Only kernels that give the same bits on every run; a resumed run is bit-equal only with it."""
    recompute: bool | tuple[Pattern, ...] = False
    """Whose activations are not kept but computed again in the backward pass, for memory: layers in whose path one of
    these patterns is found; or true: all, if the model is a chain of parts."""
    jit_compile: bool = False
    """Whether XLA compiles the forward and backward pass of a replica; not with batch normalisation on several."""
    invariance: Literal["require", "warn"] = "warn"
    """What becomes of a model with layers whose result depends on the number of replicas: refused, or warned of."""
    best_metric: BestMetric = "auto"
    """The validation metric whose best checkpoint is evaluated and exported; of equals the first. auto: val_accuracy,
    where there is one, else val_loss."""
    early_stopping: EarlyStopping | None = None
    """When to end before the total; default: never."""
    checkpoint_every: Duration = Duration("1 epochs")
    """Distance between checkpoints; there is always one at the end of an epoch too."""
    keep_checkpoints: int = Field(2, ge=1)
    """Latest checkpoints kept, besides the best."""
    max_restarts: int = Field(3, ge=0)
    """Times a lost worker (killed, crashed, hung) is started again with no new checkpoint in between; 0: never."""
    on_nonfinite: Literal["stop", "rollback"] = "stop"
    """When a loss, gradient or weight is not finite: stop, or go on from the last checkpoint without that batch."""
    max_rollbacks: int = Field(3, ge=0)
    """Batches that a whole run may leave out so."""
    steps_per_call: int = Field(64, ge=1)
    """Most steps in one call of the in-graph loop, which lasts about 2 s; a signal is answered between calls."""
    profile_steps: int = Field(0, ge=0)
    """Steps, after the first call, that TensorFlow's profiler records once a run for xprof; no epoch's end lies in
    between. They are left out of the run's throughput, which they would slow."""

    @property
    def has_own_loss(self) -> bool:
        """Whether `loss` is the import path of a function of the user's."""
        return ":" in self.loss


class PromoteConfig(Section):
    """How the exported model is registered, and when it is served."""

    registered_name: str | None = Field(None, pattern=r"^[^./:%\"'@][^/:%\"'@]*$")
    """Name in the MLflow model registry; default: the config's name."""
    gate: GateConfig = GateConfig()
    """What `millstream retrain` asks of a model before it promotes it."""
    max_champion_age_days: float | None = Field(None, gt=0)
    """Days since the champion was registered after which `millstream retrain` trains though the data are the same;
    default: never."""


class TrackingConfig(Section):
    """Where the MLflow run lives."""

    # The pattern is for Prefect's form, which refuses a login before it is stored.
    uri: str | None = Field(None, json_schema_extra={"pattern": r"^(sqlite:.*|[^@]*)$"})
    """MLflow tracking server or database, without a login; default: MLFLOW_TRACKING_URI, else mlflow.db in the
    workspace."""
    experiment: str | None = Field(None, pattern=r"^[^/]+$")
    """MLflow experiment; default: the config's name."""

    @field_validator("uri")
    @classmethod
    def _tells_no_secret(cls, uri: str | None) -> str | None:
        # It would stand in the run's config.yaml, in MLflow and in Prefect.
        if uri is not None and "@" in urlsplit(uri).netloc:
            raise ValueError("must have no user name or password: give the whole URI in MLFLOW_TRACKING_URI instead")
        return uri


class Config(Section):
    """A complete run."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Name of the data set, the experiment and the model: lower case letters, digits, underscores."""
    data: DataConfig = DataConfig()
    feed: FeedConfig = FeedConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    distribute: Distribute = Mirrored()
    evaluate: EvaluateConfig = EvaluateConfig()
    export: ExportConfig = ExportConfig()
    promote: PromoteConfig = PromoteConfig()
    tracking: TrackingConfig = TrackingConfig()
    deploy: DeployConfig = DeployConfig()
    sweep: SweepConfig | None = None

    def identity(self) -> dict[str, Any]:
        """Returns the config as JSON without its operational fields: what decides the result of a run."""
        tree = _without_operational(self.model_dump(mode="json"), "")
        # On what devices a run computes changes no result, but for these.
        if isinstance(self.distribute, ParameterServer):
            tree["distribute"] = {"kind": self.distribute.kind}
        elif isinstance(self.distribute, AllReduced) and self.distribute.reduce_dtype is not None:
            tree["distribute"] = {"reduce_dtype": self.distribute.reduce_dtype}
        return tree


def check_images(config: Config) -> None:
    """Raises ConfigError if a source of images lacks feed.image_size, before they are fetched and made shards for it.

    Of a TFDS data set it is known only later that it holds images.
    """
    match config.data.source:
        case ImageFolderSource(store=store):
            encoded = store != "raw"
        case ArraySource(images=images):
            encoded = bool(images)
        case _:
            encoded = False
    if encoded and config.feed.image_size is None:
        raise ConfigError(
            "feed.image_size: must be given, because the images are encoded, each of its own size; for example "
            "feed.image_size=[224, 224]"
        )


def check_texts(config: Config) -> None:
    """Raises ConfigError if texts become words that nobody counts, before they are fetched and made shards."""
    if isinstance(config.feed.text, WordsText) and config.data.text is None:
        raise ConfigError(UNCOUNTED)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Returns the config in a YAML file with dotted overrides (`train.total=3 epochs`) laid over it.

    The file's folder becomes `model.folder` unless that is set. Raises ConfigError with path, value, rule and fix of
    everything that is wrong.
    """
    return build_config(read_tree(path), overrides, folder=Path(path).resolve().parent)


def build_config(tree: dict[str, Any], overrides: Sequence[str] = (), *, folder: Path | None = None) -> Config:
    """Returns the config of a plain mapping with overrides; raises ConfigError like `load_config`."""
    for override in overrides:
        tree = lay_over(tree, override)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain(error, tree, Config)) from None
    check_combinations(config)
    config = fit_target(config)
    check_gate(config)
    return _with_absolute_paths(config, folder)


def _with_absolute_paths(config: Config, folder: Path | None) -> Config:
    """Returns a config whose paths hold wherever the next command of its run is given."""
    model, source = config.model, config.data.source
    place = model.folder or folder
    if place is not None:
        model = model.model_copy(update={"folder": str(Path(place).resolve())})
    if isinstance(source, TfdsSource | ArraySource):
        place = source.folder or folder
        if place is not None:
            source = source.model_copy(update={"folder": str(Path(place).resolve())})
    if isinstance(source, Located) and "://" not in source.path:
        source = source.model_copy(update={"path": os.path.abspath(os.path.expanduser(source.path))})
    if isinstance(source, TfdsSource) and source.data_dir is not None:
        source = source.model_copy(update={"data_dir": os.path.abspath(os.path.expanduser(source.data_dir))})
    return config.model_copy(update={"model": model, "data": config.data.model_copy(update={"source": source})})


def _without_operational(tree: dict[str, Any], prefix: str) -> dict[str, Any]:
    left_out = {path for path, default in LEFT_OUT_DEFAULTS.items() if tree.get(path.removeprefix(prefix)) == default}
    kept = {key: value for key, value in tree.items() if prefix + key not in OPERATIONAL_FIELDS | left_out}
    return {
        key: _without_operational(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in kept.items()
    }
