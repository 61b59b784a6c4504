"""The `millstream` command: thin, and it imports what a command needs only when that command runs."""

import logging
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter
from cyclopts.types import NonNegativeInt

from flows import arrival, bench, display, embedded, history, lineage, promotion, serving, tuning
from flows.options import Json, Overrides
from tasks.config import Config, load_config
from tasks.errors import MillstreamError, needs_the_user
from tasks.files import Record, write_atomic
from tasks.prepare.manifest import Shards
from tasks.runs import Run, find_run, open_run, workspace_of
from tasks.secrets import keep_out_of_logs

RunId = Annotated[
    str | None, Parameter(name="--run", help="Id of the run to go on with, as `millstream runs` lists it.")
]

FAILED, USAGE, INTERRUPTED = 1, 2, 130

commands = App(
    name="millstream",
    help="Raw data to shards, to a trained, evaluated, exported and registered Keras model.",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,  # `app` says what it means
)
config_commands = App(name="config", help="Look at a config without running it.")
commands.command(config_commands)
bench_commands = App(name="bench", help="Measure both sides of a comparison, on this machine.")
commands.command(bench_commands)


def app() -> None:
    """Runs the command line of this process and ends it.

    0 ok, 1 failed, 2 usage or config, 3 gate not met or not reproduced, 130 interrupted.
    """
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("millstream").setLevel(logging.INFO)
    keep_out_of_logs()
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # a polite kill leaves the same truth as Ctrl-C
        signal.signal(number, interrupt)
    try:
        commands(exit_on_error=False)
    except BaseException as error:
        # Whatever became of the interrupt on its way through the libraries.
        if interrupted:
            display.note("interrupted; the same command goes on where it stopped")
            sys.exit(INTERRUPTED)
        if isinstance(error, CycloptsError):  # it has been printed
            sys.exit(USAGE)
        if not needs_the_user(error):
            raise
        display.error(error)
        sys.exit(error.exit_code if isinstance(error, MillstreamError) else FAILED)


@commands.command
def run(config: Path, *overrides: Overrides, fresh: bool = False, run: RunId = None, json: Json = False) -> None:
    """The whole pipeline; goes on where an interrupted run of the same config stopped.

    Example: millstream run conf/digits.yaml train.total="3 epochs"

    Parameters
    ----------
    config
        A file such as conf/digits.yaml.
    fresh
        Begin a new run even if one of the same config was interrupted.
    """
    _run_flow(load_config(config, overrides), run_id=run, fresh=fresh, json=json)


@commands.command
def resume(run_id: str, *overrides: Overrides, json: Json = False) -> None:
    """Goes on with an interrupted run, by its id, under the config it was begun with.

    A finished run is never trained again; given a longer train.total it goes on from its end, if its schedule is
    constant.

    Example: millstream resume digits-20260101T120000Z-0123456789ab distribute.num_replicas=4
    """
    config = find_run(workspace_of(), run_id, overrides).config
    _run_flow(config, run_id=run_id, fresh=False, json=json)


@commands.command
def download(config: Path, *overrides: Overrides, json: Json = False) -> None:
    """Raw data to local disk; nothing if it is there.

    Example: millstream download conf/digits.yaml
    """
    from tasks.download.download import download

    display.record(download(load_config(config, overrides).data, workspace_of()), json=json)


@commands.command
def inspect(config: Path, *overrides: Overrides, json: Json = False) -> None:
    """What a source holds and what would be made of it, before any shard is written.

    Example: millstream inspect conf/diamonds.yaml
    """
    from tasks.download.download import download
    from tasks.prepare.inspect import inspect_source

    resolved = load_config(config, overrides)
    found = inspect_source(resolved.data, download(resolved.data, workspace_of()))
    display.inspection(found, json=json)
    if found.problem:
        sys.exit(FAILED)


