"""Drift: how far the training data of a run are from those that the champion learned from, by both manifests.

Nothing is read but the statistics that are in them, so that the champion's shards need not be there any more.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon

from tasks.errors import DataError
from tasks.prepare.histogram import is_too_coarse, side_by_side
from tasks.prepare.manifest import MANIFEST, FeatureStatistics, Histogram, ShardManifest, Shards
from tasks.promote.drift_plot import write_plot
from tasks.promote.promotion import CHAMPION
from tasks.promote.record import DRIFT, DRIFT_PLOT, Drift, FeatureDrift
from tasks.promote.registered import versions_by_alias
from tasks.runs import Run
from tasks.track.client import first_line, open_client, tracking_uri
from tasks.track.contents import DATA_ARTIFACTS

NUM_GROUPS = 10  # of equally many of the champion's numbers, as is usual for the index
COMMON_SHARE = 0.01  # what is rarer in both is one group: thousands of rare words would only count their own chance
LEAST_SHARE = 1e-4  # of an empty group, so that its logarithm is finite

Counts = NDArray[np.int64]

logger = logging.getLogger("millstream")


def measure(run: Run, shards: Shards) -> Drift | None:
    """Returns how far the run's training data are from the champion's, which is in DRIFT and DRIFT_PLOT since.

    None if there is no champion, or its manifest cannot be had: the log says so, and the run goes on. What was found
    once is not measured again: by then the run's own model may be the champion.
    """
    if (run.directory / DRIFT).is_file():
        return Drift.read(run.directory / DRIFT)
    found = _champion(run)
    if found is None:
        return None
    champion, manifest = found
    features, not_compared = compare(manifest, shards.manifest())
    drift = Drift(champion=champion, features=features, not_compared=not_compared)
    for name, reason in not_compared.items():
        logger.warning("drift: %s is not compared with the data of %s: %s", name, champion, reason)
    logger.info("drift: %s", drift.line)
    write_plot(drift, run.directory / DRIFT_PLOT)
    drift.write(run.directory / DRIFT)  # last: with it the plot is there
    return drift


def compare(champion: ShardManifest, new: ShardManifest) -> tuple[dict[str, FeatureDrift], dict[str, str]]:
    """Returns the drift of each feature from the training split of one manifest to another's, and of others why not.

    Numbers are compared in NUM_GROUPS of the champion's, values and words by how often each of them comes, and
    classes likewise; what is missing is a group too.
    """
    before, after = champion.statistics, new.statistics
    compared, not_compared = {}, {}
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            not_compared[name] = f"it is only in the {'new data' if name in after else 'data of the champion'}"
        elif isinstance(counts := _counts(before[name], after[name]), str):
            not_compared[name] = counts
        elif not all(each.any() for each in counts):
            not_compared[name] = "one of both has no words of it"
        else:
            compared[name] = feature_drift(*counts)
    if champion.target_kind == new.target_kind != "regression":  # whose numbers have statistics
        classes = [
            dict(zip(each.label_map, each.splits["train"].class_counts, strict=True)) for each in (champion, new)
        ]
        compared[new.target] = feature_drift(*_by_name(*classes))
    elif champion.target_kind != new.target_kind:
        not_compared[new.target] = f"data.target.kind was {champion.target_kind} and is {new.target_kind}"
    return compared, not_compared


def feature_drift(before: Counts, after: Counts) -> FeatureDrift:
    """Returns the drift between the counts [n] of the same groups, of which neither is all 0."""
    expected, actual = before / before.sum(), after / after.sum()
    return FeatureDrift(psi=psi(expected, actual), js=float(jensenshannon(expected, actual, base=2)))


def psi(expected: NDArray[np.float64], actual: NDArray[np.float64]) -> float:
    """Returns the population stability index of two distributions [n] over the same groups, the same both ways round.

    The sum of (actual - expected) ln(actual / expected) (Siddiqi, Credit Risk Scorecards, 2006, chapter 10), which is
    the divergence of Jeffreys (1946); a share below LEAST_SHARE counts as that.
    """
    expected, actual = np.maximum(expected, LEAST_SHARE), np.maximum(actual, LEAST_SHARE)
    return float(np.sum((actual - expected) * np.log(actual / expected)))


def _counts(before: FeatureStatistics, after: FeatureStatistics) -> tuple[Counts, Counts] | str:
    """Returns how many examples or words each group has in both, or why that cannot be told."""
    if before.vocabulary is not None and after.vocabulary is not None:
        one, other = _by_name(dict(before.vocabulary), dict(after.vocabulary))
        return np.append(one, _num_unlisted(before)), np.append(other, _num_unlisted(after))
    if before.vocabulary is not None or after.vocabulary is not None:
        return "the statistics of both are not of one kind"
    champion, new = _histogram(before), _histogram(after)
    if champion is None or new is None:
        return "its shards were written before histograms were kept"
    for each, beside, statistics in ((champion, new, before), (new, champion, after)):
        if is_too_coarse(each, beside, np.array([*(statistics.quantiles or {}).values()])):
            return (
                "many of its numbers lie close together beside a few of quite another size, which hides how they move"
            )
    counts = _in_groups(*side_by_side(champion, new))
    return np.append(counts[0], before.num_missing), np.append(counts[1], after.num_missing)


def _histogram(statistics: FeatureStatistics) -> Histogram | None:
    """Returns that of a number, an empty one if all are missing; None if it was not made."""
    return Histogram() if statistics.mean is None else statistics.histogram


def _in_groups(before: Counts, after: Counts) -> tuple[Counts, Counts]:
    """Returns the counts of ascending bins in NUM_GROUPS, each with about as many of `before`; a bin is never cut."""
    total = max(int(before.sum()), 1)
    middles = np.cumsum(before) - before / 2
    groups = np.minimum((NUM_GROUPS * middles / total).astype(np.int64), NUM_GROUPS - 1)
    one, other = np.zeros((2, NUM_GROUPS), np.int64)
    np.add.at(one, groups, before)
    np.add.at(other, groups, after)
    return one, other


def _num_unlisted(statistics: FeatureStatistics) -> int:
    """Returns how many examples lack a category, or how many words of a text are not in its vocabulary."""
    if statistics.num_tokens is None:
        return statistics.num_missing
    return statistics.num_tokens - sum(count for _, count in statistics.vocabulary or ())


def _by_name(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Counts, Counts]:
    """Returns the counts of each name that is common in one of both, and last the sum of all others."""
    totals = [sum(each.values()) for each in (before, after)]
    common = [
        name
        for name in sorted(before.keys() | after.keys())
        if any(each.get(name, 0) >= COMMON_SHARE * total for each, total in zip((before, after), totals, strict=True))
    ]
    one, other = ([each.get(name, 0) for name in common] for each in (before, after))
    return np.array([*one, totals[0] - sum(one)]), np.array([*other, totals[1] - sum(other)])


def _champion(run: Run) -> tuple[str, ShardManifest] | None:
    """Returns the name of the champion of the run's model and the manifest that it learned from, if both are there."""
    import mlflow
    from mlflow.exceptions import MlflowException

    name, uri = run.config.promote.registered_name or run.config.name, tracking_uri(run)
    champion = f"{name}@{CHAMPION}"
    try:
        client = open_client(uri)
        number = versions_by_alias(client, name).get(CHAMPION)
        if number is None:
            logger.info("drift: %s has no champion yet", name)
            return None
        champion = f"{name}/{number}"
        with TemporaryDirectory(prefix="millstream-drift-") as folder:
            file = mlflow.artifacts.download_artifacts(
                run_id=client.get_model_version(name, str(number)).run_id,
                artifact_path=f"{DATA_ARTIFACTS}/{MANIFEST}",
                dst_path=folder,
                tracking_uri=uri,
            )
            return champion, ShardManifest.read(Path(file))
    except (MlflowException, OSError, DataError) as error:
        logger.warning("drift: not measured, the manifest of %s cannot be had: %s", champion, first_line(error))
        return None
