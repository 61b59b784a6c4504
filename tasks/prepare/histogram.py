"""Histogram: how numbers are spread, in a bounded size that needs no look ahead and can be merged exactly.

The bins are those of the float64 numbers in the order of their bits, some of the lowest dropped: about as wide in
relation to their numbers everywhere, as in a logarithmic scale. When too many are occupied, one bit more is dropped and
neighbours become one. That is the uniform collapse of UDDSketch (Epicoco, Melle, Cafaro, Pulimeno and Morleo, 2020), by
which the result depends neither on the order of the numbers nor on how they came in batches.
"""

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.manifest import Histogram

MAX_SHARE = 0.2  # of the numbers in one bin, if they are not all the same
MAX_BINS = 256  # about 3 KB a feature in the manifest; of a normal or log-normal million the fullest bin holds 5 %

_MAGNITUDE = np.int64(2**63 - 1)  # all bits but the sign


def histogram_of(numbers: NDArray[np.float64]) -> Histogram:
    """Returns the histogram of [n] finite numbers; -0 is 0."""
    return _fitted(0, *np.unique(_flipped((numbers + 0.0).view(np.int64)), return_counts=True))


def merged(one: Histogram, other: Histogram) -> Histogram:
    """Returns the histogram of the numbers of both: the very one that `histogram_of` would make of them at once."""
    dropped_bits = max(one.dropped_bits, other.dropped_bits)
    places = [_places(each, dropped_bits) for each in (one, other)]
    counts = [np.array(each.counts, np.int64) for each in (one, other)]
    return _fitted(dropped_bits, *_summed(np.concatenate(places), np.concatenate(counts)))


def side_by_side(one: Histogram, other: Histogram) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the counts of both in the same bins, each [n], by ascending numbers; the bins are the coarser ones."""
    dropped_bits = max(one.dropped_bits, other.dropped_bits)
    places = [_places(each, dropped_bits) for each in (one, other)]
    bins = np.unique(np.concatenate(places))
    counts = np.zeros((2, len(bins)), np.int64)
    for row, its_places, each in zip(counts, places, (one, other), strict=True):
        np.add.at(row, np.searchsorted(bins, its_places), each.counts)
    return counts[0], counts[1]


def is_too_coarse(one: Histogram, other: Histogram, quantiles: NDArray[np.float64]) -> bool:
    """Returns whether `side_by_side` has over MAX_SHARE of `one` in a bin in which several of its `quantiles` [n] lie.

    So it is with many numbers close together beside a few of quite another size: how the many move is not seen.
    """
    dropped_bits = max(one.dropped_bits, other.dropped_bits)
    places, counts = _summed(_places(one, dropped_bits), np.array(one.counts, np.int64))
    within = _flipped((np.unique(quantiles) + 0.0).view(np.int64)) >> dropped_bits
    full = places[counts > MAX_SHARE * counts.sum()]
    return any(np.count_nonzero(within == place) > 1 for place in full)


def _fitted(dropped_bits: int, places: NDArray[np.int64], counts: NDArray[np.int64]) -> Histogram:
    """Returns the histogram of ascending places, so few bits coarser that it has at most MAX_BINS."""
    if len(places) > MAX_BINS:
        # Neighbours are in one bin once the highest bit in which they differ is dropped.
        apart = np.sort((places[1:] ^ places[:-1]).view(np.uint64))
        more = int(apart[-MAX_BINS]).bit_length()
        dropped_bits += more
        places, counts = _summed(places >> more, counts)
    lows = np.where(places < 0, ~(~places << dropped_bits), places << dropped_bits)
    numbers = _flipped(lows).view(np.float64)
    return Histogram(dropped_bits=dropped_bits, numbers=tuple(numbers.tolist()), counts=tuple(counts.tolist()))


def _places(histogram: Histogram, dropped_bits: int) -> NDArray[np.int64]:
    """Returns the place of each bin among those with as many bits dropped."""
    return np.asarray(_flipped(np.array(histogram.numbers, np.float64).view(np.int64)) >> dropped_bits)


def _flipped(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the bits of float64 numbers as integers in the order of the numbers; of such integers the bits."""
    return np.asarray(bits ^ ((bits >> 63) & _MAGNITUDE))


def _summed(places: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the different places, ascending, and the sum of the counts of each."""
    different, which = np.unique(places, return_inverse=True)
    sums = np.zeros(len(different), np.int64)
    np.add.at(sums, which, counts)
    return different, sums
