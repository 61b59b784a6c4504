"""Combinations: settings that exclude each other, refused before anything starts."""

from typing import TYPE_CHECKING, NoReturn

from tasks.distribution import ParameterServer
from tasks.errors import ConfigError
from tasks.sources import Located
from tasks.splits import TimeSplits

if TYPE_CHECKING:
    from tasks.config import Config

# Models of ours with batch normalisation; of others it is known once they are built.
_NORMALISED = ("tasks.models.cnn:build", "tasks.models.resnet:build")


def check_combinations(config: "Config") -> None:
    """Raises ConfigError, with the alternatives, if the config asks for things that cannot be had together."""
    _check_append(config)
    _check_service(config)
    _check_xla(config)
    _check_parameter_server(config)
    _check_deployments(config)
    if config.train.has_own_loss and config.train.label_smoothing:
        raise ConfigError(
            f"train.label_smoothing={config.train.label_smoothing}: is part of the cross-entropy, in whose place "
            f"stands train.loss={config.train.loss}; leave one of them out"
        )


def refuse_xla(why: str) -> NoReturn:
    """Raises the ConfigError of XLA with batch normalisation on several replicas."""
    raise ConfigError(
        f"train.jit_compile=true: {why}, and XLA cannot compile a program that waits for other replicas in its middle; "
        "take train.jit_compile=false, one replica (distribute.num_replicas=1), or a model without batch normalisation "
        "(LayerNormalization and GroupNormalization are by example)"
    )


def _check_append(config: "Config") -> None:
    """Refuses what shards that stay cannot keep."""
    data = config.data
    source, splits = data.source, data.splits
    if not data.append:
        return
    if not isinstance(source, Located) or "://" in source.path:
        place = source.path if isinstance(source, Located) else f"data.source.kind={source.kind}"
        raise ConfigError(
            f"data.append=true: of {place} nothing tells which examples were there before; take a folder of files on "
            "disk (a table, images or texts), to which new ones are added, or data.append=false"
        )
    if isinstance(splits, TimeSplits) and not splits.is_fixed:
        bounds = "data.splits.test_window" if splits.test_window is not None else "the shares of data.splits"
        raise ConfigError(
            f"data.append=true: with data.splits.kind=time and {bounds} the test split moves on with the newest "
            "example, and shards that stay keep theirs; take data.append=false, which writes all anew, or "
            "data.splits.validation_from and test_from"
        )
    if data.num_shards is not None:
        raise ConfigError(
            f"data.num_shards={data.num_shards}: is an exact number, and data.append=true adds shards to it; take "
            "data.shard_size instead, or data.append=false"
        )


def _check_service(config: "Config") -> None:
    feed, train = config.feed, config.train
    order = "its workers hand on batches in an order of their own, so that"
    for is_asked_for, why in (
        (train.deterministic, f"{order} no run can be repeated to the bit; say so with train.deterministic=false"),
        (train.on_nonfinite == "rollback", f"{order} a batch cannot be left out; take train.on_nonfinite=stop"),
        (feed.sampling != "uniform", "its workers draw no examples by class; take feed.sampling=uniform"),
        (feed.cache not in ("auto", "none"), f"keeps nothing, so feed.cache={feed.cache} is in vain; take auto"),
    ):
        if feed.service is not None and is_asked_for:
            raise ConfigError(f"feed.service={feed.service}: {why}, or leave the service out")


def _check_xla(config: "Config") -> None:
    num_replicas = getattr(config.distribute, "num_replicas", 1)
    if config.train.jit_compile and num_replicas not in (1, "auto") and config.model.build in _NORMALISED:
        refuse_xla(f"{config.model.build} normalises over the batch of {num_replicas} replicas")


def _check_parameter_server(config: "Config") -> None:
    """Refuses what no parameter server can keep."""
    if not isinstance(config.distribute, ParameterServer):
        return
    train = config.train
    found = {
        "train.deterministic=true": (train.deterministic, "train.deterministic=false: no two trainings end alike"),
        "train.ema": (train.ema is not None, "another distribute.kind, or no averages: they would be of no one step"),
        "train.microbatch=auto": (
            train.microbatch == "auto",
            "train.microbatch=32, or null: it is found by trying, with replicas that step together",
        ),
        f"train.precision={train.precision}": (
            train.precision in ("mixed_float16", "auto"),
            "float32 or mixed_bfloat16: a loss scale would be changed by several workers at once",
        ),
        "train.on_nonfinite=rollback": (
            train.on_nonfinite == "rollback",
            "train.on_nonfinite=stop: a step cannot be taken back alone",
        ),
    }
    for setting, (is_set, instead) in found.items():
        if is_set:
            raise ConfigError(f"{setting}: does not go with distribute.kind=parameter_server; take {instead}")


def _check_deployments(config: "Config") -> None:
    """Refuses two deployments of one name."""
    for name, field, there in (
        ("retraining", "deploy.retraining", config.deploy.retraining is not None),
        ("sweep", "sweep", config.sweep is not None),
    ):
        if there and name in config.deploy.schedules:
            raise ConfigError(
                f"deploy.schedules.{name}: would be called {config.name}-{name}, as the deployment of {field} is; give "
                "the schedule another name"
            )
