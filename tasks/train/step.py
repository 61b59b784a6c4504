"""The replica step: forward, backward, one sum over the replicas, the update; and the loop round it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tasks.config import TrainConfig
from tasks.errors import MillstreamError
from tasks.models.build import check_draws
from tasks.models.rows import ReplicaRows, replica_rows
from tasks.train.clock import QUICK_SECONDS, Clock, timed_next
from tasks.train.setup import Setup
from tasks.train.update import batch_statistics, make_update
from tasks.train.xla import compiled


class StepOutcomes(NamedTuple):
    """What `num_steps` steps have to say; every array is [num_steps]."""

    loss: tf.Tensor
    """Mean loss of the global batch, regularisation included."""
    score: tf.Tensor
    """Sum of Head.score over the global batch: how many are right, or of a regression the absolute errors."""
    num_valid: tf.Tensor
    """int64, examples in the global batch."""
    healthy: tf.Tensor
    """bool; False from the first step on whose loss or gradient is not finite: none of them was applied."""
    applied: tf.Tensor
    """bool; also False where a step overflowed in mixed_float16: it is left out, and the loss scale halved."""
    wait_seconds: tf.Tensor
    """float64, from asking for the batch to having it on the replicas; NaN of a step that was not timed (`Clock`)."""
    elapsed_seconds: tf.Tensor
    """float64, from the start of the first step to the end of this one; NaN where not timed, as the last is."""


RunSteps = Callable[[tf.data.Iterator, tf.Tensor], StepOutcomes]
Columns = tuple[tf.TensorArray, ...]


def make_run_steps(setup: Setup, config: TrainConfig, *, clock: Clock) -> RunSteps:
    """Returns run_steps(iterator, num_steps), a loop of steps in one graph: one call for any [] int32 num_steps.

    `iterator` yields the elements of a Feed, distributed; `num_steps` must not run past its end. The result does not
    depend on how a training is cut into calls.
    """
    strategy, step = setup.strategy, make_step(setup, config)

    @tf.function(autograph=False, reduce_retracing=True)
    def run_steps(iterator: tf.data.Iterator, num_steps: tf.Tensor) -> StepOutcomes:
        def take(
            number: tf.Tensor, asked: tf.Tensor, quick: tf.Tensor, healthy: tf.Tensor, columns: Columns
        ) -> tuple[Any, ...]:
            timed, last = clock.is_due(number, quick), tf.equal(number + 1, num_steps)
            batch, ready = timed_next(strategy, iterator, clock.when(timed), asked)
            num_valid = _first(strategy, batch["num_valid"])
            with tf.control_dependencies([ready]):
                loss, score, healthy, applied = step(batch, healthy)
            with tf.control_dependencies([loss, applied]):
                done = clock.when(timed | last | clock.is_due(number + 1, quick))()
            values = (loss, score, num_valid, healthy, applied, ready - asked, done - loop_start)
            columns = tuple(column.write(number, value) for column, value in zip(columns, values, strict=True))
            with tf.device("CPU"):  # or the next reading would wait for an accelerator
                quick = tf.where(timed, done - asked < QUICK_SECONDS, quick)
            return number + 1, done, quick, healthy, columns

        dtypes = _dtypes(keras.config.floatx())
        columns = tuple(tf.TensorArray(dtype, size=num_steps, element_shape=[]) for dtype in dtypes)
        loop_start = clock.read()
        quick = tf.constant(True)  # until the first, which is timed in any case, shows that it is not
        start = (tf.constant(0), loop_start, quick, tf.constant(True), columns)
        # Not a loop in Python, which only AutoGraph could put into the graph; it is off in workers.
        *_, columns = tf.while_loop(lambda number, *_: number < num_steps, take, start, parallel_iterations=1)
        return StepOutcomes(*(column.stack() for column in columns))

    return run_steps


def in_plain_words(run_steps: RunSteps, iterator: tf.data.Iterator, num_steps: tf.Tensor) -> StepOutcomes:
    """Returns what `run_steps` does; an error of ours while it is traced is without TensorFlow's words round it."""
    try:
        return run_steps(iterator, num_steps)
    except MillstreamError as error:
        found: BaseException = error
        while isinstance(found.__context__, MillstreamError):
            found = found.__context__
        raise found from None


