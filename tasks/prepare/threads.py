"""Threads: work that mostly leaves Python (copies, checksums, writing), done side by side and handed on in order."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tasks.config import DataConfig

In = TypeVar("In")
Out = TypeVar("Out")


def num_workers(config: DataConfig) -> int:
    """Returns how many threads or processes `data.num_workers` means on this machine."""
    return len(os.sched_getaffinity(0)) if config.num_workers == "auto" else config.num_workers


def in_order(work: Callable[[In], Out], items: Iterable[In], *, num_threads: int) -> Iterator[Out]:
    """Yields `work(item)` of each item in the order of the items, `num_threads` of them worked on at once.

    At most as many more are taken ahead, so that memory stays bounded. The first exception, of an item or of the work,
    is raised when its turn comes; what runs then is waited for, what has not begun is left.
    """
    if num_threads == 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="prepare")
    waiting: deque[Future[Out]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > num_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
