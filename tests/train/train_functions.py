"""What tests of training run in a worker process."""

import logging
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from tasks.files import digest_file
from tasks.prepare.manifest import Shards
from tasks.runs import find_run
from tasks.train.batches import batches_of
from tasks.train.checkpoint import VARIABLES, path_of, restore_newest, save, snapshot
from tasks.train.clock import in_graph_clock
from tasks.train.loop import train
from tasks.train.setup import set_up
from tasks.train.step import make_run_steps
from tasks.train.team import Team
from tasks.workers.devices import open_strategy

BATCH = ("image", "label", "mix_label", "mix_weight")


def train_and_die(workspace, run_id, shards, step):
    """Trains until the checkpoint of `step` stands, then is killed like by `kill -9`."""
    checkpoint = path_of(find_run(Path(workspace), run_id).checkpoints, step)

    def kill():
        while not (checkpoint / "COMPLETED").exists():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    return train(workspace, run_id, shards)


def restore_each(workspace, run_id, shards, directories):
    """Returns what `restore_newest` makes of each directory: step, digest of the weights, and what was said."""
    setup = set_up(find_run(Path(workspace), run_id), Shards.model_validate(shards))
    said = Said()
    logging.getLogger("millstream").addHandler(said)
    found = {}
    for name, directory in directories.items():
        said.lines = []
        position = restore_newest(Path(directory), setup.variables)
        again = Path(directory).with_name("again")
        save(again, snapshot(setup.variables), position)
        weights = digest_file(path_of(again, position.step) / VARIABLES)
        found[name] = {"step": position.step, "weights": weights, "said": said.lines}
    return found


class Said(logging.Handler):
    """Collects what is logged."""

    def emit(self, record):
        self.lines.append(record.getMessage())


def count_reductions(workspace, run_id, shards):
    """Returns how many sums over replicas the graph of the training step holds, by what is summed."""
    import tensorflow as tf

    run = find_run(Path(workspace), run_id)
    setup = set_up(run, Shards.model_validate(shards))
    run_steps = make_run_steps(setup, run.config.train, clock=in_graph_clock(deterministic=True))
    batches = batches_of(setup.strategy, setup.feed.training(0))
    graph = run_steps.get_concrete_function(batches, tf.constant(1)).graph.as_graph_def()
    nodes = [
        node
        for function in [graph, *graph.library.function]
        for node in getattr(function, "node", None) or function.node_def
    ]
    replicas = setup.strategy.num_replicas_in_sync
    sums = [node for node in nodes if node.op == "AddN" and node.attr["N"].i == replicas]
    return {
        "variables": len(setup.model.trainable_variables),
        "sums": len(sums),
        "operations": dict(Counter(node.op for node in nodes)),
    }


def first_step(workspace, run_id, shards):
    """Returns the figures of the first step, and the batch as the feed shows it with the logits before that step."""
    import numpy as np
    import tensorflow as tf

    run = find_run(Path(workspace), run_id)
    setup = set_up(run, Shards.model_validate(shards))
    parts = list(setup.feed.training(0).take(setup.strategy.num_replicas_in_sync).as_numpy_iterator())
    names = [name for name in BATCH if name in parts[0]]
    batch = {name: np.concatenate([part[name][part["mask"]] for part in parts]) for name in names}
    logits = setup.model({"image": batch.pop("image")}).numpy()
    run_steps = make_run_steps(setup, run.config.train, clock=in_graph_clock(deterministic=True))
    batches = batches_of(setup.strategy, setup.feed.training(0))
    outcomes = run_steps(batches, tf.constant(1))
    figures = {"loss": float(outcomes.loss[0]), "score": float(outcomes.score[0])}
    return {**figures, "logits": logits.tolist(), **{name: column.tolist() for name, column in batch.items()}}


def devices_of_variables(workspace, run_id, shards):
    """Returns the devices of each variable's copies, and under `products` those of the model's forward MatMuls."""
    import tensorflow as tf

    run = find_run(Path(workspace), run_id)
    setup = set_up(run, Shards.model_validate(shards))

    @tf.function
    def forward(images):
        return setup.strategy.run(lambda: setup.model({"image": images}))

    graph = forward.get_concrete_function(tf.TensorSpec([4, 8, 8, 1], tf.uint8)).graph
    found = {
        v.path: [part.device[-5:] for part in v.value.values] for v in setup.variables if hasattr(v.value, "values")
    }
    return found | {"products": [op.device[-5:] for op in graph.get_operations() if op.type == "MatMul"]}


def gathered_rows(workspace, run_id, shards):
    """Returns what each worker has of rows of its own and the others', of types that no collective takes and others."""
    import tensorflow as tf

    strategy = open_strategy(find_run(Path(workspace), run_id).config.distribute)
    team = Team(strategy)
    found = {}
    for dtype in (tf.bool, tf.uint8, tf.bfloat16, tf.float64):
        rows = strategy.run(tf.function(lambda dtype=dtype: tf.cast(tf.fill([2], team.worker), dtype)))
        gathered = team.rows(rows)
        found[dtype.name] = [str(gathered.dtype), gathered.astype(float).tolist()]
    return found
