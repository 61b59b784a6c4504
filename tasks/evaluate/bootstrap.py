"""Bootstrap: between which bounds each figure lies in resamples of a split's examples.

The figures of a resample are computed from how often it has each example, for many resamples at once: most are a
function of weighted sums, which are one product of matrices. `tasks.train.head` has them from scikit-learn one by one.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tasks.evaluate.judged import Judged
from tasks.evaluate.report import Interval
from tasks.workers.child import progress, stop_if, stop_requested

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.float64]
"""[r, n]: how often each of r resamples has each of n examples."""
Statistic: TypeAlias = Callable[[Counts], dict[str, Floats]]
"""To the figures of each resample, [r]; NaN where it cannot tell."""

CONFIDENCE = 0.95
MAX_COUNTS = 2**21  # examples times resamples that are held at once: some 60 MB
MAX_RANKED = 2**28  # examples times classes times resamples that are ranked: some seconds
ROUNDING = 1e-12  # relative; a spread below it is one of equal numbers
MIN_RANKINGS = 100  # however many examples and classes


def intervals(kind: str, judged: Judged, *, num_resamples: int, seed: int) -> dict[str, Interval]:
    """Returns the interval of each figure of a target's kind that the split can tell; none of a single example.

    Every figure is of the same resamples; those by rank (roc_auc, mean_average_precision) of the first of them, if
    there are very many examples and classes.
    """
    num_examples = len(judged.ids)
    if num_resamples == 0 or num_examples < 2:
        return {}
    found = _intervals(sums(kind, judged), num_examples, num_resamples, seed)
    if kind in ("binary", "multi_label"):
        affordable = MAX_RANKED // (num_examples * judged.outputs.shape[1])
        some = min(num_resamples, max(MIN_RANKINGS, affordable))
        found |= _intervals(ranks(kind, judged), num_examples, some, seed)
    return found


def sums(kind: str, judged: Judged) -> Statistic:
    """Returns the statistic of all figures that are functions of sums over examples."""
    match kind:
        case "multiclass":
            return _means({"accuracy": judged.decisions == judged.targets, "loss": judged.losses})
        case "binary":
            return _binary(judged)
        case "multi_label":
            return _multi_label(judged)
        case _:
            return _regression(judged)


def ranks(kind: str, judged: Judged) -> Statistic:
    """Returns the statistic of the figures that go by the order of the examples, of two or any number of classes."""
    wanted = judged.targets.reshape(len(judged.ids), -1) == 1
    orders = [_Order(wanted[:, place], judged.outputs[:, place]) for place in range(wanted.shape[1])]

    def statistic(counts: Counts) -> dict[str, Floats]:
        found = [order.figures(counts) for order in orders]
        areas, precisions = (_mean_of_told(np.stack(each)) for each in zip(*found, strict=True))
        return {"roc_auc": areas} if kind == "binary" else {"roc_auc": areas, "mean_average_precision": precisions}

    return statistic


def _intervals(statistic: Statistic, num_examples: int, num_resamples: int, seed: int) -> dict[str, Interval]:
    rng, at_once = np.random.default_rng(seed), max(1, MAX_COUNTS // num_examples)
    resampled: dict[str, list[Floats]] = {}
    for start in range(0, num_resamples, at_once):
        stop_if(stop_requested())
        progress("report")
        # Not scipy.stats.bootstrap, which draws the same but warns of figures that a resample cannot tell.
        rows = rng.integers(num_examples, size=(min(at_once, num_resamples - start), num_examples))
        counts = np.stack([np.bincount(some, minlength=num_examples) for some in rows]).astype(np.float64)
        for name, values in statistic(counts).items():
            resampled.setdefault(name, []).append(values)
    found = {}
    for name, parts in resampled.items():
        values = np.concatenate(parts)
        told = values[~np.isnan(values)]
        if len(told):
            low, high = np.quantile(told, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
            found[name] = Interval(low=low, high=high, num_resamples=len(told))
    return found


def _means(columns: dict[str, NDArray[Any]]) -> Statistic:
    values = np.stack([*columns.values()], axis=1).astype(np.float64)
    return lambda counts: dict(zip(columns, (counts @ values).T / values.shape[0], strict=True))


def _binary(judged: Judged) -> Statistic:
    wanted, said = judged.targets == 1, judged.decisions == 1
    means = _means(
        {
            "accuracy": wanted == said,
            "loss": judged.losses,
            "hits": wanted & said,
            "wanted": wanted,
            "said": said,
        }
    )

    def statistic(counts: Counts) -> dict[str, Floats]:
        found = means(counts)
        hits, wanted, said = (found.pop(name) for name in ("hits", "wanted", "said"))
        return found | {"precision": _ratio(hits, said), "recall": _ratio(hits, wanted)}

    return statistic


def _multi_label(judged: Judged) -> Statistic:
    wanted, said = judged.targets.astype(np.float64), judged.decisions.astype(np.float64)
    hits, total = wanted * said, wanted + said
    means = _means({"loss": judged.losses, "subset_accuracy": (judged.targets == judged.decisions).all(axis=1)})

    def statistic(counts: Counts) -> dict[str, Floats]:
        twice, both = 2 * counts @ hits, counts @ total
        return means(counts) | {
            "micro_f1": _ratio(twice.sum(axis=1), both.sum(axis=1)),
            "macro_f1": _ratio(twice, both).mean(axis=1),
        }

    return statistic


def _regression(judged: Judged) -> Statistic:
    wanted = judged.targets.astype(np.float64)
    errors = np.abs(judged.predictions - wanted)
    squares = errors**2
    around = wanted - wanted.mean(axis=0)  # or of large numbers nothing would be left of the differences
    means = _means({"loss": judged.losses, "mae": errors.mean(axis=1)})

    def statistic(counts: Counts) -> dict[str, Floats]:
        squared = counts @ squares
        spread = counts @ around**2 - (counts @ around) ** 2 / len(wanted)
        with np.errstate(divide="ignore", invalid="ignore"):
            told = np.where(
                spread > ROUNDING * (counts @ around**2), 1 - squared / spread, np.where(squared > 0, 0.0, 1.0)
            )
        return means(counts) | {"rmse": np.sqrt(squared / len(wanted)).mean(axis=1), "r2": told.mean(axis=1)}

    return statistic


class _Order:
    """The examples in the order of their scores, for one class."""

    def __init__(self, wanted: NDArray[np.bool_], scores: NDArray[Any]) -> None:
        """`wanted`: [n], who belongs to the class; `scores`: [n], the higher the surer."""
        self._order = np.argsort(-scores, kind="stable")
        self._wanted = wanted[self._order]
        self._starts = np.flatnonzero(np.diff(scores[self._order], prepend=np.nan) != 0)  # of equal scores

    def figures(self, counts: Counts) -> tuple[Floats, Floats]:
        """Returns the area below the ROC curve, and the average precision, of each resample [r]; NaN if untold."""
        ordered = counts[:, self._order]
        hits = np.add.reduceat(ordered * self._wanted, self._starts, axis=1)
        misses = np.add.reduceat(ordered, self._starts, axis=1) - hits
        all_hits, all_misses = np.cumsum(hits, axis=1), np.cumsum(misses, axis=1)
        num_hits, num_misses = all_hits[:, -1], all_misses[:, -1]
        with np.errstate(invalid="ignore"):
            # A hit is ahead of the misses after it, and half ahead of those of the same score.
            areas = (misses * (all_hits - hits / 2)).sum(axis=1) / (num_hits * num_misses)
            precisions = (hits * _ratio(all_hits, all_hits + all_misses)).sum(axis=1) / num_hits
        return areas, precisions


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Returns part / whole, 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _mean_of_told(values: Floats) -> Floats:
    """Returns the mean over classes, [r] of [num_classes, r], without those that are NaN; NaN if all are."""
    told = ~np.isnan(values)
    total, number = np.where(told, values, 0).sum(axis=0), told.sum(axis=0)
    return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
