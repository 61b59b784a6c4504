"""The TFDS worker: has TensorFlow Datasets download and prepare a data set, and stages it, in a child process."""

import difflib
import functools
import importlib
import importlib.metadata
import logging
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.download.heartbeat import heartbeat
from tasks.download.staged import (
    BAD_COLUMN,
    BAD_REASON,
    NUMBER,
    ROW_GROUP_BYTES,
    SCHEMA,
    SPLIT,
    SPLIT_BY,
    TARGET,
    SplitColumn,
    StagedWriter,
)
from tasks.download.tfds_features import Selected, select, staged_schema
from tasks.errors import ConfigError, DataError, MillstreamError
from tasks.sources import TfdsSource
from tasks.workers.child import progress

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_BATCH_ROWS = 128  # encoded images are of unknown size; a batch of them is in memory at once
_NUM_CLOSE_NAMES = 3


def stage(
    *,
    source: dict[str, Any],
    kind: str,
    column: SplitColumn | None,
    directory: str,
    log: str,
    data_dir: str,
    num_retries: int,
    silence_seconds: float,
) -> dict[str, Any]:
    """Writes all splits of a TfdsSource (as JSON) into `directory`, with their StagedSchema; returns their number.

    Images stay encoded. `kind` is data.target.kind. `column`: name and use of what data.splits goes by. `log`: the file
    that has this process's tracebacks. What is prepared in `data_dir` is used without the network; else TFDS downloads,
    checks the registered checksums and prepares there. A download that is refused, cut, or silent for
    `silence_seconds` is tried again `num_retries` times; files that came whole are kept.

    Raises ConfigError if there is no such data set, config, version or feature, DataError if a file cannot be had, is
    not what TFDS registered or has to be got by hand, or if the data set's own code fails.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to be saved
    config = TfdsSource.model_validate(source)
    with heartbeat():
        _configure_tfds(num_retries, silence_seconds)
        if config.module is not None:
            _import_module(config, log)
        builder = _find_builder(config, Path(data_dir), log)
        select(
            builder.info.features, config, column, kind=kind
        )  # what does not fit is refused before anything is downloaded
        _prepare(builder, config, Path(data_dir), num_retries, log)
        selected = select(builder.info.features, config, column, kind=kind)  # class names may have come with the data
        notes = []
        name = _full_name(builder)
        if config.name != name:
            release = importlib.metadata.version("tensorflow-datasets")
            notes.append(f"{config.name} is {name} in TFDS {release}; put that into data.source.name to keep it so")
            progress("note", line=notes[0])
        splits = {split: info.num_examples for split, info in builder.info.splits.items()}
        schema = staged_schema(name, selected, splits, notes)
        with StagedWriter(Path(directory), schema.columns()) as writer:
            for split in splits:
                _write_split(builder, split, selected, writer)
        schema.write(Path(directory) / SCHEMA)
    return {"num_examples": sum(splits.values())}


def _configure_tfds(num_retries: int, silence_seconds: float) -> None:
    """Makes TFDS quiet, keeps it to this machine and the data's own servers, and bounds its waits."""
    import requests
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import visibility
    from tensorflow_datasets.core.download import downloader

    tfds.disable_progress_bar()
    logging.getLogger("absl").setLevel(logging.ERROR)
    # Community data sets are looked up in a bucket on the net.
    visibility.set_availables([visibility.DatasetType.TFDS_PUBLIC])
    # This process ends with the call, so that nobody else gets these.
    downloader.MAX_RETRIES = num_retries
    limited = functools.partialmethod(requests.Session.request, timeout=silence_seconds)
    requests.Session.request = limited  # type: ignore[assignment,method-assign]


def _import_module(config: TfdsSource, log: str) -> None:
    assert config.module is not None
    try:
        importlib.import_module(config.module)
    except Exception as error:
        raise ConfigError(
            f"data.source.module={config.module!r}: cannot be imported: {_describe(error)}; its traceback is in {log}"
        ) from error


def _find_builder(config: TfdsSource, data_dir: Path, log: str) -> "tfds.core.DatasetBuilder":
    import tensorflow_datasets as tfds

    setting = f"data.source.name={config.name}"
    try:
        # TFDS writes 'any version' so; its own default is the newest that its code makes.
        return tfds.builder(config.name.removesuffix(":*"), data_dir=str(data_dir), try_gcs=False)
    except tfds.core.DatasetNotFoundError:
        name = re.split("[/:]", config.name)[0]
        names = tfds.list_builders(with_community_datasets=False)
        close = difflib.get_close_matches(name, names, n=_NUM_CLOSE_NAMES)
        hint = f"the closest are {', '.join(close)}" if close else "tfds.list_builders() lists them"
        raise ConfigError(
            f"{setting}: TFDS has no data set {name!r}; {hint}; one of your own needs data.source.module"
        ) from None
    except Exception as error:
        words = _describe(error)
        if found := re.search(r"BuilderConfig (\S+) not found", words):
            configs = tfds.builder_cls(re.split("[/:]", config.name)[0]).builder_configs
            message = f"has no config {found[1]!r}; it has {', '.join(configs)}"
        elif found := re.search(r"cannot be loaded at version (\S+), only: (.*?)\.?$", words):
            message = f"has no version {found[1]}; it has {found[2]}"
        else:
            message = f"cannot be set up: {words}; its traceback is in {log}"
        raise ConfigError(f"{setting}: {message}") from error