@commands.command
def prepare(
    config: Path, *overrides: Overrides, verify: bool = False, repair: bool = False, json: Json = False
) -> None:
    """Raw data to TFRecord shards; nothing if they are there and whole, and only what is damaged if they are there.

    Example: millstream prepare conf/digits.yaml data.shard_size="1 MB"

    Parameters
    ----------
    verify
        Only look: say what is wrong with each file that is damaged, missing or foreign, and fail if there is one.
    repair
        Only mend: fail if there are no shards yet.
    """
    from tasks.download.download import download, source_digest
    from tasks.prepare.prepare import prepare, verify_shards

    resolved = load_config(config, overrides)
    if verify or repair:
        found = verify_shards(
            resolved.name, resolved.data, source_digest(resolved.data, workspace_of()), workspace_of()
        )
        if not repair:
            display.verification(found, json=json)
            sys.exit(FAILED if found.damages else 0)
    raw = download(resolved.data, workspace_of())
    display.record(prepare(resolved.name, resolved.data, raw, workspace_of()), json=json)


@commands.command
def train(config: Path, *overrides: Overrides, run: RunId = None, json: Json = False) -> None:
    """Shards to checkpoints; goes on with the interrupted run of the same config.

    Example: millstream train conf/digits.yaml
    """
    from tasks.train.stage import train

    _run_stage(load_config(config, overrides), train, run_id=run, json=json)


@commands.command
def evaluate(config: Path, *overrides: Overrides, run: RunId = None, json: Json = False) -> None:
    """The best checkpoint on the held-out split.

    Example: millstream evaluate conf/digits.yaml
    """
    from tasks.evaluate.stage import evaluate
    from tasks.train.stage import find_result

    _run_stage(
        load_config(config, overrides),
        lambda run, shards: evaluate(run, shards, find_result(run)),
        run_id=run,
        existing=True,
        json=json,
    )


@commands.command
def export(config: Path, *overrides: Overrides, run: RunId = None, json: Json = False) -> None:
    """The best checkpoint as a SavedModel that was reloaded and compared.

    Example: millstream export conf/digits.yaml
    """
    from tasks.evaluate.stage import find_report
    from tasks.export.stage import export
    from tasks.train.stage import find_result

    _run_stage(
        load_config(config, overrides),
        lambda run, shards: export(run, shards, find_result(run), find_report(run)),
        run_id=run,
        existing=True,
        json=json,
    )


for group, functions in (
    (bench_commands, bench.COMMANDS),
    (commands, history.COMMANDS),
    (commands, serving.COMMANDS),
    (commands, promotion.COMMANDS),
    (commands, lineage.COMMANDS),
    (commands, arrival.COMMANDS),
    (commands, tuning.COMMANDS),
):
    for function in functions:
        group.command(function)


@commands.command
def up(*, prefect_port: int = 4200, mlflow_port: int = 5000) -> None:
    """Prefect and MLflow servers, a worker and the deployments; Ctrl-C stops all. Give it where conf/ lies.

    Example: millstream up

    Parameters
    ----------
    prefect_port
        Port of the Prefect server and UI on this machine.
    mlflow_port
        Port of the MLflow server and UI on this machine.
    """
    from tasks.host.up import watch

    watch(workspace_of(), prefect_port=prefect_port, mlflow_port=mlflow_port)


@commands.command
def deployments(*, write: bool = False, check: bool = False) -> None:
    """prefect.yaml, as conf/ says it: printed, written or checked. Give it where conf/ lies.

    Example: millstream deployments --write

    Parameters
    ----------
    write
        Write it to prefect.yaml, for `prefect deploy --all`.
    check
        Fail if prefect.yaml is not what conf/ says.
    """
    from flows.deployments import check as check_file
    from flows.deployments import render

    conf, file = Path("conf"), Path("prefect.yaml")
    if check:
        check_file(conf, file)
    elif write:
        write_atomic(file, render(conf).encode())
    else:
        display.text(render(conf))