def make_step(
    setup: Setup, config: TrainConfig
) -> Callable[[dict[str, tf.Tensor], tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Returns step(batch, healthy), one step in the loop's graph: loss, score, healthy after it, applied."""
    strategy, model, optimizer, loss_scale = setup.strategy, setup.model, setup.optimizer, setup.loss_scale
    variables = model.trainable_variables
    num_replicas = strategy.num_replicas_in_sync
    float_type = keras.config.floatx()
    said: set[str] = set()
    statistics = batch_statistics(model) if loss_scale is not None else []
    update = make_update(
        strategy, optimizer, variables, statistics, ema=setup.ema, clip=config.clip, loss_scale=loss_scale
    )

    def gradients(batch: dict[str, tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """Returns what one replica's rows contribute, summed over all replicas: gradients, loss, score.

        Last come the statistics of before.
        """
        before = [tf.identity(statistic.value) for statistic in statistics]
        terms: list[tf.Tensor] = []
        num_microbatches = batch["first_row"].shape[0]
        for number in range(num_microbatches):
            # One after another, or the activations of all would be in memory at the same time.
            with tf.control_dependencies(terms):
                rows = _microbatch(batch, number)
                step = tf.cast(optimizer.iterations, tf.int64)
                scale = tf.constant(1, float_type) if loss_scale is None else loss_scale.value()
            found = contribute(rows, step, scale, num_replicas * num_microbatches)
            terms = [term + more for term, more in zip(terms, found, strict=True)] if terms else found
        # The figures ride along with the gradients: one reduction a step.
        sums, (loss, score) = setup.sum(terms[:-2], terms[-2:])
        if loss_scale is not None:  # only now: distribute.reduce_dtype may have sent them in 16 bits too
            sums = [each / loss_scale.value() for each in sums]
        return sums, loss, score, before

    def contribution(batch: dict[str, tf.Tensor], step: tf.Tensor, scale: tf.Tensor, num_parts: int) -> list[tf.Tensor]:
        """Returns what some of a replica's rows contribute: to the gradients, to the loss and to the score."""
        labels, mask = batch[setup.target], batch["mask"]
        rows = ReplicaRows(
            config.seed, step, batch["first_row"], mask, num_replicas, num_valid=batch["num_valid"], num_parts=num_parts
        )
        with tf.GradientTape() as tape:
            with replica_rows(rows):
                logits = model({name: batch[name] for name in model.input}, training=True)
            check_draws(model, tf.compat.v1.get_default_graph(), config.invariance, said=said)
            logits = tf.cast(logits, float_type)
            losses = setup.loss(labels, logits)
            if "mix_label" in batch:  # the feed blends examples; the share of a row's own in each is its weight
                share = tf.cast(batch["mix_weight"], losses.dtype)
                losses = share * losses + (1 - share) * setup.loss(batch["mix_label"], logits)
                labels = tf.where(share >= 0.5, labels, batch["mix_label"])  # right is the class that shows most
            # Padding contributes nothing, and the divisor is the same on every replica: the sum over the replicas is
            # the mean over the global batch, however the rows are spread.
            mine = tf.reduce_sum(tf.where(mask, losses, 0)) / tf.cast(batch["num_valid"], float_type)
            if model.losses:
                mine += tf.add_n([tf.cast(loss, float_type) for loss in model.losses]) / num_parts
            scaled = mine if loss_scale is None else mine * scale
        scores = tf.cast(setup.head.score(labels, logits), float_type)
        score = tf.reduce_sum(tf.where(mask, scores, 0))
        # A variable that the loss does not reach gets a gradient of zero, and an embedding's sparse one becomes dense.
        values = [variable.value for variable in variables]
        found = tape.gradient(scaled, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        found = [tf.convert_to_tensor(gradient) for gradient in found]
        return [*found, mine, score]

    contribute = compiled(contribution) if config.jit_compile else contribution

    def step(batch: dict[str, tf.Tensor], healthy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        sums, loss, score, before = strategy.run(gradients, args=(batch,))
        loss = _first(strategy, loss)  # after the sum every replica holds the same
        return loss, _first(strategy, score), *update(sums, loss, before, healthy)

    return step


def _microbatch(batch: dict[str, tf.Tensor], number: int) -> dict[str, tf.Tensor]:
    """Returns the rows of one of a slice's microbatches, with the place of their first."""
    size = batch["mask"].shape[0] // batch["first_row"].shape[0]
    rows = {name: column[number * size : (number + 1) * size] for name, column in batch.items() if column.shape.rank}
    return {**batch, **rows, "first_row": batch["first_row"][number]}


def _first(strategy: tf.distribute.Strategy, value: object) -> tf.Tensor:
    """Returns the first replica's part of a value."""
    return strategy.experimental_local_results(value)[0]


def _dtypes(float_type: str) -> tuple[object, ...]:
    return (float_type, float_type, tf.int64, tf.bool, tf.bool, tf.float64, tf.float64)
