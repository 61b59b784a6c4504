"""ImageWorkers: processes that prepare images, so that all cores decode, and one that crashes takes nothing with it.

Not the standard library's pool: its processes import `__main__` anew, which under Prefect is Prefect's engine, and if
one dies it does not say of which file. `python -m tasks.prepare.image_worker DESCRIPTOR` is the worker.
"""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from tasks.errors import DataError
from tasks.prepare.folders import open_file
from tasks.prepare.image import StoredImage, prepare_image
from tasks.sources import ImageFolderSource

IN_FLIGHT = 4  # images a worker that are decoded or wait for their turn; bounds the memory

# For glibc: not to give the pixels of each image back to the kernel, whose page faults take a quarter of the time.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**26), "MALLOC_TRIM_THRESHOLD_": str(2**28)}


Encoded = Path | bytes
"""An image as it is encoded: its file, which the worker reads, or its bytes."""


class ImageWorkers:
    """Processes that prepare images, or this one if `num_workers` is 1; to be used in a `with`."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._idle: SimpleQueue[ImageWorker] = SimpleQueue()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._num_workers > 1:
            with ExitStack() as stack:
                self._threads = stack.enter_context(ThreadPoolExecutor(self._num_workers))  # each waits for a worker
                for _ in range(self._num_workers):
                    self._idle.put(stack.enter_context(ImageWorker()))  # ends before the threads, which then end too
                stack.callback(self._threads.shutdown, wait=False, cancel_futures=True)
                self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepare(self, images: Iterable[tuple[str, Encoded]], source: ImageFolderSource) -> Iterator[StoredImage | str]:
        """Yields what `prepare_image` returns of each image, in their order; a few are decoded ahead.

        `images`: each with a name. Raises DataError if a file cannot be read, or, with the name, if a worker died.
        """
        if self._num_workers <= 1:
            yield from (_prepare(image, source) for _, image in images)
            return
        pending: deque[Future[StoredImage | str]] = deque()
        for name, image in images:
            pending.append(self._threads.submit(self._prepare, name, image, source))
            if len(pending) == IN_FLIGHT * self._num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def _prepare(self, name: str, image: Encoded, source: ImageFolderSource) -> StoredImage | str:
        worker = self._idle.get()
        try:
            return worker.prepare(name, image, source)
        finally:
            self._idle.put(worker)


class ImageWorker:
    """A process of our own that prepares one image after another; to be used in a `with`."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        root = str(Path(__file__).parents[2])
        python_path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with theirs:
            self._process = subprocess.Popen(
                # -P: a `tasks` in the present folder must not take the place of ours.
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_KEEP_MEMORY, "PYTHONPATH": python_path},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C in the terminal must reach this process only, which ends the worker
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # it holds nothing that could be lost
        self._process.wait()
        self._connection.close()

    def prepare(self, name: str, image: Encoded, source: ImageFolderSource) -> StoredImage | str:
        """Returns what `prepare_image` does; raises DataError if the file cannot be read or the worker dies."""
        try:
            self._connection.send((image, source))
            answer: Any = self._connection.recv()
        except (EOFError, OSError):
            raise DataError(
                f"{name}: the process that decoded it {_end(self._process.wait())}; remove it if this comes again"
            ) from None
        if isinstance(answer, DataError):
            raise answer
        return answer


def work(connection: Connection) -> None:
    """Answers each image and source that come with the prepared image or an error, until the other side is gone."""
    while True:
        try:
            image, source = connection.recv()
        except EOFError:
            return
        answer: StoredImage | str | DataError
        try:
            answer = _prepare(image, source)
        except DataError as error:
            answer = error
        connection.send(answer)


def _prepare(image: Encoded, source: ImageFolderSource) -> StoredImage | str:
    if isinstance(image, bytes):
        return prepare_image(image, source)
    with open_file(image) as opened:
        data = opened.read()
    return prepare_image(data, source)


def _end(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])))
