"""A TFDS data set comes over a real server with its checksums, once, and is read as it is."""

import hashlib
import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasks.config import DataConfig
from tasks.download import staging
from tasks.download.staging import stage, staging_digest
from tasks.errors import ConfigError, DataError
from tasks.files import read_receipts
from tasks.prepare.staged import open_staged
from tests.download.http_server import Server, running

pytestmark = pytest.mark.usefixtures("workers")

INDEX = """split,key,image,text,label,price,country,year,farm
train,a,red.png,rot,1,0.5,de,2001,Hof
train,b,red.jpg,süß,0,0.1,fr,2002,Ferme
train,c,red.bmp,,1,2,fr,2003,Ferme
test,d,red.png,blau,0,-1,de,2004,Hof
unlabelled,e,red.png,grün,-1,1,de,2005,Hof
"""
INPUTS = ["image", "text", "price", "grid", "from_country", "from_year"]


def image_bytes(kind: str) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (4, 3), (255, 0, 0)).save(data, kind)
    return data.getvalue()


@pytest.fixture(scope="session")
def archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("index.csv", INDEX)
        for suffix, kind in (("png", "png"), ("jpg", "jpeg"), ("bmp", "bmp")):
            file.writestr(f"red.{suffix}", image_bytes(kind))
    return data.getvalue()


