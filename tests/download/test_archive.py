"""Archive: what it holds comes out exactly, and nothing that it should not do is done."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.config import DataConfig
from tasks.download import archive as module
from tasks.download.archive import TooLarge, archive_kind, safe_name, unpack
from tasks.download.download import download
from tasks.errors import DataError
from tasks.files import COMPLETED, digest_bytes
from tasks.size import Size

FILES = {"a/1.txt": b"one", "a/2.txt": b"", "b.bin": b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(3000))}
LIMIT = Size("1 MB")

Build = Callable[[dict[str, bytes]], bytes]


def make_zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as members:
        for name, data in files.items():
            members.writestr(name, data)
    return buffer.getvalue()


def make_tar(files: dict[str, bytes], *more: tarfile.TarInfo, mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as members:  # type: ignore[call-overload]
        for name, data in files.items():
            members.addfile(entry(name, size=len(data), mode=0o4777), io.BytesIO(data))
        for member in more:
            members.addfile(member)
    return buffer.getvalue()


def entry(name: str, **fields: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(member, field, value)
    return member


BUILDS: dict[str, Build] = {
    "x.zip": make_zip,
    "x.tar": make_tar,
    "x.tar.gz": lambda files: make_tar(files, mode="w:gz"),
    "x.TGZ": lambda files: make_tar(files, mode="w:gz"),
    "x.tar.bz2": lambda files: make_tar(files, mode="w:bz2"),
    "x.tar.xz": lambda files: make_tar(files, mode="w:xz"),
}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def unpacked(tmp_path: Path, name: str, data: bytes, limit: Size = LIMIT) -> dict[str, bytes]:
    (tmp_path / "archive").write_bytes(data)
    directory = tmp_path / "out"
    digests = unpack(tmp_path / "archive", name, directory, limit=limit)
    found = {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    assert digests == {file: digest_bytes(data) for file, data in found.items()}
    return found


@pytest.mark.parametrize("name", BUILDS)
def test_archive_comes_out_as_it_went_in(tmp_path: Path, name: str) -> None:
    assert unpacked(tmp_path, name, BUILDS[name](FILES)) == FILES


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_file_comes_out_under_its_own_name(tmp_path: Path, suffix: str) -> None:
    assert unpacked(tmp_path, f"x.csv.{suffix}", COMPRESS[suffix](b"a,b\n")) == {"x.csv": b"a,b\n"}


def test_names_say_what_an_archive_is() -> None:
    kinds = {"a.zip": "zip", "a.TAR": "tar", "a.tbz2": "tar", "a.txt.xz": "compressed", "a.csv": None, "zip": None}
    assert {name: archive_kind(name) for name in kinds} == kinds


def test_rights_are_not_restored(tmp_path: Path) -> None:
    unpacked(tmp_path, "x.tar", make_tar({"run.sh": b"x"}))
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o7111 == 0


OUTSIDE = ["../x", "a/../../x", "/x", "C:\\x", "C:x", "..\\x", "a\\..\\..\\x", "..", "a/b/../../../x", "x\x00.txt"]


@pytest.mark.parametrize("evil", OUTSIDE)
@pytest.mark.parametrize("name", ["x.zip", "x.tar"])
def test_name_that_leads_out_is_refused(tmp_path: Path, name: str, evil: str) -> None:
    if name == "x.zip":
        data = make_zip({"ok": b"1", "N" * len(evil): b"evil"}).replace(b"N" * len(evil), evil.encode())
    else:
        data = make_tar({"ok": b"1"}, entry("short", pax_headers={"path": evil}))
    with pytest.raises(DataError, match=r"holds the name .* which leads out of its folder"):
        unpacked(tmp_path, name, data)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"archive", "ok"}


@pytest.mark.parametrize(
    ("type_", "target"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "."),
        (tarfile.LNKTYPE, "a/1.txt"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_links_and_devices_are_refused(tmp_path: Path, type_: bytes, target: str) -> None:
    data = make_tar(FILES, entry("link", type=type_, linkname=target))
    with pytest.raises(DataError, match=r"x\.tar: 'link' is a link or a device, which is not unpacked"):
        unpacked(tmp_path, "x.tar", data)
    assert not os.path.lexists(tmp_path / "out" / "link")


def test_link_to_here_and_a_path_through_it_write_nothing_outside(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as members:
        members.addfile(entry("here", type=tarfile.SYMTYPE, linkname="."))
        members.addfile(entry("here/up", type=tarfile.SYMTYPE, linkname=".."))
        members.addfile(entry("here/up/evil", size=4), io.BytesIO(b"evil"))
    with pytest.raises(DataError, match="'here' is a link"):
        unpacked(tmp_path, "x.tar", buffer.getvalue())
    assert not list(tmp_path.rglob("evil"))


def test_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as members:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        members.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="'link' is a link or a device"):
        unpacked(tmp_path, "x.zip", buffer.getvalue())


def test_encrypted_zip_is_refused(tmp_path: Path) -> None:
    data = bytearray(make_zip({"secret": b"x"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    with pytest.raises(DataError, match="'secret' is encrypted"):
        unpacked(tmp_path, "x.zip", bytes(data))


@pytest.mark.parametrize("names", [("NNN", "NNN"), ("NNN", "./NNN"), ("NNN", "NNN/x"), ("NNN/x", "NNN")])
@pytest.mark.parametrize("name", ["x.zip", "x.tar"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_place_are_refused(tmp_path: Path, name: str, names: tuple[str, str]) -> None:
    buffer = io.BytesIO()
    if name == "x.zip":
        with zipfile.ZipFile(buffer, "w") as members:
            for each in names:
                members.writestr(each, each)
    else:
        with tarfile.open(fileobj=buffer, mode="w") as members:
            for each in names:
                members.addfile(entry(each, size=1), io.BytesIO(b"x"))
    with pytest.raises(DataError, match=r"holds '.*NNN.*' (twice, or as file and folder|below a name that is a file)"):
        unpacked(tmp_path, name, buffer.getvalue())


@pytest.mark.parametrize("name", BUILDS)
def test_limit_counts_what_is_written(tmp_path: Path, name: str) -> None:
    data = BUILDS[name]({"a": b"x" * 600, "b": b"y" * 400})
    assert len(unpacked(tmp_path, name, data, Size("1000 B"))) == 2
    (tmp_path / "out").rename(tmp_path / "before")
    with pytest.raises(TooLarge, match=r"unpacks to more than data\.source\.max_unpacked=999 B; raise it if it may"):
        unpacked(tmp_path, name, data, Size("999 B"))


def test_size_in_a_zip_header_is_not_believed(tmp_path: Path) -> None:
    data = bytearray(make_zip({"bomb": bytes(1_000_000)}))
    size = struct.pack("<I", 1_000_000)
    assert data.count(size) == 2
    with pytest.raises(DataError, match="damaged"):
        unpacked(tmp_path, "x.zip", bytes(data).replace(size, struct.pack("<I", 10)))
    assert (tmp_path / "out" / "bomb").stat().st_size <= 10


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.tar.xz", "x.gz", "x.bz2", "x.xz"])
def test_bomb_is_stopped_in_proportion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(module, "RATIO_FREE_BYTES", 100_000)
    monkeypatch.setattr(module, "MAX_RATIO", 100)
    bomb = bytes(5_000_000)
    data = BUILDS[name]({"bomb": bomb}) if name in BUILDS else COMPRESS[name[2:]](bomb)
    with pytest.raises(TooLarge, match="unpacks to more than 100 times its size, as no honest archive does"):
        unpacked(tmp_path, name, data, Size("1 GB"))


def test_bomb_behind_the_end_of_a_tar_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match=r"max_unpacked=1 MB"):
        unpacked(tmp_path, "x.tar.gz", gzip.compress(make_tar(FILES) + bytes(3_000_000)))


@pytest.mark.parametrize("name", ["x.zip", "x.tar"])
def test_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 2)
    with pytest.raises(DataError, match="more than 2 files"):
        unpacked(tmp_path, name, BUILDS[name](FILES))


def test_tar_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    header = entry("x", type=tarfile.GNUTYPE_LONGNAME, size=2**33).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(DataError, match=r"damaged or no such archive \(a header of 85899\d+ bytes\)"):
        unpacked(tmp_path, "x.tar", header + bytes(10_240))


@pytest.mark.parametrize("size", [-512, -1024, -(2**40)])
def test_negative_size_ends_with_an_error(tmp_path: Path, size: int) -> None:
    first, second = (entry(name, size=0).tobuf() for name in ("a", "b"))
    header = bytearray(entry("c", size=0).tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (size % 2**96).to_bytes(12, "big")
    checksum = 256 + sum(header[:148]) + sum(header[156:])
    header[148:156] = b"%06o\x00 " % checksum
    with pytest.raises(DataError):
        unpacked(tmp_path, "x.tar", first + second + bytes(header) + bytes(10_240))


@pytest.mark.parametrize("name", [*BUILDS, "x.gz", "x.bz2", "x.xz"])
def test_cut_archive_is_an_error_wherever_it_is_cut(tmp_path: Path, name: str) -> None:
    data = BUILDS[name](FILES) if name in BUILDS else COMPRESS[name[2:]](FILES["b.bin"])
    end = len(make_tar(FILES).rstrip(b"\0")) if name == "x.tar" else len(data)  # the rest is its end, many times over
    for place in [0, 1, 100, 512, 1024, 1536, len(data) // 2, end - 1]:
        (tmp_path / str(place)).mkdir()
        with pytest.raises(DataError, match="damaged or no such archive"):
            unpacked(tmp_path / str(place), name, data[:place])


@pytest.mark.parametrize("name", BUILDS)
def test_something_else_under_the_name_of_an_archive_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"{name}: damaged or no such archive"):
        unpacked(tmp_path, name, b"<html>404 not found</html>" * 100)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(BUILDS)),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=3),
)
def test_flipped_bytes_give_files_or_an_error_and_nothing_outside(
    tmp_path_factory: pytest.TempPathFactory, name: str, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(BUILDS[name]({"a/1.txt": b"one" * 200, "b.bin": bytes(range(256))}))
    for place, change in flips:
        data[place % len(data)] ^= change
    tmp_path = tmp_path_factory.mktemp("flip")
    with suppress(DataError):
        unpacked(tmp_path, name, bytes(data))
    assert {path.name for path in tmp_path.iterdir()} <= {"archive", "out"}


@given(st.text())
def test_safe_name_stays_below_any_folder(name: str) -> None:
    try:
        safe = safe_name(name, "x.zip")
    except DataError:
        return
    assert os.path.normpath(os.path.join("/folder", safe)).startswith("/folder")


def source(path: Path, **fields: str) -> DataConfig:
    return DataConfig.model_validate({"source": {"kind": "text_folder", "path": f"file://{path}", **fields}})


def test_fetched_archive_is_unpacked_without_its_wrapping_and_its_junk(tmp_path: Path) -> None:
    files = {"set/pos/1.txt": b"1", "set/neg/2.txt": b"2", "set/pos/.DS_Store": b"", "__MACOSX/set/pos/._1.txt": b""}
    for name, build in BUILDS.items():
        (tmp_path / name).write_bytes(build(files))
        raw = download(source(tmp_path / name), tmp_path / "workspace")
        below = {str(file.relative_to(raw.directory)) for file in raw.directory.rglob("*") if file.is_file()}
        assert below == {"neg/2.txt", "pos/1.txt", COMPLETED}
        assert download(source(tmp_path / name), tmp_path / "workspace") == raw.model_copy(update={"reused": True})


def test_folder_that_is_a_column_stays(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(make_zip({"year=2024/1.csv": b"1"}))
    raw = download(source(tmp_path / "x.zip"), tmp_path / "workspace")
    assert (raw.directory / "year=2024" / "1.csv").read_bytes() == b"1"


def test_larger_limit_needs_no_second_fetch_but_a_damaged_archive_does(tmp_path: Path) -> None:
    archive, workspace = tmp_path / "x.zip", tmp_path / "workspace"
    archive.write_bytes(make_zip(FILES))
    with pytest.raises(TooLarge, match="max_unpacked=10 KB"):
        download(source(archive, max_unpacked="10 KB"), workspace)
    archive.unlink()
    with pytest.raises(DataError, match="holds no files"):
        download(source(archive), workspace)
    archive.write_bytes(make_zip(FILES)[:-30])
    with pytest.raises(DataError, match="damaged or no such archive"):
        download(source(tmp_path / "x.zip", sha256=digest_bytes(archive.read_bytes())), workspace)
    assert not list((workspace / "raw").rglob(COMPLETED))
