"""The challenge: a run's registered model is held against the champion and, if the gate lets it, takes its place."""

import logging
from functools import partial
from typing import TYPE_CHECKING

from tasks.evaluate.report import EvalReport
from tasks.export.manifest import ExportManifest
from tasks.prepare.manifest import Shards
from tasks.promote.gate import decide, unopposed
from tasks.promote.promotion import CHALLENGER, CHAMPION, promote
from tasks.promote.record import GATE, GATE_REASONS_TAG, GATE_TAG, MAX_REASON, Champion, Decision, RegisteredModel
from tasks.promote.registered import versions_by_alias
from tasks.promote.serving_directory import served_version, serving_directory
from tasks.runs import Run
from tasks.track.client import answering, open_client, tracking_uri
from tasks.workers.restarts import call_for_run

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger("millstream")


def challenge(
    run: Run, shards: Shards, report: EvalReport, exported: ExportManifest, challenger: RegisteredModel
) -> Decision:
    """Returns what promote.gate says of a run's model; one that is accepted is the champion, and served, since.

    The decision is in gate.json of the run, which the tracker sends, and on the version in the registry, @challenger
    until it is promoted. Raises what `promote` does, ConfigError if the champion cannot be compared by the shards,
    WorkerLost if the worker was lost more than `train.max_restarts` times.
    """
    uri, name, version = tracking_uri(run), challenger.name, challenger.version
    needs_mlflow = partial(
        answering, f"{name}/{version}", uri, then="; give the same command again when it does: the gate is left"
    )
    with needs_mlflow():
        client = open_client(uri)
        champion = versions_by_alias(client, name).get(CHAMPION)
    if champion == version and (run.directory / GATE).is_file():  # it came this far before an interruption
        decision = Decision.read(run.directory / GATE)
    else:
        if champion == version:
            decision = unopposed(challenger, report)
        else:
            other = None if champion is None else _judge(run, shards, report, f"{name}/{champion}")
            decision = decide(run.config.promote.gate, challenger, report, exported, other)
        decision.write(run.directory / GATE)
        with needs_mlflow():
            _mark(client, decision)
    logger.info("gate: %s", decision.line)
    served = served_version(serving_directory(run.workspace, name))
    if decision.accepted and (champion, served) != (version, version):
        reason = f"the gate: {'; '.join(decision.reasons)}"
        promote(f"{name}/{version}", run.workspace, reason=reason, uri=uri, judged_against=champion)
    return decision


def _judge(run: Run, shards: Shards, report: EvalReport, reference: str) -> Champion:
    result = call_for_run(
        run,
        "champion",
        "tasks.promote.champion:judge",
        {
            "shards": shards.model_dump(mode="json"),
            "report": report.model_dump(mode="json"),
            "reference": reference,
            "uri": tracking_uri(run),
        },
    )
    return Champion.model_validate(result)


def _mark(client: "MlflowClient", decision: Decision) -> None:
    name, version = decision.name, str(decision.version)
    if decision.champion != decision.version:
        client.set_registered_model_alias(name, CHALLENGER, version)
    client.set_model_version_tag(name, version, GATE_TAG, decision.word)
    client.set_model_version_tag(name, version, GATE_REASONS_TAG, "; ".join(decision.reasons)[:MAX_REASON])
