"""A tf.data service reads and decodes for the trainer, on loopback; a worker of it may die."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from tasks.config import FeedConfig, build_config
from tasks.errors import ConfigError
from tasks.feed.feed import Feed

BATCH, TRAIN = 32, 1437


@contextmanager
def service(*arguments):
    """Yields a process of the service and the line that it prints once it serves."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks.feed.service", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        text=True,
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def two_workers():
    """A dispatcher's address and the processes of its two workers."""
    with ExitStack() as stack:
        _, address = stack.enter_context(service("dispatcher", "--port=0"))
        dispatcher = address.removeprefix("grpc://")
        workers = [stack.enter_context(service("worker", dispatcher)) for _ in range(2)]
        assert [line for _, line in workers] == [f"works for {dispatcher}"] * 2
        yield address, [process for process, _ in workers]


def make_feed(digits, address):
    config = FeedConfig(global_batch_size=BATCH, block=64, window=320, service=address)
    return Feed(digits.shards.directory, digits.shards.manifest(), "train", config, seed=3, num_replicas=2)


@pytest.mark.prove
def test_two_workers_show_every_example_once_an_epoch_and_one_of_them_may_die(digits, two_workers):
    address, (first, _) = two_workers
    images = {
        int(part["id"][row]): part["image"][row] for part in local(digits) for row in np.flatnonzero(part["mask"])
    }
    elements = make_feed(digits, address).training(0).as_numpy_iterator()
    # Epochs run into each other by what is under way: two windows at each of two workers, of five.
    epochs = [next(elements) for _ in range(2 * 5 * TRAIN // BATCH)]
    ids = np.concatenate([part["id"] for part in epochs])
    assert all(part["mask"].all() and part["num_valid"] == BATCH for part in epochs)
    assert all(np.array_equal(part["image"][0], images[int(part["id"][0])]) for part in epochs)
    times_shown = np.bincount(ids, minlength=1797)[sorted(images)]
    assert times_shown.min() >= 3
    assert times_shown.max() <= 7
    first.kill()
    later = np.concatenate([next(elements)["id"] for _ in range(2 * 4 * TRAIN // BATCH)])
    assert set(later) == set(images)


def local(digits):
    config = FeedConfig(global_batch_size=BATCH, block=64, window=320)
    feed = Feed(digits.shards.directory, digits.shards.manifest(), "train", config, seed=3, num_replicas=1)
    return list(feed.training(0).take(feed.steps_per_epoch).as_numpy_iterator())


def test_a_service_is_refused_where_the_order_of_batches_matters():
    tree = {"name": "any", "feed": {"service": "grpc://there:5050"}}
    with pytest.raises(ConfigError, match=r"feed.service=grpc://there:5050: .* train.deterministic=false"):
        build_config(tree)
    config = build_config(tree, ["train.deterministic=false"])
    assert config.feed.service == "grpc://there:5050"
    for override, message in (
        ("train.on_nonfinite=rollback", "take train.on_nonfinite=stop"),
        ("feed.sampling=class_balanced", "take feed.sampling=uniform"),
        ("feed.cache=disk", "feed.cache=disk is in vain; take auto"),
    ):
        with pytest.raises(
            ConfigError, match=rf"feed.service=grpc://there:5050: .*{message}, or leave the service out"
        ):
            build_config(tree, ["train.deterministic=false", override])


def test_a_dispatcher_that_does_not_answer_is_said_at_once(digits):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    feed = make_feed(digits, f"grpc://127.0.0.1:{port}")
    with pytest.raises(ConfigError, match=rf"feed.service=grpc://127.0.0.1:{port}: no dispatcher answers .*refused"):
        feed.training(0)
