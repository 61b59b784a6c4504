"""What tests of caches run in a worker process."""

import json
import os
import resource
import signal
import threading
from pathlib import Path

from tasks.config import FeedConfig
from tasks.feed import cache, plan
from tasks.feed.feed import Feed
from tasks.prepare.manifest import MANIFEST, ShardManifest


def first_batch(directory, config):
    """Returns the ids of the first batch of a feed, and the cache that it came from."""
    manifest = ShardManifest.read(Path(directory) / MANIFEST)
    feed = Feed(Path(directory), manifest, "train", FeedConfig.model_validate(config), seed=5, num_replicas=1)
    batch = next(feed.training(0).as_numpy_iterator())
    return {"ids": batch["id"].tolist(), "cache": feed.plan.cache}


def first_batch_in_two_processes(directory, config):
    """Returns what `first_batch` does of two processes that begin at the same time."""
    answer = Path(directory).with_name("answer")
    child = os.fork()
    if child == 0:
        answer.write_text(json.dumps(first_batch(directory, config)))
        os._exit(0)
    own = first_batch(directory, config)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return {"answers": [own, json.loads(answer.read_text())]}


def die_while_writing(directory, config):
    """Is killed like by `kill -9` when part of the rows is written."""
    numbered, plan.FILL_BATCH_BYTES = cache._numbered, 1

    def dying(batches, num_examples):
        for place, batch in numbered(batches, num_examples):
            if place == 100:
                os.kill(os.getpid(), signal.SIGKILL)
            yield place, batch

    cache._numbered = dying
    return first_batch(directory, config)


def first_batch_on_a_full_disk(directory, config):
    """Returns what `first_batch` does where no file can be larger than 4,000 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    return first_batch(directory, config)


def memory_growth(directory, config):
    """Returns by how many bytes this process grew at most over two epochs, its code aside, and what was planned.

    Pages of files are not counted, because the kernel takes them back.
    """
    path, settings = Path(directory), FeedConfig.model_validate(config)
    manifest = ShardManifest.read(path / MANIFEST)

    def feed(split, **changes):
        return Feed(path, manifest, split, settings.model_copy(update=changes), seed=0, num_replicas=2)

    small = feed("test", global_batch_size=8)  # whose memory, which is kept for what comes, is next to none
    for _ in small.training(0).take(4):  # loads all code that is needed
        pass
    before = _anonymous_bytes()
    sizes, done = [before], threading.Event()

    def watch():
        while not done.wait(0.005):
            sizes.append(_anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    fed = feed("train")
    for _ in fed.training(0).take(2 * 2 * fed.steps_per_epoch):
        pass
    done.set()
    watcher.join()
    return {"growth": max(sizes) - before, "planned": fed.plan.memory_bytes, "cache": fed.plan.cache}


def _anonymous_bytes():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024
