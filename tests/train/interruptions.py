"""Interruptions: a worker's function, called so that a fault befalls it at one moment; none changes a figure."""

import importlib
import os
import select
import signal
import sys
import time
from pathlib import Path

import psutil

from tasks import files
from tasks.train import checkpoint, inference, loop, step

SECONDS_TO_ARRIVE = 20  # longest time from the signal of this process to what the flow process does about it


def flow():
    """Returns the process id of the flow process, the parent of this worker's server."""
    return psutil.Process(os.getppid()).ppid()


FAULTS = {
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(9),
    "hang": lambda: time.sleep(10**6),
    "SIGINT of the flow": lambda: os.kill(flow(), signal.SIGINT),
    "SIGKILL of the flow": lambda: os.kill(flow(), signal.SIGKILL),
}
AT_ONCE = {"SIGKILL", "exit"}  # after the others the worker still does something


def in_step(number):
    """Within the graph of the loop: the batch of a step is there and was not used yet."""

    def plant(fire):
        import numpy as np
        import tensorflow as tf

        make_run_steps, timed_next = loop.make_run_steps, step.timed_next

        def make(setup, config, *, clock):
            def fire_at(done):
                if done == number:
                    fire()
                return np.int64(0)

            def next_batch(strategy, iterator, read, after):
                batch, begun = timed_next(strategy, iterator, read, after)
                with tf.control_dependencies([begun]):
                    fired = tf.numpy_function(fire_at, [tf.convert_to_tensor(setup.optimizer.iterations)], tf.int64)
                with tf.control_dependencies([fired]):
                    return batch, tf.identity(begun)

            step.timed_next = next_batch
            return make_run_steps(setup, config, clock=clock)

        loop.make_run_steps = make

    return plant


def around(module, name, condition=lambda *_, **__: True, *, after=False):
    """Before, or after, the call of a module's function whose arguments meet the condition."""

    def plant(fire):
        place = importlib.import_module(module) if isinstance(module, str) else module
        call = getattr(place, name)

        def called(*arguments, **named):
            meant = condition(*arguments, **named)
            if meant and not after:
                fire()
            result = call(*arguments, **named)
            if meant and after:
                fire()
            return result

        setattr(place, name, called)

    return plant


def write_before_going_on():
    """Lets the training wait for each checkpoint, or how far it comes until a fault takes effect is left to chance."""
    save = checkpoint.Writer.save

    def save_and_wait(writer, *arguments, **named):
        save(writer, *arguments, **named)
        writer.wait()

    checkpoint.Writer.save = save_and_wait


def of_step(number):
    """A checkpoint's directory, or a file in it, while it is being written or when it is there."""
    return lambda *arguments, **_: any(f"/{number:08d}" in str(argument) for argument in arguments)


TRAIN, EVALUATE = "tasks.train.loop:train", "tasks.evaluate.evaluation:evaluate"
WRITE, COMPARE = "tasks.export.savedmodel:write", "tasks.export.parity:compare"

# With the fixture's 23 steps an epoch and a checkpoint every 10 steps, in the order in which they are reached.
MOMENTS = {
    "at the start": (TRAIN, around(loop, "set_up")),
    "in the first step": (TRAIN, in_step(0)),
    "in mid-epoch": (TRAIN, in_step(12)),
    "between the files of a checkpoint": (TRAIN, around(checkpoint, "save_file", of_step(20), after=True)),
    "in the last batch of an epoch": (TRAIN, in_step(22)),
    "in the validation": (TRAIN, around(inference, "progress")),
    "between the figures of an epoch and its checkpoint": (
        TRAIN,
        around(checkpoint, "save", lambda _, __, position: position.step == 23),
    ),
    "before COMPLETED": (
        TRAIN,
        around(files, "write_atomic", lambda path, _: path.name == "COMPLETED" and of_step(30)(path)),
    ),
    "between epochs": (TRAIN, around(checkpoint, "prune", lambda *_, step, **__: step == 46, after=True)),
    "while old checkpoints are deleted": (
        TRAIN,
        around(checkpoint.shutil, "rmtree", lambda path, **options: path.name.isdigit() and not options),
    ),
    "in the last step": (TRAIN, in_step(68)),
    "between the last checkpoint and the result": (TRAIN, around(loop, "_result")),
    "in the evaluation": (EVALUATE, around(inference, "progress")),
    "in the writing of the report": (EVALUATE, around("tasks.evaluate.plots", "confusion_matrix")),
    "in the writing of the model": (WRITE, around("tasks.export.savedmodel", "save", after=True)),
    "in the comparison of the model": (COMPARE, around("tasks.export.parity", "check")),
}


def call(function, arguments, fault, moments, fired):
    """Returns what a worker's function returns; `fault` befalls it at the next of `moments` if that is one of its own.

    The file `fired` has a line for each moment that was.
    """
    module, _, name = function.partition(":")
    target = getattr(importlib.import_module(module), name)
    come = Path(fired).read_text().splitlines() if Path(fired).exists() else []
    moment = next(iter(moments[len(come) :]), None)
    if moment is not None and MOMENTS[moment][0] == function:
        armed = [True]
        told, tells = os.pipe()
        os.set_blocking(tells, False)
        # Written to as the signal comes, also while the main thread is in the graph of the loop.
        signal.set_wakeup_fd(tells)
        if fault not in AT_ONCE:
            write_before_going_on()

        def fire():
            if armed.pop() if armed else False:
                with open(fired, "a") as file:
                    file.write(f"{moment}\n")
                FAULTS[fault]()
                if "of the flow" in fault:
                    assert select.select([told], [], [], SECONDS_TO_ARRIVE)[0], "the flow process did nothing about it"

        MOMENTS[moment][1](fire)
    return target(**arguments)


def interrupt(launch, fault, moments, fired):
    """Makes every call of `launch` in this process one that `fault` befalls at each of `moments` in turn."""
    real = launch.call

    def interrupted(function, arguments, **options):
        arguments = {
            "function": function,
            "arguments": arguments,
            "fault": fault,
            "moments": list(moments),
            "fired": str(fired),
        }
        return real("interruptions:call", arguments, import_path=[str(Path(__file__).parent)], **options)

    launch.call = interrupted


if __name__ == "__main__":  # as a flow process of its own: workspace, run id, shards, fault, fired, moments
    from tasks.evaluate.stage import evaluate
    from tasks.export.stage import export
    from tasks.prepare.manifest import Shards
    from tasks.runs import find_run, open_run
    from tasks.train.stage import train
    from tasks.workers import launch

    workspace, run_id, data, code_digest, fault, fired, *moments = sys.argv[1:]
    interrupt(launch, fault, moments, fired)
    shards = Shards.model_validate_json(data)
    config = find_run(Path(workspace), run_id).config
    with open_run(
        Path(workspace), config, data_digest=shards.data_digest, code_digest=code_digest, run_id=run_id
    ) as run:
        trained = train(run, shards)
        report = evaluate(run, shards, trained)
        export(run, shards, trained, report)
