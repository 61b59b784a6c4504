"""Service: the feed's reading and decoding on other hosts, by TensorFlow's tf.data service.

`python -m tasks.feed.service dispatcher --port 5050` on one host, `worker HOST:5050` on each that is to help; then
`feed.service: grpc://HOST:5050`. TensorFlow binds them to all interfaces and knows neither login nor encryption.
"""

import math
import socket
import sys
from collections.abc import Callable

import tensorflow as tf
from cyclopts import App
from tensorflow.data.experimental.service import (
    DispatcherConfig,
    DispatchServer,
    ShardingPolicy,
    WorkerConfig,
    WorkerServer,
    distribute,
)

from tasks.errors import ConfigError
from tasks.feed.blocks import Blocks
from tasks.feed.permutation import permutation

LAST_UNIT = 2**62
"""So many are never read."""
ANSWER_SECONDS = 10  # that a dispatcher may take

app = App(name="python -m tasks.feed.service", help="TensorFlow's tf.data service, for feed.service.")


def served(
    address: str,
    blocks: Blocks,
    read: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset],
    decode: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]],
    *,
    seed: int,
    window: int,
    batch_size: int,
    start: int,
) -> tf.data.Dataset:
    """Returns an endless dataset of decoded batches, from about the example with number `start` on.

    What is handed out to the workers is a window: some blocks, about `window` examples, shuffled with each other.
    Every epoch shows each example once; in which order depends on who is quicker, and the epochs run into each other.
    Of a worker that is lost, the windows that it was at work on are left out of that epoch. Raises ConfigError if no
    dispatcher is there.
    """
    _check_dispatcher(address)
    table, num_blocks = tf.constant(blocks.table()), len(blocks.row)
    per_window = max(1, window // int(blocks.count.max()))
    per_epoch = math.ceil(num_blocks / per_window)

    def examples(unit: tf.Tensor) -> tf.data.Dataset:
        epoch, place = unit // per_epoch, unit % per_epoch
        order = permutation(num_blocks, seed, epoch, -1)
        chosen = tf.gather(table, order[place * per_window : (place + 1) * per_window])
        whole = read(chosen, tf.reduce_sum(chosen[:, 3]))
        mixed = whole.map(lambda batch: tf.gather(batch, permutation(tf.shape(batch)[0], seed, epoch, place)))
        batches = mixed.rebatch(batch_size)
        return batches.map(lambda batch: decode(epoch, batch), num_parallel_calls=tf.data.AUTOTUNE)

    epoch, example = divmod(start, int(blocks.count.sum()))
    first = epoch * per_epoch + int(blocks.count.cumsum().searchsorted(example, side="right")) // per_window
    units = tf.data.Dataset.range(first, LAST_UNIT).flat_map(examples)
    policy = distribute(processing_mode=ShardingPolicy.DYNAMIC, service=address)
    return units.apply(policy).rebatch(batch_size)


def _check_dispatcher(address: str) -> None:
    """Raises ConfigError if nothing answers there: TensorFlow would try again for ever, without a word."""
    host, _, port = address.removeprefix("grpc://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"feed.service={address}: no dispatcher answers ({error}); start one with `python -m tasks.feed.service "
            "dispatcher`, or leave the service out"
        ) from error


@app.command
def dispatcher(*, port: int = 5050) -> None:
    """Serves the workers' dispatcher on all interfaces, until it is stopped; prints its address. 0: any free port."""
    server = DispatchServer(DispatcherConfig(port=port))
    _say(server.target)
    server.join()


@app.command
def worker(dispatcher: str, /, *, host: str = "localhost", port: int = 0) -> None:
    """Serves a worker of the dispatcher at HOST:PORT; `host`: how the trainer reaches this worker; port 0: any."""
    server = WorkerServer(WorkerConfig(dispatcher_address=dispatcher, worker_address=f"{host}:%port%", port=port))
    _say(f"works for {dispatcher}")
    server.join()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    app()