def _prepare(
    builder: "tfds.core.DatasetBuilder", config: TfdsSource, data_dir: Path, num_retries: int, log: str
) -> None:
    """Has TFDS download and prepare the data set, unless it is there."""
    import requests
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError
    from tensorflow_datasets.core.download.util import DownloadError

    setting = f"data.source.name={config.name}"
    for attempt in range(num_retries + 1):
        progress("note", line=f"{_full_name(builder)} is downloaded and prepared by TFDS, unless it is in {data_dir}")
        try:
            builder.download_and_prepare(
                download_config=tfds.download.DownloadConfig(try_download_gcs=False, register_checksums=False)
            )
        except NonMatchingChecksumError as error:
            raise DataError(f"{setting}: {_checksum_message(error)}") from error
        except DownloadError as error:
            raise DataError(f"{setting}: {_one_line(error)}; the publisher may have moved it: update TFDS") from error
        except requests.RequestException as error:
            if attempt < num_retries:
                time.sleep(min(2.0**attempt, 30.0) / 2)
                continue
            raise DataError(
                f"{setting}: a download failed {attempt + 1} times: {_describe(error)}; run it again when the server "
                "answers, and whole files will not be fetched twice"
            ) from error
        except OSError as error:
            raise DataError(f"{setting}: {data_dir}: {_describe(error)}; mend that and run it again") from error
        except ImportError as error:
            raise DataError(
                f"{setting}: its code needs what is not installed: {_describe(error)}; the traceback is in {log}"
            ) from error
        except Exception as error:
            raise DataError(f"{setting}: {_failure(error, log)}") from error
        return


def _write_split(
    builder: "tfds.core.DatasetBuilder", split: str, selected: list[Selected], writer: StagedWriter
) -> None:
    """Adds the examples of a split in the order of TFDS's files; raises DataError if they are fewer or more."""
    number = 0
    for batch in _read(builder, split, selected):
        columns: dict[str, Any] = {}
        reasons: dict[int, tuple[str, str]] = {}
        for one in selected:
            values: Any = functools.reduce(dict.__getitem__, one.path, batch)
            columns[one.column], bad = one.convert(values)
            shown = one.path[-1] if one.column in (TARGET, SPLIT_BY) else one.column
            reasons = {row: (shown, reason) for row, reason in bad.items()} | reasons
        num_rows = len(columns[TARGET])
        columns[SPLIT] = [split] * num_rows
        columns[NUMBER] = range(number + 1, number + num_rows + 1)
        columns[BAD_COLUMN] = [reasons.get(row, (None, None))[0] for row in range(num_rows)]
        columns[BAD_REASON] = [reasons.get(row, (None, None))[1] for row in range(num_rows)]
        writer.add(columns, num_rows=num_rows)
        number += num_rows
        progress("staged", num_examples=number)
    expected = builder.info.splits[split].num_examples
    if number != expected:
        raise DataError(
            f"{builder.data_dir}: split {split!r} has {number} examples, not {expected} as TFDS recorded; "
            "delete that folder and run again"
        )


def _read(builder: "tfds.core.DatasetBuilder", split: str, selected: list[Selected]) -> Iterator[dict[str, Any]]:
    """Yields batches of the selected features, nested as in TFDS, images encoded, in the same order every time."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    wanted: dict[str, Any] = {}
    decoders: dict[str, Any] = {}
    for one in selected:
        _put(wanted, one.path, True)
        if one.feature is not None and one.feature.kind == "image":
            _put(decoders, one.path, tfds.decode.SkipDecoding())
    examples = builder.as_dataset(
        split=split,
        shuffle_files=False,
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        decoders=tfds.decode.PartialDecoding(wanted, decoders=decoders),
    )
    spec = tf.nest.flatten(examples.element_spec)
    fixed_bytes = sum(one.shape.num_elements() * one.dtype.size for one in spec if one.dtype != tf.string)
    rows = max(1, min(_BATCH_ROWS, ROW_GROUP_BYTES // max(1, fixed_bytes)))
    try:
        yield from examples.batch(rows).as_numpy_iterator()
    except tf.errors.OpError as error:
        raise DataError(f"{builder.data_dir}: cannot be read: {_one_line(error)}; delete it and run again") from error


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _full_name(builder: "tfds.core.DatasetBuilder") -> str:
    """Returns name/config:version."""
    name, _, version = str(builder.info.full_name).rpartition("/")
    return f"{name}:{version}"


def _checksum_message(error: Exception) -> str:
    found = re.search(
        r"Artifact (\S+), downloaded to .*Expected: UrlInfo\((.*)\)\s*\* Got: UrlInfo\((.*)\)", str(error), re.S
    )
    if found is None:
        return _one_line(error)
    url, expected, got = found.groups()
    return (
        f"{url} is not what TFDS registered: expected {_one_line(expected)}, got {_one_line(got)}; run again if it was "
        "damaged on its way, update TFDS if its publisher has changed it"
    )


def _failure(error: Exception, log: str) -> str:
    """Returns what the code of a data set failed at."""
    if isinstance(error, MillstreamError):
        return str(error)
    words = _one_line(error)
    if words.startswith("Manual directory"):
        return f"has to be downloaded by hand: {words}"
    return f"its own code failed: {type(error).__name__}: {words}; its traceback is in {log}"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {_one_line(error)}"


def _one_line(words: object) -> str:
    """Returns a text in one line, cut where TFDS goes on to show a whole example."""
    line = " ".join(str(words).split())
    return line if len(line) <= 600 else f"{line[:300]} ... {line[-300:]}"
