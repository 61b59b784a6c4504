"""Models whose build function also plants a fault in the worker that trains them; none changes a weight."""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import keras
import models_for_tests
import numpy as np
import psutil
import tensorflow as tf

from tasks.feed.feed import Feed
from tasks.models.layers import SyncBatchNorm
from tasks.models.rows import current_rows
from tasks.train import loop, step
from tasks.workers.cluster import place_in_cluster


def fill_disk(fired):
    """Fills the disk on which `fired` lies, to the last byte."""
    with contextlib.suppress(OSError), open(Path(fired).with_name("filler"), "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def make_read_only(fired):
    """Makes the folder `read_only` beside `fired`, a mount of its own, read-only."""
    subprocess.run(["mount", "-o", "remount,bind,ro", Path(fired).with_name("read_only")], check=True)


def cut_link(_):
    """Takes down the only interface of the network that the workers have for themselves."""
    assert [name for _, name in socket.if_nameindex()] == ["lo"], "it must not be the host's"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0))  # SIOCSIFFLAGS


def kill_follower(_):
    """Kills the first worker of the parameter server's chief, which this process is."""
    address = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0]
    for process in psutil.Process().parent().children():
        ports = {connection.laddr.port for connection in process.net_connections() if connection.status == "LISTEN"}
        if int(address.rpartition(":")[2]) in ports:
            process.kill()


def fail_gpu(_):
    """Raises what TensorFlow raises when a GPU has failed."""
    raise tf.errors.InternalError(None, None, "Failed to launch a kernel: CUDA_ERROR_ECC_UNCORRECTABLE")


