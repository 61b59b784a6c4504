"""Archive: files out of a .zip, a .tar or a compressed file, never outside their folder and never without a limit."""

import bz2
import errno
import gzip
import hashlib
import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal

from tasks.errors import DataError
from tasks.progress import progress
from tasks.size import Size

MAX_FILES = 10_000_000
MAX_RATIO = 1000  # what an archive of pictures, tables or text is far below, and a bomb far above
RATIO_FREE_BYTES = 64_000_000  # so much may come out of any archive
_MAX_DEPTH = 100
_MAX_NAME_BYTES = 255
_CHUNK_BYTES = 1 << 20

# What the standard library raises of bytes that are no such archive.
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    UnicodeError,
)
_OPENERS: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),  # type: ignore[dict-item, return-value]
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}

Kind = Literal["zip", "tar", "compressed"]


class TooLarge(DataError):
    """An archive unpacks to more than it may."""


def archive_kind(name: str) -> Kind | None:
    """Returns what a file is by the end of its name; None: no archive."""
    if re.search(r"\.zip$", name, re.IGNORECASE):
        return "zip"
    if re.search(r"\.(tar(\.(gz|bz2|xz))?|tgz|tbz2?|txz)$", name, re.IGNORECASE):
        return "tar"
    return "compressed" if re.search(r"\.(gz|bz2|xz)$", name, re.IGNORECASE) else None


def unpack(archive: Path, name: str, directory: Path, *, limit: Size) -> dict[str, str]:
    """Returns the sha256 of each file of an archive called `name`, by its path in `directory`, where it now lies.

    Links, devices, encrypted files, two files of one name and names that lead out of the directory are refused; rights
    and owners are not restored. Raises DataError for these and for a damaged archive, TooLarge (a DataError) if what is
    really written grows over `limit` or out of proportion. Then the directory holds a part and is to be deleted.
    """
    unpackers = {"zip": _unpack_zip, "tar": _unpack_tar, "compressed": _unpack_compressed}
    kind = archive_kind(name)
    assert kind is not None, name
    with progress(f"download: unpacking {name}") as advance:
        output = _Output(name, directory, archive.stat().st_size, limit, lambda done: advance(done, None))
        try:
            unpackers[kind](archive, name, output)
        except _DAMAGED as error:
            raise _damaged(name, error) from error
        except OSError as error:
            # A decompressor's word on its input, or a place in the archive that cannot be; all else is the disk's.
            if error.errno not in (None, errno.EINVAL):
                raise
            raise _damaged(name, error) from error
    return output.sha256


