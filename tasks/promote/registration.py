"""The registration: a SavedModel becomes an MLflow model and a version of it; runs in a worker process.

MLflow loads the model to try the input example, and works on the one active run and server of its process: neither may
happen in the flow process.
"""

from importlib import metadata
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.models import Model

from tasks.evaluate.facts import Facts
from tasks.evaluate.inputs import read_inputs
from tasks.evaluate.model_card import model_card
from tasks.evaluate.report import INPUTS, EvalReport
from tasks.export.manifest import EXPORT, ExportManifest
from tasks.files import digest_file
from tasks.prepare.manifest import Shards
from tasks.promote.packing import PYFUNC_MODEL, mlflow_dtype, signature
from tasks.promote.record import RegisteredModel
from tasks.promote.registered import DATA_TAG, DIGEST_TAG, FIGURE_TAG, MANIFEST_DIGEST_TAG, RUN_TAG
from tasks.runs import Run, find_run
from tasks.track.client import answering, open_client, tracking_uri
from tasks.workers.child import progress

MAX_DESCRIPTION = 5000  # characters, of the column in MLflow's databases
_CUT = "\n\nThe rest is in the run's artifact report/model_card.md.\n"
_REQUIREMENTS = ("mlflow", "numpy", "tensorflow")


def register(
    *,
    workspace: str,
    run_id: str,
    mlflow_run_id: str,
    shards: dict[str, Any],
    report: dict[str, Any],
    exported: dict[str, Any],
) -> dict[str, Any]:
    """Returns the RegisteredModel of a run's exported model, as JSON, made unless it is there.

    Raises TrackingError if MLflow does not answer.
    """
    progress("register")
    run, model = find_run(Path(workspace), run_id), ExportManifest.model_validate(exported)
    with answering(
        f"run {run.id}: the model in {model.directory} is not registered",
        tracking_uri(run),
        then="; give the same command again when it does: only this is left",
    ):
        found = _find(run, mlflow_run_id, model.digest)
        if found is None:
            _log(run, mlflow_run_id, Shards.model_validate(shards), EvalReport.model_validate(report), model)
            found = _find(run, mlflow_run_id, model.digest)
            assert found is not None
        _describe(run, Shards.model_validate(shards), EvalReport.model_validate(report), found)
    return found.model_dump(mode="json")


def _find(run: Run, mlflow_run_id: str, digest: str) -> RegisteredModel | None:
    client = open_client(tracking_uri(run))
    for version in client.search_model_versions(f"name = '{_registered_name(run)}' and run_id = '{mlflow_run_id}'"):
        if version.tags.get(DIGEST_TAG) == digest:
            uri = f"models:/{version.name}/{version.version}"
            return RegisteredModel(name=version.name, version=int(version.version), uri=uri, digest=digest)
    return None


def _log(run: Run, mlflow_run_id: str, shards: Shards, report: EvalReport, exported: ExportManifest) -> None:
    """Logs the model to the MLflow run and registers it."""
    mlflow.set_tracking_uri(tracking_uri(run))
    # A model is put into the active experiment, whichever run it is of.
    mlflow.set_experiment(experiment_id=mlflow.get_run(mlflow_run_id).info.experiment_id)
    # mlflow.pyfunc.log_model takes no run: it would have to be the active one, and would be ended here.
    Model.log(
        artifact_path=None,
        name=run.config.name,
        flavor=mlflow.pyfunc,
        run_id=mlflow_run_id,
        python_model=str(PYFUNC_MODEL),
        artifacts={"saved_model": str(exported.directory)},
        signature=signature(exported),
        input_example=_input_example(report, exported),
        pip_requirements=[f"{package}=={metadata.version(package)}" for package in _REQUIREMENTS],
        registered_model_name=_registered_name(run),
        tags={
            DIGEST_TAG: exported.digest,
            MANIFEST_DIGEST_TAG: digest_file(exported.directory / EXPORT),
            RUN_TAG: run.id,
            DATA_TAG: shards.data_digest,
            f"{FIGURE_TAG}{report.split}.{report.headline}": f"{report.figures[report.headline]:.6g}",
        },
    )


def _describe(run: Run, shards: Shards, report: EvalReport, model: RegisteredModel) -> None:
    """Gives the version the model card as its description, unless it has one."""
    client, version = open_client(tracking_uri(run)), str(model.version)
    if client.get_model_version(model.name, version).description:
        return
    card = model_card(Facts.of(run, shards.manifest(), report), version)
    if len(card) > MAX_DESCRIPTION:
        card = card[: MAX_DESCRIPTION - len(_CUT)].rpartition("\n")[0] + _CUT
    client.update_model_version(model.name, version, description=card)


def _registered_name(run: Run) -> str:
    return run.config.promote.registered_name or run.config.name


def _input_example(report: EvalReport, exported: ExportManifest) -> dict[str, Any]:
    """Returns {argument: [n, *shape] array} of the real examples that evaluation kept; text is str, an image bytes."""
    kept = read_inputs(report.directory / INPUTS)
    return {
        name: np.char.decode(kept[input.feature].astype(bytes), "utf-8")
        if mlflow_dtype(input) == np.dtype("str")
        else kept[input.feature]
        for name, input in exported.inputs.items()
    }
