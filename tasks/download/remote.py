"""Remote: the files that a URL names, and their bytes from any place on."""

import base64
import http.client
import netrc
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import fsspec

from tasks.download.archive import safe_name
from tasks.download.listing import is_junk
from tasks.errors import ConfigError, DataError
from tasks.secrets import hide_secrets

TIMEOUT_SECONDS = 60.0  # without a byte
_EXTRAS = {"s3": "s3", "gs": "gs"}  # what to install for a scheme: an extra of ours
_SCHEMES = ("https", "http", "s3", "gs", "file")
_MAGIC = re.compile(r"[*?\[]")
# Refusals that may pass by the next try.
_PASSING = {408, 416, 425, 429}


class Stream(Protocol):
    """Bytes that arrive."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Opened:
    """A remote file that is being read."""

    stream: Stream
    start: int
    """Where the stream begins: where it was asked to, or 0."""
    size_bytes: int | None
    """Of the whole file; None: the server does not say."""
    version: str | None
    """Differs if the content differs; None: the server does not say."""


class Remote(Protocol):
    """What a URL names."""

    names: tuple[str, ...]
    """The files: safe paths below the folder, or the name of the one."""

    def open(self, name: str, *, start: int, version: str | None) -> AbstractContextManager[Opened]:
        """Returns the file from a place on, if its version is still the same; else from the beginning."""


def connect(url: str) -> Remote:
    """Returns what a URL names: a file by http and https, a file, a folder or a glob by the others.

    Raises ConfigError for a scheme that is not known or whose package is not installed, DataError if there is no file.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        raise ConfigError(
            f"data.source.path={hide_secrets(url)}: must begin with one of {', '.join(_SCHEMES)}, then ://"
        )
    return _Http(url) if scheme.startswith("http") else _Listed(url, scheme)


def is_final(error: Exception) -> bool:
    """Returns whether a file is not there or not ours to read, so that another try would fail too."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in _PASSING
    return isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError)


def is_of_the_network(error: Exception) -> bool:
    """Returns whether an error came from the other side or the way to it."""
    module = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError | http.client.HTTPException) or module in {"aiohttp", "botocore", "gcsfs", "s3fs"}


class _Http:
    # The standard library's client, because it hands out all that arrived before a connection was cut.

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.names: tuple[str, ...] = (safe_name(unquote(parts.path).rpartition("/")[2], hide_secrets(url)) or "data",)
        path = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self._url = urlunsplit((parts.scheme, parts.netloc, path, quote(parts.query, safe="/?%:@!$&'()*+,;=~[]"), ""))
        self._login = _login(parts.hostname or "")

    @contextmanager
    def open(self, name: str, *, start: int, version: str | None) -> Iterator[Opened]:
        request = urllib.request.Request(self._url, headers={"Accept-Encoding": "identity"})  # noqa: S310 - http only
        if start:
            request.add_header("Range", f"bytes={start}-")
            if version is not None:
                request.add_header("If-Range", version)
        if self._login is not None:  # and to no host that this one redirects to
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(self._login.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding not in ("", "identity") and not (encoding.endswith("gzip") and name.endswith((".gz", ".tgz"))):
                raise DataError(
                    f"{hide_secrets(self._url)}: is sent as {encoding}, though that was declined; fetch it by hand"
                )
            etag = response.headers.get("ETag", "W/")
            found = response.headers.get("Last-Modified") if etag.startswith("W/") else etag
            size = response.length
            part = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if response.status == http.HTTPStatus.PARTIAL_CONTENT:
                if part is None or int(part[1]) != start or found != version:
                    raise ConnectionError("the server sent another part than it was asked for")
                size = int(part[2])
            yield Opened(_Chunks(response), start if part else 0, size, found)


def _login(host: str) -> str | None:
    """Returns 'user:password' for a host from $NETRC or ~/.netrc, as curl and pip do; a `default` entry is not used."""
    file = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        found = netrc.netrc(file).hosts.get(host)
    except FileNotFoundError:
        return None
    except netrc.NetrcParseError as error:  # whose message may hold a password
        raise ConfigError(f"{file}, line {error.lineno}: no valid netrc; correct it") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); correct its permissions") from None
    return None if found is None else f"{found[0]}:{found[2]}"


class _Chunks:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def read(self, size: int) -> bytes:
        return self._response.read1(size)  # what is there, so that nothing is lost with the connection


class _Listed:
    def __init__(self, url: str, scheme: str) -> None:
        try:
            self._system, place = fsspec.url_to_fs(url)
        except ImportError as error:
            raise ConfigError(
                f"data.source.path={hide_secrets(url)}: {scheme}:// needs another package; install it with "
                f"pip install 'millstream[{_EXTRAS.get(scheme, scheme)}]'"
            ) from error
        self._paths = dict(sorted(self._find(place, hide_secrets(url))))
        self.names = tuple(self._paths)

    @contextmanager
    def open(self, name: str, *, start: int, version: str | None) -> Iterator[Opened]:
        path = self._paths[name]
        size, found = self._look(path)
        start = start if found == version else 0
        with self._system.open(path, "rb") as stream:
            stream.seek(start)
            yield Opened(stream, start, size, found)
        if self._look(path) != (size, found):
            raise ConnectionError("it changed while it was fetched")

    def _find(self, place: str, where: str) -> Iterator[tuple[str, str]]:
        """Yields name and path of each file."""
        magic = _MAGIC.search(place)
        if self._system.isfile(place):
            yield safe_name(place.rpartition("/")[2], where), place
            return
        if magic is None:
            folder, paths = place.rstrip("/"), self._system.find(place)
        else:
            folder = place[: magic.start()].rpartition("/")[0]
            paths = {path for found in self._system.glob(place) for path in self._system.find(found)}
        names = {path: safe_name(path.removeprefix(folder).lstrip("/"), where) for path in paths}
        selected = [(name, path) for path, name in names.items() if not any(map(is_junk, name.split("/")))]
        if not selected:
            raise DataError(f"data.source.path={where}: holds no files; correct it")
        if len(selected) != len({name for name, _ in selected}):
            raise DataError(f"data.source.path={where}: holds two files whose names are one here")
        yield from selected

    def _look(self, path: str) -> tuple[int, str | None]:
        self._system.invalidate_cache()
        info = self._system.info(path)
        kept = {
            key: str(info[key]) for key in ("ETag", "etag", "generation", "LastModified", "mtime", "ino") if key in info
        }
        return info["size"], str(sorted(kept.items())) if kept else None
