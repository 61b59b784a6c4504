"""The spool: frames come back whole and in the order that is asked for, whoever put them in."""

from pathlib import Path

import numpy as np
import pytest

from tasks.prepare import spool
from tasks.prepare.batches import Frames
from tasks.prepare.spool import Places, Spool, SpoolWriter
from tasks.prepare.threads import in_order
from tests.prepare.framed import cut

FRAMES = [bytes([number]) * (number % 7 + 1) for number in range(200)]
CHUNKS = [FRAMES[start : start + 9] for start in range(0, 200, 9)]


@pytest.mark.parametrize("mapped_bytes", [0, 2**20], ids=["read", "mapped"])
@pytest.mark.parametrize("chunk_bytes", [1, 50, 2**20])
def test_frames_of_several_threads_are_read_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, mapped_bytes: int
) -> None:
    monkeypatch.setattr(spool, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(spool, "MAPPED_BYTES", mapped_bytes)
    with SpoolWriter(tmp_path / "frames") as writer:
        places = list(in_order(lambda chunk: writer.append(_frames(chunk)), CHUNKS, num_threads=4))
    spooled = Spool(tmp_path / "frames", Places(*map(np.concatenate, zip(*places, strict=True))))
    assert len(spooled) == 200
    order = np.random.default_rng(0).permutation(200)
    read = [framed for chunk in spooled.frames(order) for framed in cut(chunk)]
    assert read == [FRAMES[row] for row in order]


def _frames(chunk: list[bytes]) -> Frames:
    return Frames(b"".join(chunk), np.array([len(framed) for framed in chunk], np.int32))
