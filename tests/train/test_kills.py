"""A training that is killed again and again ends right, and has seen each example as often as it should."""

import json
import threading
import time

import numpy as np
import psutil
import pytest

from tasks.feed.feed import Feed, evaluation_feed
from tasks.files import digest_file
from tasks.train.checkpoint import VARIABLES, completed
from tasks.train.stage import train

NUM_EPOCHS, NUM_KILLS = 100, 20
LONG = (
    f"train.total={NUM_EPOCHS} epochs",
    "train.checkpoint_every=5 steps",
    "train.steps_per_call=3",
    "train.max_restarts=20",
    "model.build=faulty_models:recorded",
)


class Killer(threading.Thread):
    """Kills the training workers of this process, `NUM_KILLS` of them, each after a random while.

    One half are killed within 2 s of their birth, while they start, the others within 0.5 s of their first checkpoint.
    """

    def __init__(self, run, rng):
        super().__init__(daemon=True)
        self.checkpoints, self.rng, self.killed, self.over = run.checkpoints, rng, [], threading.Event()

    def run(self):
        for number in range(NUM_KILLS):
            worker = self.next_worker()
            if number % 2:
                before = completed(self.checkpoints)[-1:]
                while completed(self.checkpoints)[-1:] == before and not self.over.wait(0.005):
                    pass
            if worker is None or self.over.wait(self.rng.uniform(0, 0.5 if number % 2 else 2)):
                return
            worker.kill()  # by process id and time of birth, so that it is never another's
            assert worker.wait() is None
            self.killed.append(worker.pid)

    def next_worker(self):
        """Returns the worker, once there is one: a child of the server, which is a child of this process."""
        while not self.over.is_set():
            for server in psutil.Process().children():
                if "tasks.workers.server" in server.cmdline():
                    for worker in server.children():
                        if worker.pid not in self.killed and worker.status() != psutil.STATUS_ZOMBIE:
                            return worker
            time.sleep(0.01)
        return None


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_twenty_kills_at_random_change_neither_the_weights_nor_what_is_seen(trainer, tmp_path):
    def recorded_run(name):
        return trainer.run(*LONG, f"model.args={{ledger: {tmp_path / name}}}")

    shards = trainer.digits.shards
    expected = train(recorded_run("unbroken"), shards)

    run = recorded_run("killed")
    killer = Killer(run, np.random.default_rng(8))
    killer.start()
    result = train(run, shards)
    killer.over.set()
    killer.join()
    assert len(killer.killed) == NUM_KILLS, "all were alive when they were killed, and the training outlived the last"
    assert digest_file(result.last_checkpoint / VARIABLES) == digest_file(expected.last_checkpoint / VARIABLES)

    seen, num_lines = {}, 0
    for line in (tmp_path / "killed").read_text().splitlines():
        entry = json.loads(line)
        num_lines += 1
        seen[entry["step"]] = entry["ids"]  # a step that was done again after a kill counts as last done
    manifest = shards.manifest()
    feed = Feed(shards.directory, manifest, "train", run.config.feed, seed=run.config.train.seed, num_replicas=1)
    assert sorted(seen) == list(range(NUM_EPOCHS * feed.steps_per_epoch))
    assert num_lines > len(seen), "some steps were done twice, or the kills came to nothing"

    once = evaluation_feed(shards.directory, manifest, "train", run.config.feed, batch_size=64, num_replicas=1)
    stored = np.concatenate([element["id"][element["mask"]] for element in once.one_pass().as_numpy_iterator()])
    for epoch in range(NUM_EPOCHS):
        steps = range(epoch * feed.steps_per_epoch, (epoch + 1) * feed.steps_per_epoch)
        ids = np.concatenate([seen[step] for step in steps])
        assert np.array_equal(ids, stored[feed.order(epoch)]), "in the order of the oracle"
        assert np.array_equal(np.sort(ids), np.sort(stored)), "each exactly once"
