"""TextFolder: the source of class folders of text files."""

import codecs
from collections.abc import Iterator, Sequence
from pathlib import Path

from tasks.config import DataConfig
from tasks.errors import ConfigError
from tasks.prepare.folders import FolderPlan, batches, empty_folders, open_file, plan_folders
from tasks.prepare.manifest import Feature
from tasks.prepare.remarks import Remarks
from tasks.prepare.source import Batch, Part, Source, SourceSchema
from tasks.sources import TextFolderSource

NAME = "text"
_MARK = "\ufeff"  # the byte order mark, decoded
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def open_text_folder(config: DataConfig, directory: Path, files: Sequence[str], part: Part | None = None) -> Source:
    """Returns the texts of `files`, which lie below `directory`, or of a part of them as a source, in their order.

    One feature, `text`, in UTF-8. Raises what `plan_folders` does, ConfigError if the encoding is unknown; `read`
    raises DataError if a file is unreadable. The notes are complete once it has read all.
    """
    source = config.source
    assert isinstance(source, TextFolderSource)
    try:
        b"a".decode(source.encoding)
    except UnicodeError:
        pass  # a whole character may need more than a byte
    except (LookupError, ValueError) as error:
        raise ConfigError(
            f"data.source.encoding={source.encoding!r}: {error}; give one of Python's, such as utf-8"
        ) from None
    plan = plan_folders(files, config, empty=empty_folders(directory, files, config))
    return _TextFolder(source, directory, plan.only(part))


def decode_text(data: bytes, encoding: str) -> str:
    """Returns the text of a whole file, newlines as they are; a byte order mark, if any, is its first character.

    Raises ValueError with the reason, as the end of a sentence, if it is empty or not text in that encoding.
    """
    try:
        text = data.decode(encoding)
        text.encode()
    except UnicodeDecodeError as error:
        other = next((f", but begins as {name} does" for mark, name in _MARKS.items() if data.startswith(mark)), "")
        position = f"byte {error.start} is 0x{error.object[error.start]:02x}"
        raise ValueError(f"is not in {encoding} ({position}: {error.reason}){other}") from None
    except UnicodeError as error:
        raise ValueError(f"is not in {encoding} ({error})") from None
    if text in {"", _MARK}:
        raise ValueError("is empty")
    if "\0" in text:
        # UTF-16 read as UTF-8 is every other character NUL, and no error.
        place = text.index("\0")
        raise ValueError(
            f"is no text in {encoding} (character {place} is NUL): binary, or of another encoding, such as utf-16"
        )
    return text


class _TextFolder:
    """The source; `notes` are those of the plan, and then what was found in the texts."""

    def __init__(self, source: TextFolderSource, directory: Path, plan: FolderPlan) -> None:
        self._source, self._directory, self._plan = source, directory, plan
        self.schema = SourceSchema({NAME: Feature.of("text")}, (NAME,), plan.label_map)
        self.notes = plan.notes

    def read(self) -> Iterator[Batch]:
        """Yields the texts, about 16 MB of them at once."""
        remarks = Remarks("file")
        yield from batches(self._plan, NAME, self._texts(remarks))
        self.notes = self._plan.notes + remarks.notes()

    def _texts(self, remarks: Remarks) -> Iterator[bytes | str]:
        """Yields the UTF-8 bytes of each usable file, or why there are none."""
        limit = self._source.max_size
        for planned in self._plan.files:
            if planned.bad is not None:
                continue
            with open_file(self._directory / planned.path) as file:
                data = file.read(limit.size_bytes + 1)
            if len(data) > limit.size_bytes:
                yield f"has more than data.source.max_size={limit}"
                continue
            try:
                text = decode_text(data, self._source.encoding)
            except ValueError as error:
                yield str(error)
                continue
            if text.startswith(_MARK):
                remarks.add("with a byte order mark: left out of the text", planned.path)
            yield text.removeprefix(_MARK).encode()
