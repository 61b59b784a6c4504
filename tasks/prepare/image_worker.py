"""ImageWorker: a process that prepares images, so that all cores decode, and one that crashes takes nothing with it.

Not the standard library's pool: its processes import `__main__` anew, which under Prefect is Prefect's engine, and if
one dies it does not say of which file. `python -m tasks.prepare.image_worker DESCRIPTOR SOURCE` is the worker.
"""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Sequence
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


def prepare_files(
    files: Sequence[Path], source: ImageFolderSource, num_workers: int
) -> Generator[StoredImage | str, None, None]:
    """Yields what `prepare_image` returns of each file, in the order of `files`; in this process if `num_workers` is 1.

    Raises DataError that names the file if it cannot be read, or if a worker died of it.
    """
    num_workers = min(num_workers, len(files))
    if num_workers <= 1:
        for file in files:
            yield prepare_file(file, source)
        return
    with ExitStack() as stack:
        idle: SimpleQueue[ImageWorker] = SimpleQueue()

        def prepare(file: Path) -> StoredImage | str:
            worker = idle.get()
            try:
                return worker.prepare(file)
            finally:
                idle.put(worker)

        threads = stack.enter_context(ThreadPoolExecutor(num_workers))  # each waits for a worker
        for _ in range(num_workers):
            idle.put(stack.enter_context(ImageWorker(source)))  # ends before the threads, which then end too
        pending: deque[Future[StoredImage | str]] = deque()
        stack.callback(lambda: [future.cancel() for future in pending])
        for file in files:
            pending.append(threads.submit(prepare, file))
            if len(pending) == IN_FLIGHT * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def prepare_file(file: Path, source: ImageFolderSource) -> StoredImage | str:
    """Returns what `prepare_image` returns of a file's bytes; raises DataError if it cannot be read."""
    with open_file(file) as opened:
        data = opened.read()
    return prepare_image(data, source)


class ImageWorker:
    """A process of our own that prepares one image after another; to be used in a `with`."""

    def __init__(self, source: ImageFolderSource) -> None:
        self._connection, theirs = Pipe()
        root = str(Path(__file__).parents[2])
        python_path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with theirs:
            self._process = subprocess.Popen(
                # -P: a `tasks` in the present folder must not take the place of ours.
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), source.model_dump_json()],
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

    def prepare(self, file: Path) -> StoredImage | str:
        """Returns what `prepare_file` does, or raises it; raises DataError if the worker dies."""
        try:
            self._connection.send(file)
            answer: Any = self._connection.recv()
        except (EOFError, OSError):
            raise DataError(
                f"{file}: the process that decoded it {_end(self._process.wait())}; remove the file if this comes again"
            ) from None
        if isinstance(answer, DataError):
            raise answer
        return answer


def work(connection: Connection, source: ImageFolderSource) -> None:
    """Answers each path that comes with what `prepare_file` returns or raises, until the other side is gone."""
    while True:
        try:
            file = connection.recv()
        except EOFError:
            return
        answer: StoredImage | str | DataError
        try:
            answer = prepare_file(file, source)
        except DataError as error:
            answer = error
        connection.send(answer)


def _end(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])), ImageFolderSource.model_validate_json(sys.argv[2]))