@pytest.fixture
def server(archive, monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr(staging, "_NUM_RETRIES", 1)
    with running(archive) as server:
        yield server


@pytest.fixture
def package(server, archive, tmp_path) -> Path:
    """The folder of a copy of the builders' package whose registered URL is the server's."""
    folder = tmp_path / "code" / "tfds_builders_for_tests"
    shutil.copytree(Path(__file__).parent / "tfds_builders_for_tests", folder)
    url = server.url("fruit.zip")
    (folder / "url.txt").write_text(url)
    (folder / "checksums.tsv").write_text(f"{url}\t{len(archive)}\t{hashlib.sha256(archive).hexdigest()}\tfruit.zip\n")
    return folder


def fruit(package: Path, splits: dict | None = None, **source) -> DataConfig:
    wanted = {
        "kind": "tfds",
        "name": "fruit",
        "module": "tfds_builders_for_tests.fruit",
        "folder": str(package.parent),
        "inputs": INPUTS,
    }
    splits = splits or {"kind": "official", "validation": 0.25}
    return DataConfig.model_validate({"source": {**wanted, **source}, "splits": splits})


def test_a_data_set_is_downloaded_once_and_read_as_it_is(server, package, tmp_path):
    config = fruit(package)
    raw = stage(config, tmp_path)
    assert (raw.digest, raw.fetched, raw.reused) == (staging_digest(config), True, False)
    source = open_staged(config, raw.directory)
    assert source.schema.label_map == ("pear", "apple")
    kinds = {name: (one.kind, one.dtype, one.shape) for name, one in source.schema.features.items()}
    assert kinds == {
        "image": ("image", "string", (None, None, 3)),
        "text": ("text", "string", ()),
        "price": ("number", "float32", ()),
        "grid": ("tensor", "int64", (2, 2)),
        "from_country": ("category", "string", ()),
        "from_year": ("number", "int64", ()),
    }
    assert source.notes[0].startswith("fruit is fruit/ripe:1.0.0 in TFDS 4.")
    assert source.notes[1] == "the official split unlabelled with 1 example(s) is left out"
    (batch,) = source.read()
    assert (batch.rows.tolist(), batch.bad) == ([0, 1, 2, 3], ())
    # TFDS shuffles by a hash of the keys, once, when it prepares.
    assert [*batch.keys] == ["train:1", "train:2", "train:3", "test:1"]
    assert list(batch.split_by) == ["train", "train", "train", "test"]
    year = batch.columns["from_year"].tolist()
    assert sorted(year) == [2001, 2002, 2003, 2004]
    assert sorted(zip(year, batch.labels.tolist(), strict=True)) == [(2001, 1), (2002, 0), (2003, 1), (2004, 0)]
    order = np.argsort(year)
    assert batch.columns["price"][order].tolist() == [0.5, np.float32(0.1), 2, -1]
    assert [batch.columns["text"][at] for at in order] == [b"rot", "süß".encode(), b"", b"blau"]
    assert [batch.columns["from_country"][at] for at in order] == [b"de", b"fr", b"fr", b"de"]
    assert (batch.columns["grid"] == np.array(year)[:, None, None]).all()
    images = [batch.columns["image"][at] for at in order]
    assert images[:2] == [image_bytes("png"), image_bytes("jpeg")]  # their own bytes
    assert Image.open(io.BytesIO(images[2])).format == "PNG"
    assert np.asarray(Image.open(io.BytesIO(images[2]))).tolist() == [[[255, 0, 0]] * 4] * 3
    assert len(server.requests) == 1

    server.shutdown()  # TFDS's own copy does without the network, and gives the same bytes
    shutil.rmtree(raw.directory)
    again = stage(config, tmp_path)
    assert read_receipts(again.directory).keys() == {"schema.json", "examples-00000.parquet"}
    assert stage(config, tmp_path).reused
    other = stage(fruit(package, data_dir=str(tmp_path / "tfds")), tmp_path / "other")
    assert read_receipts(other.directory) == read_receipts(again.directory)


def test_an_example_without_a_label_is_bad_and_named(package, tmp_path):
    config = fruit(package, {"kind": "group", "column": "farm"}, inputs=["price"])
    source = open_staged(config, stage(config, tmp_path).directory)
    (batch,) = source.read()
    (bad,) = batch.bad
    assert (bad.path, bad.row, bad.column) == ("unlabelled", 1, "label")
    assert bad.reason == "is -1, not one of the 2 classes 0..1 (so marks TFDS an example without a label)"
    assert sorted(batch.split_by) == ["Ferme", "Ferme", "Hof", "Hof"]
    assert (
        source.notes[1] == "the official splits train, test, unlabelled are mixed, for data.splits.kind is not official"
    )


def test_a_download_that_is_cut_once_is_tried_again(server, package, archive, tmp_path):
    server.cuts = [len(archive) // 2]
    stage(fruit(package), tmp_path)
    assert len(server.requests) == 2


def test_a_download_that_is_always_cut_is_an_error(server, package, archive, tmp_path):
    server.cuts = [len(archive) // 2] * 9
    with pytest.raises(DataError, match=r"fruit: a download failed 2 times: .*run it again when the server answers"):
        stage(fruit(package), tmp_path)
    assert not list((tmp_path / "raw").glob("*.incomplete"))


def test_a_server_that_is_gone_is_an_error(server, package, tmp_path):
    server.server_close()
    with pytest.raises(DataError, match="a download failed 2 times: ConnectionError"):
        stage(fruit(package), tmp_path)


def test_a_server_that_says_nothing_is_an_error(server, package, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(staging, "_NUM_RETRIES", 0)
    server.silent = True
    with pytest.raises(DataError, match=r"a download failed 1 times: .*Read timed out"):
        stage(fruit(package), tmp_path)


def test_a_file_that_has_to_be_got_by_hand_is_said_where_to_put(package, tmp_path):
    message = (
        rf"by hand: Manual directory {tmp_path}/tfds/downloads/manual does not exist.*Ask the farmer for fruit.zip"
    )
    with pytest.raises(DataError, match=message):
        stage(fruit(package, name="fruit_by_hand"), tmp_path)


def test_a_file_of_another_checksum_is_refused(server, package, archive, tmp_path):
    server.data = archive[:-1] + b"x"
    with pytest.raises(
        DataError,
        match=rf"/fruit.zip is not what TFDS registered: expected .*{hashlib.sha256(archive).hexdigest()}.*, got",
    ):
        stage(fruit(package), tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"name": "fruits"}, "has no data set 'fruits'; the closest are fruit"),
        ({"name": "fruit/unripe"}, r"has no config 'unripe'; it has ripe, all-of.it"),
        ({"name": "fruit/ripe:3.0.0"}, "has no version 3.0.0; it has 1.0.0"),
        ({"inputs": ["colour"]}, "fruit has no feature 'colour'; it has image, text, label, price, grid, from_country"),
        (
            {"inputs": ["image"], "target": "grid"},
            "'grid' is a Tensor; a target is a ClassLabel, one text, one whole number or one bool",
        ),
        ({"inputs": None}, r"'boxes' is a Sequence, whose values have no fixed shape.*to some of \['image', 'text'"),
        (
            {"module": "tfds_builders_for_tests.fruits"},
            "no module 'tfds_builders_for_tests.fruits' in data.source.folder",
        ),
    ],
)
def test_what_is_not_there_is_refused_before_a_download(server, package, tmp_path, source, message):
    with pytest.raises(ConfigError, match=message):
        stage(fruit(package, **source), tmp_path)
    assert len(server.requests) == 0


def test_the_digest_follows_name_and_code_but_not_the_place(package, tmp_path):
    before = staging_digest(fruit(package))
    assert staging_digest(fruit(package, data_dir="/elsewhere")) == before
    named = staging_digest(fruit(package, name="fruit/all-of.it:*"))
    with open(package / "fruit.py", "a") as file:
        file.write("# changed\n")
    assert len({before, named, staging_digest(fruit(package))}) == 3


def test_a_number_of_a_data_set_can_be_learned(package, tmp_path):
    config = fruit(package, inputs=["text"], target="price").model_dump(mode="json")
    config = DataConfig.model_validate(config | {"target": {"kind": "regression"}})
    source = open_staged(config, stage(config, tmp_path).directory)
    (batch,) = source.read()
    assert source.schema.label_map == ("price",)
    assert sorted(batch.labels.tolist()) == [[-1], [np.float32(0.1)], [0.5], [2]]
    config = config.model_copy(update={"source": config.source.model_copy(update={"target": "grid"})})
    with pytest.raises(ConfigError, match=r"'grid' is a Tensor; data\.target\.kind=regression learns one number, or"):
        stage(config, tmp_path)
