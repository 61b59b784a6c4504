"""Caches: the rows of a split where a batch of them can be picked: in memory, or in files that outlive the process."""

import hashlib
import io
import logging
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import tensorflow as tf

from tasks.errors import DataError
from tasks.feed.signature import Signature
from tasks.files import atomic_directory, is_completed, lock, make_private, read_receipts
from tasks.workers.child import progress, stop_if, stop_requested

Batch = Mapping[str, tf.Tensor]
"""By name: [b, ...], the rows after those of the batch before."""
Rows = Mapping[str, np.ndarray]
"""By name: [num_examples, ...], aligned so that TensorFlow takes it as it lies there."""

FORMAT_VERSION = 1  # to be raised by whoever changes what the same shards and settings are decoded to
WAIT_SECONDS = 10  # for another process that writes, before it is told again that this one is alive

logger = logging.getLogger("millstream")


def columns(rows: Rows, after: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the rows as tensors over their own memory, in a graph, where they are asked for once `after` is there.

    TensorFlow holds a second copy of a tensor that the functions of a dataset just refer to; hence this way round.
    """
    if not rows:
        return {}
    found = tf.numpy_function(
        lambda _: tuple(rows.values()), [after], [tf.as_dtype(column.dtype) for column in rows.values()], stateful=False
    )
    return {name: tf.ensure_shape(part, rows[name].shape) for name, part in zip(rows, found, strict=True)}


def pick(columns: Mapping[str, tf.Tensor], places: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns {name: [b, ...]}: the rows at `places`, [b] int64."""
    return {name: tf.gather(column, places) for name, column in columns.items()}


def pick_records(records: np.ndarray, places: tf.Tensor) -> tf.Tensor:
    """Returns [b] string: the records at `places`, [b] int64."""
    return tf.ensure_shape(tf.numpy_function(lambda rows: records[rows], [places], tf.string, stateful=False), [None])


def records_in_memory(batches: Iterable[tf.Tensor], num_examples: int) -> np.ndarray:
    """Returns [num_examples] bytes: the records of a split, of batches of them; raises DataError if they are others."""
    records = np.empty(num_examples, object)
    for start, batch in _numbered(({"record": batch} for batch in batches), num_examples):
        part = batch["record"].numpy()
        records[start : start + len(part)] = part
    return records


def rows_in_memory(batches: Iterable[Batch], signature: Signature, num_examples: int) -> Rows:
    """Returns the batches of a split, numbers by `signature`, in memory that is taken once.

    Raises DataError if they do not hold `num_examples`.
    """
    columns = {name: _allocate((num_examples, *shape), dtype) for name, (shape, dtype) in signature.items()}
    for start, batch in _numbered(batches, num_examples):
        for name, column in columns.items():
            part = batch[name].numpy()
            column[start : start + len(part)] = part
    return columns


def rows_on_disk(directory: Path, batches: Iterable[Batch], signature: Signature, num_examples: int) -> Rows | None:
    """Returns the batches of a split, numbers by `signature`, in files of `directory`, whose name must stand for them.

    What is there and whole is taken, and `batches` is not begun; else it is written, by one process while others wait.
    A directory that was not written to its end, or whose files are not of the size they had, is written anew. Returns
    None, and warns, if it cannot be written, by a full disk for example. Raises DataError if the batches do not hold
    `num_examples`.
    """
    try:
        if not _is_whole(directory, signature):
            make_private(directory.parent)
            cache_lock(directory).touch(mode=0o600)
            with _locked(cache_lock(directory)):
                if not _is_whole(directory, signature):
                    _write(directory, batches, signature, num_examples)
        return {name: np.load(directory / _file(name), mmap_mode="r") for name in signature}
    except OSError as error:
        why = error.strerror or str(error)
        line = f"{directory}: cannot be used as a cache ({why}); goes on without, from the shards; make room there"
        logger.warning(line)
        progress("note", line=line)
        return None


def cache_lock(directory: Path) -> Path:
    """Returns the lock that is held while a cache on disk is written."""
    return directory.with_name(f".{directory.name}.lock")


def _write(directory: Path, batches: Iterable[Batch], signature: Signature, num_examples: int) -> None:
    digests: dict[str, str] = {}
    with atomic_directory(directory, digests=digests) as incomplete:
        with ExitStack() as opened:
            files = {name: opened.enter_context(open(incomplete / _file(name), "wb")) for name in signature}
            hashes = {name: hashlib.sha256() for name in signature}

            def write(name: str, data: bytes | memoryview) -> None:
                files[name].write(data)
                hashes[name].update(data)

            for name, (shape, dtype) in signature.items():
                write(name, _header((num_examples, *shape), dtype))
            for _, batch in _numbered(batches, num_examples):
                for name in signature:
                    write(name, np.ascontiguousarray(batch[name].numpy()).data)
        digests |= {_file(name): hashes[name].hexdigest() for name in signature}


def _is_whole(directory: Path, signature: Signature) -> bool:
    if not is_completed(directory):
        return False
    try:
        receipts = read_receipts(directory)
        if {_file(name) for name in signature} != set(receipts):
            raise DataError(f"{directory}: has other files than it should")
        for name, receipt in receipts.items():
            if (directory / name).stat().st_size != receipt.size_bytes:
                raise DataError(f"{directory / name}: is not as long as it was")
    except (DataError, FileNotFoundError) as error:
        logger.warning("%s; the cache is written anew", error)
        return False
    return True


def _numbered(batches: Iterable[Batch], num_examples: int) -> Iterator[tuple[int, Batch]]:
    """Yields the batches with the place of their first row."""
    start = 0
    for batch in batches:
        _say_alive()
        count = len(next(iter(batch.values())))
        if start + count <= num_examples:
            yield start, batch
        start += count
    if start != num_examples:
        raise DataError(
            f"the shards hold {start} examples, where their manifest says {num_examples}; mend them with `millstream "
            "prepare --repair`"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(lock(path, timeout_seconds=WAIT_SECONDS))
                break
            except TimeoutError:
                _say_alive()
        yield


def _say_alive() -> None:
    progress("cache")
    stop_if(stop_requested())


def _allocate(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns an array at the beginning of a page: TensorFlow would copy what is not aligned to 64 bytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE), dtype, math.prod(shape)).reshape(shape)


def _header(shape: tuple[int, ...], dtype: str) -> bytes:
    """Returns how a file of numpy's format begins, padded so that the numbers are aligned to 64 bytes."""
    head = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, description)
    return head.getvalue()


def _file(name: str) -> str:
    return f"{quote(name, safe='')}.npy"  # the target and the id may be columns of any name