@commands.command
def doctor(config: Path | None = None, *overrides: Overrides, json: Json = False) -> None:
    """What this machine has and lacks for training, each finding with its fix.

    Example: millstream doctor conf/digits.yaml
    """
    from tasks.host.doctor import examine

    findings = examine(config, overrides, workspace_of())
    if config is not None and all(finding.status == "ok" for finding in findings if finding.name == "config"):
        from flows.schedules import schedule_findings

        findings += schedule_findings(load_config(config, overrides), datetime.now(UTC))
    display.findings(findings, json=json)
    if any(finding.status == "problem" for finding in findings):
        sys.exit(FAILED)


@commands.command
def clean(
    *,
    dry_run: bool = False,
    keep_runs: NonNegativeInt | None = None,
    older_than: str | None = None,
    yes: bool = False,
    json: Json = False,
) -> None:
    """Removes what nothing needs: old shards and raw data, checkpoints but the best, what killed processes left.

    Finished runs go only by --keep-runs and --older-than, their models only if no version in MLflow is of them.

    Example: millstream clean --keep-runs 10 --older-than "30 days" --dry-run

    Parameters
    ----------
    dry_run
        Only say what would be removed.
    keep_runs
        Of the finished runs of each name, keep the newest so many, and of those before them what --older-than keeps.
    older_than
        Remove only what is older than this, such as '30 days'.
    yes
        Do not ask; without a terminal nothing is removed unless this is given.
    """
    from tasks.host.clean import Rules, age, carry_out, plan

    rules = Rules(keep_runs=keep_runs, older_than=age(older_than) if older_than is not None else None)
    planned = plan(workspace_of(), rules)
    display.removals(planned, json=json)
    if planned and not dry_run and (yes or display.confirmed("remove all this?")):
        display.removed(carry_out(workspace_of(), rules, planned))


@config_commands.command
def show(config: Path, *overrides: Overrides) -> None:
    """The whole config, defaults and overrides included, as YAML.

    Example: millstream config show conf/digits.yaml train.seed=1
    """
    display.config(load_config(config, overrides))


@config_commands.command
def schema() -> None:
    """The JSON schema of a config, for editors.

    Example: millstream config schema > millstream.schema.json
    """
    display.schema()


@config_commands.command
def validate(config: Path, *overrides: Overrides) -> None:
    """Checks a config; says path, value, rule and fix of what is wrong.

    Example: millstream config validate conf/digits.yaml
    """
    load_config(config, overrides)
    display.note(f"{config}: valid")


def _run_flow(config: Config, *, run_id: str | None, fresh: bool, json: bool) -> None:
    from tasks.workers import launch

    launch.warm_up()  # before Prefect is imported: TensorFlow takes longer
    embedded.start()
    from flows.training import training

    groups = {name: getattr(config, name) for name in Config.model_fields if name not in {"deploy", "sweep"}}
    display.outcome(training(**groups, run_id=run_id, fresh=fresh), json=json)


def _run_stage(
    config: Config,
    stage: Callable[[Run, Shards], Record],
    *,
    run_id: str | None,
    existing: bool = False,
    json: bool,
) -> None:
    """Carries out one stage on the shards that are there, without Prefect and MLflow."""
    from tasks.download.download import download
    from tasks.models.build import code_digest
    from tasks.prepare.prepare import find_shards
    from tasks.promote.warm_start import settle_warm_start
    from tasks.workers.cluster import refuse_stray_cluster
    from tasks.workers.locks import held_devices

    refuse_stray_cluster()
    workspace = workspace_of()
    config = settle_warm_start(config, workspace)
    shards = find_shards(config.name, config.data, download(config.data, workspace), workspace)
    with (
        open_run(
            workspace,
            config,
            data_digest=shards.data_digest,
            code_digest=code_digest(config.model, config.train.loss),
            run_id=run_id,
            existing=existing,
        ) as run,
        held_devices(config.distribute, run_id=run.id),
    ):
        display.record(stage(run, shards), json=json)
