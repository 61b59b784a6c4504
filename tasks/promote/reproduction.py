"""The reproduction: a run rebuilt from what MLflow holds of it, what has changed since, and what came of it again."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

from tasks import events
from tasks.config import Config, build_config
from tasks.download.download import download
from tasks.errors import ConfigError, DataError, RunError
from tasks.files import Record
from tasks.prepare.prepare import find_digest
from tasks.promote.fetched import open_registry
from tasks.promote.lineage import find_origin
from tasks.runs import Run, run_key
from tasks.track.client import answering, default_uri
from tasks.track.provenance import Provenance, provenance
from tasks.track.recorded import CONFIG, Recorded
from tasks.train.checkpoint import path_of
from tasks.train.result import TrainResult
from tasks.train.weights import WeightDifference, compare_checkpoints

Subject = Literal["config", "data", "code", "commit", "python", "packages"]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)
_UNKNOWN, _NONE = "unknown", "none"
# Of the clock, the exported files, and what a retraining measures by the champion of its day; all else follows from
# config, data and code.
_NOT_COMPARED = ("perf/", "export/", "champion/", "drift/")


class Difference(Record):
    """Something that is not as it was when a run was carried out."""

    subject: Subject
    """The word by which `--allow` lets it pass."""
    what: str
    then: str
    now: str

    @property
    def line(self) -> str:
        return f"{self.subject}: {self.what} was {self.then}, and is {self.now}"


class Present(Record):
    """That on which the result of a run depends, as it is now."""

    key: str
    """That of the config, if data and code were those of then."""
    data_digest: str
    source_digest: str
    provenance: Provenance


class Plan(Record):
    """A run that is to be carried out once more."""

    recorded: Recorded
    config: Config
    differences: tuple[Difference, ...]
    """What has changed since, all of it allowed."""


class FigureDifference(Record):
    """A metric of both runs; None in one that has none of the name."""

    then: float | None
    now: float | None
    difference: float | None
    """0 also between two that are not finite and the same."""

    @classmethod
    def of(cls, then: float | None, now: float | None) -> Self:
        """Returns the record of two values."""
        if then is None or now is None:
            return cls(then=then, now=now, difference=None)
        same = then == now or (math.isnan(then) and math.isnan(now))
        return cls(then=then, now=now, difference=0.0 if same else now - then)


class Reproduction(Record):
    """What came of a run that was carried out once more."""

    run_id: str
    reproduces: str
    allowed: tuple[Difference, ...]
    figures: dict[str, FigureDifference]
    """The last value of each metric, but for those of the clock."""
    weights: WeightDifference | None
    """Between the two best checkpoints; None if the first is gone."""
    weights_gone: str
    """Where it is not; empty if it was compared."""
    inexact: tuple[str, ...]
    """Why equal bits are not to be expected; empty: they are."""
    url: str
    """Page of the new run in the MLflow UI."""

    @property
    def is_exact(self) -> bool:
        """Whether every metric is the same, and every variable to the bit, as far as they are there."""
        same = all(figure.difference == 0 for figure in self.figures.values())
        return same and (self.weights is None or not self.weights.num_different)

    @property
    def is_reproduced(self) -> bool:
        """Whether it is as near as it has to be."""
        return self.is_exact or bool(self.inexact)


def plan_reproduction(reference: str, workspace: Path, *, overrides: Sequence[str] = (), allow: str = "") -> Plan:
    """Returns the run that a reference of `find_origin` leads to as it is to be carried out; fetches its source.

    `allow`: subjects, with commas between, that may have changed. Raises RunError that names all that has changed and
    is not allowed, or if the run has no end to compare with; ConfigError, DataError or TrackingError if it is not
    there, or not enough of it.
    """
    allowed = _subjects(allow)
    uri = default_uri(workspace)
    with answering(reference, uri):
        recorded = find_origin(open_registry(reference, uri), reference, workspace, uri)
    if recorded.status != "FINISHED":
        raise RunError(
            f"run {recorded.run_id} is {recorded.status} in MLflow and has no end to compare with; finish it with "
            f"`millstream resume {recorded.run_id}`, or name another"
        )
    config = _config(recorded, overrides)
    raw = download(config.data, workspace)
    differences = find_differences(
        recorded,
        Present(
            key=run_key(config, data_digest=recorded.data_digest, code_digest=recorded.provenance.code_digest),
            data_digest=find_digest(config.name, config.data, raw.digest, workspace),
            source_digest=raw.digest,
            provenance=provenance(config, {}),
        ),
    )
    refused = [difference for difference in differences if difference.subject not in allowed]
    if refused:
        words = ",".join(dict.fromkeys(difference.subject for difference in refused))
        lines = "".join(f"\n  {difference.line}" for difference in refused)
        raise RunError(
            f"run {recorded.run_id} would not be the same:{lines}\nbring back what it was, or let it be another with "
            f"--allow {words}"
        )
    return Plan(recorded=recorded, config=config, differences=differences)


def find_differences(then: Recorded, now: Present) -> tuple[Difference, ...]:
    """Returns what the result depends on and is not, or not for certain, as it was."""
    return (
        *_changed("config", {"key of the config": (then.key, now.key)}),
        *_data_differences(then, now),
        *_code_differences(then.provenance, now.provenance),
        *_commit_differences(then.provenance, now.provenance),
        *_changed("python", {"Python": (then.provenance.python, now.provenance.python)}),
        *_package_differences(then.provenance.packages, now.provenance.packages),
    )


def compare_with_first(plan: Plan, run: Run, trained: TrainResult, *, url: str) -> Reproduction:
    """Returns how far the finished run lies from the one that it repeats; raises DataError if a checkpoint is damaged.

    The checkpoint of the first is looked for in this workspace and in its own: MLflow has none.
    """
    then = plan.recorded.metrics
    now = {name: values[max(values)] for name, values in events.history(run.events).items()}
    names = sorted(name for name in {*then, *now} if not name.startswith(_NOT_COMPARED))
    first = _find_checkpoint(plan.recorded, run.workspace)
    return Reproduction(
        run_id=run.id,
        reproduces=plan.recorded.run_id,
        allowed=plan.differences,
        figures={name: FigureDifference.of(then.get(name), now.get(name)) for name in names},
        weights=compare_checkpoints(first, trained.best_checkpoint) if first.is_dir() else None,
        weights_gone="" if first.is_dir() else str(first),
        inexact=_why_inexact(plan, trained),
        url=url,
    )


def _subjects(allow: str) -> set[str]:
    words = {word.strip() for word in allow.split(",") if word.strip()}
    if unknown := sorted(words - {*SUBJECTS}):
        raise ConfigError(f"--allow {unknown[0]}: must be one or more of {','.join(SUBJECTS)}, with commas between")
    return words


def _config(recorded: Recorded, overrides: Sequence[str]) -> Config:
    """Returns the config of a run, on as many replicas as it was trained on, with overrides."""
    tree: dict[str, Any] | None = recorded.config
    if tree is None:
        raise DataError(
            f"run {recorded.run_id}: its {CONFIG} is gone from MLflow run {recorded.mlflow_run_id}, and without it "
            "nothing can be rebuilt; log it there again, if its directory in the workspace has it still"
        )
    if recorded.num_replicas is not None and tree.get("distribute", {}).get("num_replicas") == "auto":
        overrides = (f"distribute.num_replicas={recorded.num_replicas}", *overrides)
    try:
        return build_config(tree, overrides)
    except ConfigError as error:
        raise ConfigError(f"run {recorded.run_id}: its {CONFIG} in MLflow: {error}") from None


def _changed(subject: Subject, values: Mapping[str, tuple[str, str]]) -> tuple[Difference, ...]:
    return tuple(
        Difference(subject=subject, what=what, then=then or _UNKNOWN, now=now)
        for what, (then, now) in values.items()
        if then != now
    )


def _data_differences(then: Recorded, now: Present) -> tuple[Difference, ...]:
    """Returns what is another source, or other shards of the same, because the format of ours has changed."""
    if then.data_digest == now.data_digest:
        return ()
    source = _changed("data", {"fingerprint of the source": (then.source_digest or "", now.source_digest)})
    return source or _changed("data", {"digest of the shards": (then.data_digest, now.data_digest)})


def _code_differences(then: Provenance, now: Provenance) -> tuple[Difference, ...]:
    return _changed(
        "code",
        {
            "sha256 of the model's source": (then.code_digest, now.code_digest),
            "sha256 of millstream's own source": (then.pipeline_digest, now.pipeline_digest),
        },
    )


def _commit_differences(then: Provenance, now: Provenance) -> tuple[Difference, ...]:
    """Returns the commit if it is another, or one of them does not say what the code was."""
    if then.commit == now.commit and not then.dirty and not now.dirty:
        return ()
    return (Difference(subject="commit", what="git commit", then=_commit(then), now=_commit(now)),)


def _commit(of: Provenance) -> str:
    if of.commit is None:
        return _NONE
    return f"{of.commit} with changes that are not committed" if of.dirty else of.commit


def _package_differences(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[Difference, ...]:
    if not then:
        what = "list of the installed packages"
        return (Difference(subject="packages", what=what, then=_UNKNOWN, now=f"of {len(now)}"),)
    names = sorted({*then, *now}, key=str.lower)
    return _changed("packages", {name: (then.get(name, _NONE), now.get(name, _NONE)) for name in names})


def _find_checkpoint(recorded: Recorded, workspace: Path) -> Path:
    """Returns where the best checkpoint of a run lies, or would lie in the workspace that it was carried out in."""
    step = int(recorded.metrics.get("best_step", 0))
    places = [
        path_of(folder / "runs" / recorded.run_id / "checkpoints", step) for folder in (workspace, recorded.workspace)
    ]
    return next((place for place in places if place.is_dir()), places[-1])


def _why_inexact(plan: Plan, trained: TrainResult) -> tuple[str, ...]:
    recorded = plan.recorded
    replicas = f"it was trained on {recorded.num_replicas} replicas, and now on {trained.num_replicas}"
    lost = f"it lost devices and went on without them: {recorded.lost_devices}"
    reasons = {
        "train.deterministic is false": not plan.config.train.deterministic,
        "something has changed, as was allowed": bool(plan.differences),
        replicas: recorded.num_replicas not in (None, trained.num_replicas),
        lost: bool(recorded.lost_devices),
    }
    return tuple(reason for reason, holds in reasons.items() if holds)
