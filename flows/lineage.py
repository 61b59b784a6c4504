"""The commands that say where a model comes from, and whether it would come of it again."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from flows import display, embedded
from flows.options import Json, Overrides
from tasks.runs import workspace_of

if TYPE_CHECKING:
    from tasks.promote.lineage import Descendant, Lineage
    from tasks.promote.reproduction import Reproduction

NOT_REPRODUCED = 3
_SHOWN_PACKAGES = ("tensorflow", "keras", "numpy")
Allow = Annotated[str, Parameter(help="What may have changed: config,data,code,commit,python,packages, or some of it.")]


def lineage(reference: str, /, *, json: Json = False) -> None:
    """From a version or what is served to its run, commit, config, data and environment; and from these to the models.

    Example: millstream lineage digits@champion

    Parameters
    ----------
    reference
        NAME, NAME@alias or NAME/version of a registered model, serving/NAME/number, the id of a run; or the digest of
        data, commit, code or config, or how it begins, of which each run is shown.
    """
    from tasks.promote.lineage import find_lineages

    found = find_lineages(reference, workspace_of())
    if json:
        display.print_json([each.model_dump(mode="json") for each in found])
        return
    for position, each in enumerate(found):
        display.text("\n" * (position > 0))
        for name, value in _rows(each):
            display.text(f"{name:<13}  {value}\n")


def reproduce(run: str, /, *overrides: Overrides, allow: Allow = "", json: Json = False) -> None:
    """Carries a run out once more, from what MLflow holds of it, and says how far the two lie apart.

    Refused, with the difference, if the config, the data, the code, the commit, Python or a package is not what it was.
    With train.deterministic both must be the same to the bit: if they are not, exit code 3. Nothing is registered.

    Example: millstream reproduce digits-20260101T120000Z-0123456789ab --allow packages

    Parameters
    ----------
    run
        Id of a run, ours or MLflow's; or NAME, NAME@alias, NAME/version or serving/NAME/number, for the run it came of.
    """
    from tasks.promote.reproduction import plan_reproduction
    from tasks.workers import launch

    workspace = workspace_of()
    plan = plan_reproduction(run, workspace, overrides=overrides, allow=allow)
    launch.warm_up()
    embedded.start()
    from flows.reproduction import reproduction

    found = reproduction(plan, workspace)
    if json:
        display.print_json({**found.model_dump(mode="json"), "is_exact": found.is_exact})
    else:
        _show(found)
    if not found.is_reproduced:
        sys.exit(NOT_REPRODUCED)


def _rows(found: "Lineage") -> list[tuple[str, str]]:
    run = found.run
    made = run.provenance
    dirty = ", with changes that were not committed" if made.dirty else ""
    versions = [f"{name} {made.packages[name]}" for name in _SHOWN_PACKAGES if name in made.packages]
    environment = ", ".join([f"Python {made.python}", *versions])
    rows = [
        ("run", f"{run.run_id}  {run.status} on {made.host}"),
        ("MLflow run", f"{run.mlflow_run_id}  {run.url}"),
        ("commit", f"{made.commit}{dirty}" if made.commit else "the model's folder lay in no checkout"),
        ("code", f"{made.code_digest}  (sha256 of the model's source)"),
        ("config", f"key {run.key}; config.yaml of the MLflow run" + (" is gone" if run.config is None else "")),
        ("data", f"{run.data_digest}, of the source {run.source_digest or '(its manifest is gone)'}"),
        ("environment", f"{environment}; {len(made.packages)} packages in requirements.txt; {made.platform}"),
    ]
    if run.reproduces:
        rows.append(("reproduces", run.reproduces))
    rows += [("reproduced by", run_id) for run_id in found.reproductions]
    for version in found.versions:
        rows += _rows_of(version)
    return rows if found.versions else [*rows, ("version", "none: it was not registered")]


def _rows_of(version: "Descendant") -> list[tuple[str, str]]:
    aliases = "".join(f" @{alias}" for alias in version.aliases)
    digest = f"sha256 {version.digest or 'unknown'}"
    return [
        ("version", f"{version.name}/{version.version}{aliases}  registered {version.registered_at}, {digest}"),
        *(
            ("served", f"serving/{change.name}/{change.number}  since {change.at}, by {change.by}: {change.reason}")
            for change in version.served
        ),
    ]


def _show(found: "Reproduction") -> None:
    rows = [
        (name, *("-" if value is None else f"{value:.9g}" for value in (each.then, each.now, each.difference)))
        for name, each in found.figures.items()
    ]
    display.table(("metric", "then", "now", "difference"), rows)
    if found.weights is None:
        display.note(f"weights: not compared, the best checkpoint of then is gone: {found.weights_gone}")
    else:
        apart = found.weights
        where = f", in {apart.variable}" if apart.num_different else ""
        display.note(
            f"weights: {apart.num_different} of {apart.num_variables} variables differ, by at most "
            f"{apart.largest:.3g}{where}"
        )
    for difference in found.allowed:
        display.note(f"allowed: {difference.line}")
    display.note(f"run {found.run_id}, which reproduces {found.reproduces}: {_verdict(found)}")
    if found.url:
        display.note(found.url)


def _verdict(found: "Reproduction") -> str:
    if found.is_exact:
        return "the same, to the bit" if found.weights is not None else "the same, by every metric"
    if found.inexact:
        return f"not the same, nor need it be: {'; '.join(found.inexact)}"
    return "not the same, though train.deterministic promises it"


COMMANDS = (lineage, reproduce)
