"""The commands that measure both sides of a comparison, on this machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token, validators
from cyclopts.types import PositiveFloat, PositiveInt

from flows import display
from flows.options import Json, Overrides
from flows.scaling import scaling
from tasks.config import load_config
from tasks.runs import workspace_of


def _numbers(_: type, tokens: Sequence[Token]) -> tuple[int, ...]:
    numbers = tuple(int(number) for token in tokens for number in token.value.split(","))
    if min(numbers) < 1:
        raise ValueError("each must be at least 1")
    return numbers


Replicas = Annotated[tuple[int, ...], Parameter(converter=_numbers, n_tokens=1)]
AtLeast300 = Annotated[int, Parameter(validator=validators.Number(gte=300))]


def shards(*, examples: AtLeast300 = 50_000, rounds: PositiveInt = 3, json: Json = False) -> None:
    """Writing shards: ours, a tf.train.Example loop, TFDS, ArrayRecord, and the bound of CRC and write.

    Example: millstream bench shards --examples 10000

    Parameters
    ----------
    examples
        Number of examples of 3 KB; a tenth as many of 110 KB follow. At least 300.
    rounds
        Turns of each side; one more, first, is not counted.
    """
    from tasks.bench.shards import bench_shards

    display.bench(bench_shards(num_examples=examples, rounds=rounds), json=json)


def feed(
    config: Path | None = None,
    *overrides: Overrides,
    examples: AtLeast300 = 60_000,
    images: Annotated[int, Parameter(validator=validators.Number(gte=40))] = 600,
    rounds: PositiveInt = 3,
    gpu_rate: PositiveFloat = 2500,
    png: Path | None = None,
    json: Json = False,
) -> None:
    """Feeding a training: ours, TensorFlow's guide, TFDS, Grain, and the bounds; each stage, and who would wait.

    Example: millstream bench feed conf/digits.yaml --gpu-rate 10000

    Parameters
    ----------
    config
        Whose shards to take, written if need be; default: random records of 3 KB, and JPEGs of 500x375.
    examples
        Number of examples in a turn of a side, if no images are decoded. At least 300.
    images
        The same if images are decoded. At least 40.
    rounds
        Turns of each side; one more, first, is not counted.
    gpu_rate
        Examples that one GPU takes in a second; 2500 is about what ResNet-50 at 224x224 takes on an A100.
    png
        File to which the rates are written as a picture.
    """
    from tasks.bench.feed import bench_feed

    resolved = load_config(config, overrides) if config is not None else None
    report = bench_feed(
        resolved, workspace_of(), num_examples=examples, num_images=images, rounds=rounds, gpu_rate=gpu_rate
    )
    if png is not None:
        from tasks.bench.plot import write_plot

        write_plot(report, png)
    display.bench(report, json=json)


def step(*, rounds: PositiveInt = 5, json: Json = False) -> None:
    """A training step: ours, Keras's fit, a loop written by hand, a tf.function a step; and what a checkpoint costs.

    On one and two logical devices of the CPU, an MLP of nearly nothing but overhead and a CNN of nearly none.

    Example: millstream bench step --rounds 3

    Parameters
    ----------
    rounds
        Turns of each side; one more, first, is not counted.
    """
    from tasks.bench.step import bench_step

    display.bench(bench_step(rounds=rounds), json=json)


def parity(
    config: Path,
    *overrides: Overrides,
    steps: PositiveInt = 20,
    replicas: Replicas = (1, 2, 4),
    fit: bool = False,
    json: Json = False,
) -> None:
    """A config of yours on one, two and four replicas: after which step, in which variable and how far they part.

    In the config's precision and in float64, in which a difference is no rounding. What this finds is in the model.

    Example: millstream bench parity conf/digits.yaml --steps 60 --fit

    Parameters
    ----------
    config
        A file such as conf/digits.yaml; its shards are written if need be.
    steps
        Number of steps, from the start of the training.
    replicas
        Numbers of replicas, such as 1,2,8; the least is what the others are held against.
    fit
        Also what Keras's fit makes of the same weights and batches, with Keras's own layers.
    """
    from tasks.bench.parity import bench_parity

    resolved = load_config(config, overrides)
    report = bench_parity(resolved, workspace_of(), num_steps=steps, replicas=replicas, fit=fit)
    if json:
        display.record(report, json=True)
        return
    rows = []
    for row in report.rows:
        parts = f"step {row.first_step}, {row.first_variable}" if row.first_step else "never"
        last = row.failed or f"{row.difference:.1e} {row.variable}"
        rows.append((row.side, row.precision, str(row.num_replicas), "-" if row.failed else parts, last))
    display.table(("side", "precision", "replicas", "first over tolerance", f"largest after {steps} steps"), rows)
    display.text(f"{report.verdict()}\n")


COMMANDS = (shards, feed, step, parity, scaling)