def limit_files(_):
    """Lets the kernel refuse any byte beyond the first thousand of a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))


FAULTS = {
    "SIGSEGV": lambda _: ctypes.string_at(0),
    "SIGKILL": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda _: os.kill(os.getpid(), signal.SIGTERM),
    "SIGSTOP": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "cut_link": cut_link,
    "kill_follower": kill_follower,
    "exit": lambda _: os._exit(9),
    "hang": lambda _: time.sleep(10**6),
    "raise": lambda _: 1 / 0,
    "fail_gpu": fail_gpu,
    "fill_disk": fill_disk,
    "make_read_only": make_read_only,
    "limit_files": limit_files,
}


def faulty(inputs, num_classes, *, fault, steps, fired, worker=0):
    """The dense model; a worker suffers `fault` once for each of `steps`, in their order, when that step is done.

    Each time a line is added to the file `fired`. What checkpoints there are is not left to chance: the last that was
    begun is whole.
    """
    report, make_writer, writers = loop.progress, loop.Writer, []

    def remembered(*arguments, **named):
        writers.append(make_writer(*arguments, **named))
        return writers[-1]

    def progress(phase, **fields):
        report(phase, **fields)
        mine = place_in_cluster()[0] == worker
        if mine and phase == "step" and count(fired) < len(steps) and fields["step"] >= steps[count(fired)]:
            with open(fired, "a") as file:
                file.write(f"{fault} at step {fields['step']}\n")
            for writer in writers:
                writer.wait()
            FAULTS[fault](fired)

    loop.progress, loop.Writer = progress, remembered
    return models_for_tests.dense(inputs, num_classes)


def starved(inputs, num_classes, *, step, fired):
    """The dense model; once, of a feed for two replicas, nothing more comes after a step."""
    training = Feed.training

    def stall():
        with open(fired, "a") as file:
            file.write(f"the feed ends at step {step}\n")
        time.sleep(10**6)
        return np.int64(0)

    def never(batch):
        with tf.control_dependencies([tf.numpy_function(stall, [], tf.int64)]):
            return {name: tf.identity(column) for name, column in batch.items()}

    def run_dry(feed, start_step):
        batches, num_slices = training(feed, start_step), 2 * (step - start_step)
        return batches if count(fired) else batches.take(num_slices).concatenate(batches.skip(num_slices).map(never))

    Feed.training = run_dry
    return models_for_tests.dense(inputs, num_classes)


def recorded(inputs, num_classes, ledger):
    """The dense model; each step adds {"step", "ids"} to the file `ledger`: of the batch that it is about to apply.

    Written by the graph of the loop itself, between taking the batch and using it: what was only prefetched is not in.
    """
    make_run_steps, timed_next = loop.make_run_steps, step.timed_next

    def make_recorded(setup, config, *, clock):
        def recorded_next(strategy, iterator, read, after):
            batch, begun = timed_next(strategy, iterator, read, after)
            ids, masks = (tf.concat(strategy.experimental_local_results(batch[name]), 0) for name in ("id", "mask"))
            with tf.control_dependencies([begun]):
                done = tf.convert_to_tensor(setup.optimizer.iterations)
                written = tf.numpy_function(write, [done, tf.boolean_mask(ids, masks)], tf.int64)
            with tf.control_dependencies([written]):
                return batch, tf.identity(begun)

        step.timed_next = recorded_next
        return make_run_steps(setup, config, clock=clock)

    def write(done, ids):
        file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps({"step": int(done), "ids": ids.tolist()}).encode() + b"\n")
        os.close(file)
        return np.int64(0)

    loop.make_run_steps = make_recorded
    return models_for_tests.dense(inputs, num_classes)


def poisoned(inputs, num_classes, id, normalised=False):
    """The dense model, which has no number for the example of this id: its pixels come brighter than any digit's.

    `normalised`: batch normalisation comes after that.
    """
    make_run_steps, timed_next = loop.make_run_steps, step.timed_next

    def make_poisoned(setup, config, *, clock):
        def poison(batch):
            is_it = tf.reshape(batch["id"] == id, [-1, *[1] * (len(batch["image"].shape) - 1)])
            return {**batch, "image": tf.where(is_it, tf.constant(255, tf.uint8), batch["image"])}

        def poisoned_next(strategy, iterator, read, after):
            batch, begun = timed_next(strategy, iterator, read, after)
            return strategy.run(poison, args=(batch,)), begun

        step.timed_next = poisoned_next
        return make_run_steps(setup, config, clock=clock)

    loop.make_run_steps = make_poisoned
    model = models_for_tests.dense(inputs, num_classes)
    logits = NoNumberForBright()([model.output, inputs["image"]])
    return keras.Model(inputs, SyncBatchNorm(momentum=0.9)(logits) if normalised else logits)


class NoNumberForBright(keras.layers.Layer):
    """Gives NaN for an image with a value of 255."""

    def call(self, inputs):
        logits, images = inputs
        bright = keras.ops.any(images == 255, axis=(1, 2, 3))[:, None]
        return keras.ops.where(bright, np.nan, logits)


class OnlyTrained(keras.layers.Layer):
    """Gives no number outside of training."""

    def call(self, inputs, training=False):
        return inputs if training else inputs * np.nan


def only_trained(inputs, num_classes):
    """The dense model, without a number to say in validation."""
    model = models_for_tests.dense(inputs, num_classes)
    return keras.Model(inputs, OnlyTrained()(model.output))


def count(fired):
    return len(Path(fired).read_text().splitlines()) if Path(fired).exists() else 0


def no_number(inputs, num_classes):
    """The dense model, with no number to say at all."""
    return keras.Model(inputs, models_for_tests.dense(inputs, num_classes).output * np.nan)


def greedy(inputs, num_classes, *, limit, from_step=0, normalised=False):
    """The dense model on a device that has memory for `limit` examples at once, from a step on."""
    model = models_for_tests.dense(inputs, num_classes)
    logits = Greedy(limit, from_step)(model.output)
    return keras.Model(inputs, SyncBatchNorm(momentum=0.9)(logits) if normalised else logits)


class Greedy(keras.layers.Layer):
    """Runs out of memory when it gets more rows than there is room for, as a device does."""

    def __init__(self, limit, from_step):
        super().__init__()
        self.limit, self.from_step = limit, from_step

    def call(self, inputs, training=False):
        rows = current_rows()
        if rows is None:
            return inputs

        def take(logits, step):
            if len(logits) > self.limit and step >= self.from_step:
                raise MemoryError(f"no room for {len(logits)}")
            return logits

        return tf.ensure_shape(tf.numpy_function(take, [inputs, rows.step], inputs.dtype, stateful=False), inputs.shape)
