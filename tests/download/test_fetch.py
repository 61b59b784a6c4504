"""Fetch: whatever the server does, the bytes are right or one sentence says why not."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.config import DataConfig
from tasks.download import fetch as module
from tasks.download.download import download, source_digest
from tasks.download.record import RawData
from tasks.errors import ConfigError, DataError
from tasks.files import COMPLETED, digest_bytes, digest_json, verify
from tests.download.http_server import Handler, Server, running

DATA = bytes(range(256)) * 1200  # 307,200 bytes: more than the sockets hold back


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running(DATA) as server:
        yield server


def config(url: str, **fields: str) -> DataConfig:
    return DataConfig.model_validate({"source": {"kind": "table", "path": url, "target": "y", **fields}})


def fetched(raw: RawData, name: str = "x.csv") -> bytes:
    verify(raw.directory)
    assert sorted(file.name for file in raw.directory.iterdir()) == sorted([COMPLETED, name])
    assert raw.digest == digest_json({name: digest_bytes((raw.directory / name).read_bytes())})
    return (raw.directory / name).read_bytes()


def part(workspace: Path) -> Path | None:
    return next((workspace / "raw" / ".fetching").rglob("*.part"), None)


def test_file_is_fetched_once_and_then_needs_no_network(server: Server, tmp_path: Path) -> None:
    source = config(server.url("x.csv"))
    raw = download(source, tmp_path)
    assert fetched(raw) == DATA
    assert (raw.fetched, raw.pattern, raw.num_files, raw.size_bytes, raw.reused) == (True, None, 1, len(DATA), False)
    server.statuses = [500] * 100
    assert download(source, tmp_path) == raw.model_copy(update={"reused": True})
    assert source_digest(source, tmp_path) == raw.digest
    assert len(server.requests) == 1
    assert list((tmp_path / "raw" / ".fetching").iterdir()) == []


def test_digest_of_what_was_not_fetched_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not fetched yet; fetch it with `millstream download`"):
        source_digest(config(server.url("x.csv")), tmp_path)
    assert server.requests == []


def test_cut_download_goes_on_where_it_stopped(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.cuts = [100_000, 100_001]
    with caplog.at_level(logging.INFO, "millstream"):
        assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA
    assert server.asked() == ["", "bytes=100000-", "bytes=200001-"]
    assert "x.csv: cut after 100000 of 307200 bytes; try 2 of 8 in 0.001 s" in caplog.text
    assert "x.csv: going on after 200001 bytes" in caplog.text


@pytest.mark.parametrize("field", ["ranges", "etag"])
def test_server_that_cannot_go_on_begins_anew(server: Server, tmp_path: Path, field: str) -> None:
    setattr(server, field, False if field == "ranges" else "")
    server.cuts = [100_000]
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA


def test_without_a_version_only_a_sha256_lets_it_go_on(server: Server, tmp_path: Path) -> None:
    server.etag, server.cuts = "", [100_000]
    assert fetched(download(config(server.url("x.csv"), sha256=digest_bytes(DATA)), tmp_path)) == DATA
    assert server.asked() == ["", "bytes=100000-"]


def test_time_of_change_is_a_version(server: Server, tmp_path: Path) -> None:
    server.etag, server.last_modified, server.cuts = 'W/"weak"', "Mon, 01 Jan 2024 00:00:00 GMT", [100_000]
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA
    assert server.asked() == ["", "bytes=100000-"]


def test_file_that_changed_between_two_tries_is_fetched_from_the_start(server: Server, tmp_path: Path) -> None:
    server.statuses, server.cuts = [200, *[500] * (module.TRIES - 1)], [100_000]
    with pytest.raises(DataError, match="not fetched in 8 tries"):
        download(config(server.url("x.csv")), tmp_path)
    server.data, server.etag = DATA[::-1], '"two"'
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA[::-1]


def test_server_that_ignores_if_range_cannot_mix_two_files(server: Server, tmp_path: Path) -> None:
    server.cuts = [100_000]
    handler_start = Handler._start

    def careless(handler: Handler) -> int:
        if "Range" in handler.headers and len(server.requests) == 2:
            server.data, server.etag = DATA[::-1], '"two"'
            del handler.headers["If-Range"]
        return handler_start(handler)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Handler, "_start", careless)
        assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA[::-1]


def test_next_command_goes_on_with_what_the_last_one_left(server: Server, tmp_path: Path) -> None:
    source = config(server.url("x.csv"))
    server.cuts, server.statuses = [100_000], [200, *[503] * (module.TRIES - 1)]
    message = (
        r"x\.csv: not fetched in 8 tries, at last because of: HTTP Error 503: Service Unavailable; what is here is kept"
    )
    with pytest.raises(DataError, match=message):
        download(source, tmp_path)
    kept = part(tmp_path)
    assert kept is not None
    assert kept.read_bytes() == DATA[:100_000]
    server.requests.clear()
    assert fetched(download(source, tmp_path)) == DATA
    assert server.asked() == ["bytes=100000-"]


def test_many_cuts_are_no_failure_as_long_as_each_try_brings_something(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROGRESS_BYTES", 10_000)
    server.cuts = [10_000] * 20
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA
    assert len(server.requests) == 21


def test_length_that_is_too_long_is_an_error(server: Server, tmp_path: Path) -> None:
    server.lie = 7
    with pytest.raises(
        DataError, match=r"not fetched in 8 tries, at last because of: (cut after 307200 of 307207|the se)"
    ):
        download(config(server.url("x.csv")), tmp_path)
    assert not list((tmp_path / "raw").rglob(COMPLETED))


def test_length_that_is_too_short_is_seen_by_the_sha256(server: Server, tmp_path: Path) -> None:
    server.lie = -7
    right, found = digest_bytes(DATA), digest_bytes(DATA[:-7])
    with pytest.raises(DataError, match=rf"x\.csv: has sha256 {found}, not {right} as data\.source\.sha256 says"):
        download(config(server.url("x.csv"), sha256=right), tmp_path)
    assert part(tmp_path) is None
    server.lie = 0
    assert fetched(download(config(server.url("x.csv"), sha256=right), tmp_path)) == DATA


def test_chunked_file_is_whole_or_fetched_again(server: Server, tmp_path: Path) -> None:
    server.chunked, server.cuts = True, [100_000]
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA


def test_file_of_unknown_length_is_taken_with_a_warning(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.close_delimited = True
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA
    assert "the server names no length, so that only data.source.sha256 would show a cut" in caplog.text


def test_empty_file_is_a_file(server: Server, tmp_path: Path) -> None:
    server.data = b""
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == b""


def test_server_that_recovers_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.statuses = [500, 429, 503]
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_refusal_is_not_asked_twice(server: Server, tmp_path: Path, status: int) -> None:
    server.statuses = [status]
    with pytest.raises(DataError, match=rf"x\.csv: HTTP Error {status}: .*; correct data\.source\.path or the cred"):
        download(config(server.url("x.csv")), tmp_path)
    assert len(server.requests) == 1


def test_server_that_is_gone_is_an_error(tmp_path: Path, server: Server) -> None:
    url = server.url("x.csv")
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"not fetched in 8 tries, at last because of: .*refused"):
        download(config(url), tmp_path)


def test_server_that_falls_silent_is_given_up(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.download.remote.TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(module, "TRIES", 2)
    server.pause_seconds = 0.4
    with pytest.raises(DataError, match="not fetched in 2 tries, at last because of: timed out"):
        download(config(server.url("x.csv")), tmp_path)


def test_slow_server_is_waited_for_and_said_how_long(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.progress.LINE_SECONDS", 0.1)
    server.pause_seconds = 0.1
    with caplog.at_level(logging.INFO, "millstream"):
        assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA
    assert re.search(r"download: x\.csv: 0\.\d of 0\.3 MB, \d\.\d MB/s, \d s left", caplog.text)


def test_compression_on_the_way_is_refused_but_a_compressed_file_is_none(server: Server, tmp_path: Path) -> None:
    server.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(DataError, match=r"x\.csv: is sent as gzip, though that was declined"):
        download(config(server.url("x.csv")), tmp_path)
    assert len(server.requests) == 1
    with pytest.raises(DataError, match=r"x\.csv\.gz: damaged or no such archive"):  # it is unpacked as it came
        download(config(server.url("x.csv.gz")), tmp_path)


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "netrc"
    file.write_text("machine 127.0.0.1 login ann password geh@im\ndefault login eve password other\n")
    monkeypatch.setenv("NETRC", str(file))


@pytest.mark.usefixtures("login")
def test_password_goes_to_the_server_but_into_no_log_and_no_error(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.url("x.csv?session=geheim")
    server.cuts = [1000]
    with caplog.at_level(logging.DEBUG):
        assert fetched(download(config(url), tmp_path)) == DATA
    assert {(asked["path"], asked["Authorization"]) for asked in server.requests} == {
        ("/x.csv?session=geheim", "Basic YW5uOmdlaEBpbQ==")
    }
    assert "try 2 of 8" in caplog.text
    server.statuses = [404, *[500] * 8]
    for error in ("404", "500"):
        with pytest.raises(DataError, match=error) as raised:
            download(config(url.replace("x.csv", "y.csv")), tmp_path)
        assert raised.value.__suppress_context__ or raised.value.__context__ is None
        caplog.records.clear()
        assert not re.search("geh|ann", str(raised.value) + caplog.text)


@pytest.mark.usefixtures("login")
def test_password_goes_to_no_other_host(server: Server, tmp_path: Path) -> None:
    server.statuses, server.headers = [302], {"Location": f"http://localhost:{server.server_port}/z"}
    assert fetched(download(config(server.url("x.csv")), tmp_path)) == DATA
    assert ["Authorization" in asked for asked in server.requests] == [True, False]


def test_invalid_netrc_is_refused_without_repeating_its_content(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("\npassword geheim\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ConfigError, match="netrc, line 2: no valid netrc") as raised:
        download(config(server.url("x.csv")), tmp_path)
    assert "geheim" not in str(raised.value)
    assert server.requests == []


def test_name_with_blanks_and_umlauts_is_fetched(server: Server, tmp_path: Path) -> None:
    assert fetched(download(config(server.url("a%20b ü.csv")), tmp_path), "a b ü.csv") == DATA
    assert server.requests[0]["path"] == "/a%20b%20%C3%BC.csv"


def test_damaged_copy_is_fetched_again_and_that_is_said(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raw = download(config(server.url("x.csv")), tmp_path)
    for damage in (lambda file: file.write_bytes(DATA[:5]), Path.unlink, lambda file: (file.parent / "y").touch()):
        caplog.clear()
        damage(raw.directory / "x.csv")
        assert not download(config(server.url("x.csv")), tmp_path).reused
        assert "fetching it again" in caplog.text
        assert fetched(raw) == DATA