def safe_name(name: str, where: str) -> str:
    """Returns a file's name in an archive or a bucket as a path that stays below any folder; '' is that folder itself.

    Raises DataError, which begins with `where`, if it is absolute, leads upwards or is no name here.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    try:
        too_long = len(parts) > _MAX_DEPTH or any(len(part.encode()) > _MAX_NAME_BYTES for part in parts)
    except UnicodeEncodeError:
        raise DataError(f"{where}: holds the name {name!r}, which is not valid UTF-8; pack it again") from None
    if too_long or name.startswith("/") or ".." in parts or re.search(r"^[A-Za-z]:|[\\\x00]", name):
        raise DataError(
            f"{where}: holds the name {name[:200]!r}, which leads out of its folder or is no file name here"
        )
    return "/".join(parts)


class _Output:
    """The folder that is filled, and the count of what really went in."""

    def __init__(
        self, name: str, directory: Path, archive_bytes: int, limit: Size, advance: Callable[[int], None]
    ) -> None:
        self.sha256: dict[str, str] = {}
        self._name = name
        self._directory = directory
        self._limit = limit
        self._most = max(RATIO_FREE_BYTES, archive_bytes * MAX_RATIO)
        self._advance = advance
        self._written = 0

    def folder(self, name: str) -> None:
        self._make(self._directory / safe_name(name, self._name), name)

    def file(self, name: str, stream: IO[bytes]) -> None:
        relative = safe_name(name, self._name)
        file = self._directory / relative
        if not relative or len(self.sha256) >= MAX_FILES:
            raise DataError(f"{self._name}: holds a file without a name, or more than {MAX_FILES} files")
        self._make(file.parent, name)
        try:
            # Refuses a second one also where A and a are the same file.
            output = open(file, "xb")  # noqa: SIM115 - closed below
        except FileExistsError as error:
            raise DataError(f"{self._name}: holds {name!r} twice, or as file and folder; pack it again") from error
        digest = hashlib.sha256()
        with output:
            while chunk := stream.read(_CHUNK_BYTES):
                self.spend(len(chunk))
                digest.update(chunk)
                output.write(chunk)
        self.sha256[relative] = digest.hexdigest()

    def spend(self, num_bytes: int) -> None:
        self._written += num_bytes
        if self._written > self._limit.size_bytes:
            raise TooLarge(
                f"{self._name}: unpacks to more than data.source.max_unpacked={self._limit}; raise it if it may"
            )
        if self._written > self._most:
            raise TooLarge(f"{self._name}: unpacks to more than {MAX_RATIO} times its size, as no honest archive does")
        self._advance(self._written)

    def _make(self, folder: Path, name: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise DataError(f"{self._name}: holds {name!r} below a name that is a file; pack it again") from error


def _unpack_zip(archive: Path, name: str, output: _Output) -> None:
    with zipfile.ZipFile(archive) as members:
        for member in members.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(name, member.orig_filename, "a link or a device")
            if member.flag_bits & 1:
                raise _refused(name, member.orig_filename, "encrypted")
            if not member.filename:
                raise zipfile.BadZipFile("a file without a name")
            if member.is_dir():
                output.folder(member.orig_filename)
            else:
                with members.open(member) as stream:
                    output.file(member.orig_filename, stream)


def _unpack_tar(archive: Path, name: str, output: _Output) -> None:
    with open(archive, "rb") as file:
        start = file.read(6)
        file.seek(0)
        opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), None)
        stream = _Forward(file if opener is None else opener(file))
        with tarfile.open(fileobj=stream, mode="r:", encoding="utf-8") as members:  # type: ignore[call-overload]
            while (member := members.next()) is not None:
                if member.isdir():
                    output.folder(member.name)
                elif member.isreg() and member.size >= 0:
                    content = members.extractfile(member)
                    assert content is not None
                    with content:
                        output.file(member.name, content)
                else:
                    raise _refused(name, member.name, "a link or a device")
                members.members.clear()  # it keeps them all, and there may be millions
        # To tarfile, a cut between two files and a damaged header are ends like any other.
        if stream.last != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("its end is missing")
        stream.read(_CHUNK_BYTES)  # what fills its last record
        while rest := stream.read(_CHUNK_BYTES):  # to the checksum of the compression, though not for ever
            output.spend(len(rest))


def _unpack_compressed(archive: Path, name: str, output: _Output) -> None:
    openers: dict[str, Callable[[Path], Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
    stem, _, suffix = name.rpartition(".")
    if archive.stat().st_size == 0:  # to gzip that is a file of no bytes
        raise EOFError("it is empty")
    with openers[suffix.lower()](archive) as stream:
        output.file(stem, stream)


class _Forward:
    """The stream that tarfile reads: no forged size sends it backwards, no header is read that has gigabytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.last = b""

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _CHUNK_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self.last = self._stream.read(size)
        return self.last

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, position: int) -> None:
        if position < self._stream.tell():
            raise tarfile.ReadError("a negative size")
        self._stream.seek(position)


def _refused(archive: str, member: str, what: str) -> DataError:
    return DataError(f"{archive}: {member!r} is {what}, which is not unpacked; pack it again without")


def _damaged(archive: str, error: Exception) -> DataError:
    return DataError(f"{archive}: damaged or no such archive ({error}); fetch it again, or correct data.source.path")
