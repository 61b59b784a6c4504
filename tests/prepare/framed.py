"""Frames one by one, as a shard has them one after another."""

from itertools import accumulate

from tasks.prepare.batches import Frames


def cut(frames: Frames) -> list[bytes]:
    """Returns each framed record."""
    stops = list(accumulate(frames.sizes.tolist()))
    return [bytes(frames.data[start:stop]) for start, stop in zip([0, *stops], stops, strict=False)]
