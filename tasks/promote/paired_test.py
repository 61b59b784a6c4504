"""The paired test: how probable a lead of one model over another is by chance alone, on the same examples."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

NUM_RESAMPLES = 9999
MIN_RESAMPLES = 999  # of very many examples; enough for probabilities of some thousandths
_MAX_NUMBERS = 2**28  # that are drawn in all: some seconds
_MAX_DRAWN = 2**22  # numbers that are drawn at once


class Paired(NamedTuple):
    """What a paired test found."""

    p_value: float
    """One-sided."""
    words: str


def mcnemar(challenger: NDArray[np.bool_], champion: NDArray[np.bool_]) -> Paired:
    """Returns McNemar's exact test of which examples each has right, [n]: only those count that one of them has right.

    Were both equally good, the number that only the challenger has right were binomial with 1/2.
    """
    gained, lost = int((challenger & ~champion).sum()), int((champion & ~challenger).sum())
    p_value = float(stats.binomtest(gained, gained + lost, alternative="greater").pvalue) if gained + lost else 1.0
    return Paired(p_value, f"McNemar, exact: only the challenger is right on {gained}, only the champion on {lost}")


def paired_bootstrap(challenger: NDArray[Any], champion: NDArray[Any], *, seed: int = 0) -> Paired:
    """Returns in which share of the resamples of the examples the challenger's mean loss is not the lower one.

    `challenger`, `champion`: [n], the loss of each example.
    """
    gains = champion - challenger
    if len(gains) < 2:
        return Paired(1.0, "paired bootstrap: a single example tells nothing")
    num_resamples = int(np.clip(_MAX_NUMBERS // len(gains), MIN_RESAMPLES, NUM_RESAMPLES))
    means = stats.bootstrap(
        (gains,),
        np.mean,
        n_resamples=num_resamples,
        batch=max(1, _MAX_DRAWN // len(gains)),
        method="percentile",
        rng=np.random.default_rng(seed),
    ).bootstrap_distribution
    p_value = (1 + np.count_nonzero(means <= 0)) / (1 + num_resamples)
    return Paired(float(p_value), f"paired bootstrap: the loss is lower by {gains.mean():.3g} on average")
