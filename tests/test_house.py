"""The rules of the house, read from its source."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tasks.config import OPERATIONAL_FIELDS, Config, load_config
from tasks.schema import fields_of

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "tasks").rglob("*.py"), *(ROOT / "flows").rglob("*.py")])
CONFIGS = sorted((ROOT / "conf").glob("*.yaml"))

# A room may import the rooms of earlier lines, and its own.
ORDER = (
    {
        "augmentation",
        "combinations",
        "config",
        "deployment",
        "distribution",
        "duration",
        "errors",
        "evaluation",
        "events",
        "files",
        "formats",
        "gate",
        "memory",
        "optimization",
        "overrides",
        "patterns",
        "progress",
        "runs",
        "schema",
        "secrets",
        "section",
        "size",
        "source_code",
        "sources",
        "splits",
        "starting_weights",
        "strict_yaml",
        "sweep",
        "target",
        "texts",
    },
    {"workers"},
    {"download"},
    {"prepare"},
    {"feed", "models", "track"},
    {"train"},
    {"evaluate"},
    {"export"},
    {"promote"},
    {"bench", "host"},
    {"flows"},
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
# What crosses a door: records of paths, counts and digests, which every room may know and which know no room.
RECORDS = {"manifest.py", "record.py", "report.py", "result.py"}
HEAVY = {"keras", "matplotlib", "mlflow", "optuna", "sklearn", "tensorflow", "tensorflow_datasets"}


def test_rooms_import_one_way() -> None:
    wrong = []
    for source in SOURCES:
        room = _room(_module(source))
        for module, _ in _imports(source):
            other = _room(module)
            if other is not None and f"{module.rpartition('.')[2]}.py" in RECORDS:
                continue
            if room is None or other is None or other == room:
                continue
            if RANK[other] > RANK[room] or (RANK[other] == RANK[room] > 0):
                wrong.append(f"{_name(source)} imports {module}")
    assert wrong == []


def test_records_stand_on_the_foundation_alone() -> None:
    assert [
        f"{_name(source)} imports {module}"
        for source in SOURCES
        if source.name in RECORDS
        for module, _ in _imports(source)
        if _room(module) not in {None, *ORDER[0]}
    ] == []


def test_prefect_is_imported_only_in_task_files_and_flows() -> None:
    assert [
        name
        for name in _importers("prefect")
        if not (name.startswith("flows/") or re.fullmatch(r"tasks/\w+/task\.py", name))
    ] == []


def test_mlflow_is_imported_only_in_track_and_promote() -> None:
    assert [name for name in _importers("mlflow") if not name.startswith(("tasks/track/", "tasks/promote/"))] == []


def test_optuna_is_imported_only_in_the_study() -> None:
    assert _importers("optuna") == ["flows/study.py"]


def test_what_runs_in_the_flow_process_imports_nothing_heavy_at_the_top() -> None:
    wrong = [
        f"{_name(source)} imports {module}"
        for source in SOURCES
        if _runs_in_flow_process(source)
        for module, at_top in _imports(source)
        if at_top and module.partition(".")[0] in HEAVY
    ]
    assert wrong == []


def test_what_runs_in_the_flow_process_brings_in_no_tensorflow() -> None:
    modules = [_module(source) for source in SOURCES if _runs_in_flow_process(source)]
    script = "import importlib, sys\n" + "".join(f"importlib.import_module({module!r})\n" for module in modules)
    script += "print([name for name in ('keras', 'tensorflow') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_tensorflow_devices_are_configured_only_in_devices() -> None:
    found = {
        _name(source)
        for source in SOURCES
        for node in ast.walk(_tree(source))
        if isinstance(node, ast.Attribute)
        and re.match(r"(tf|tensorflow)\.config\.(\w+\.)?(set_|list_physical_devices)", ast.unparse(node))
    }
    assert found <= {"tasks/workers/devices.py"}


def test_no_graph_is_made_by_autograph_from_rewritten_source() -> None:
    sources = [source for source in SOURCES if "bench" not in source.parts]  # its rivals follow TensorFlow's guide
    nodes = [(_name(source), node) for source in sources for node in ast.walk(_tree(source))]
    without = [
        node.func
        for _, node in nodes
        if isinstance(node, ast.Call)
        and any(each.arg == "autograph" and ast.unparse(each.value) == "False" for each in node.keywords)
    ]
    named = [
        (name, node)
        for name, node in nodes
        if isinstance(node, ast.Attribute) and node.attr == "function" and ast.unparse(node) == "tf.function"
    ]
    assert len(named) >= 8
    assert [f"{name}:{node.lineno}" for name, node in named if node not in without] == []


def test_no_file_is_longer_than_400_lines() -> None:
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py")]
    assert [_name(file) for file in files if len(file.read_text().splitlines()) > 400] == []


def test_no_module_is_named_after_nothing() -> None:
    assert [_name(source) for source in SOURCES if set(source.parts) & {"utils", "helpers", "common", "manager"}] == []
    assert [_name(source) for source in SOURCES if source.stem in {"utils", "helpers", "common", "manager"}] == []


def test_every_file_says_what_it_is() -> None:
    assert [_name(source) for source in SOURCES if not ast.get_docstring(_tree(source))] == []


def test_every_operational_field_is_a_field() -> None:
    assert set(fields_of(Config)) >= OPERATIONAL_FIELDS


def test_every_config_field_has_a_description() -> None:
    fields = fields_of(Config)
    groups = {path for path in fields if any(other.startswith(f"{path}.") for other in fields)}
    assert [
        path for path, field in fields.items() if not field.description and path not in groups and path[-5:] != ".kind"
    ] == []
    assert [path for path in groups if not fields[path].annotation.__doc__] == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_in_conf_is_valid(path: Path) -> None:
    assert load_config(path).name


def test_every_dependency_is_pinned_within_its_range() -> None:
    text = (ROOT / "conf" / "constraints.txt").read_text()
    pins = dict(line.split("==") for line in text.splitlines() if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(text for extra in project["optional-dependencies"].values() for text in extra),
    ]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement
    assert "://" not in text  # no registry's address


def _runs_in_flow_process(source: Path) -> bool:
    room = _room(_module(source))
    return room is not None and (
        (RANK[room] <= RANK["prepare"] and room != "workers")
        or room in {"track", "host", "flows"}
        or source.name in {"task.py", "stage.py", "register.py", "launch.py", *RECORDS}
    )


def _importers(package: str) -> list[str]:
    return [
        _name(source)
        for source in SOURCES
        if any(module.partition(".")[0] == package for module, _ in _imports(source))
    ]


def _imports(source: Path) -> Iterator[tuple[str, bool]]:
    """Yields every module that a file imports, and whether that happens when the file itself is imported."""
    yield from _imports_below(_tree(source), at_top=True)


def _imports_below(node: ast.AST, *, at_top: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, at_top) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            assert child.module is not None
            if child.module == "tasks":
                yield from ((f"tasks.{alias.name}", at_top) for alias in child.names)
            else:
                yield child.module, at_top
        else:
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or (
                isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            )
            yield from _imports_below(child, at_top=at_top and not deferred)


def _room(module: str) -> str | None:
    """Returns the room of a module of ours, such as prepare for tasks.prepare.plan."""
    first, *rest = module.split(".")
    return first if first == "flows" else rest[0] if first == "tasks" and rest else None


def _module(source: Path) -> str:
    return ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _name(source: Path) -> str:
    return source.relative_to(ROOT).as_posix()


def _tree(source: Path) -> ast.Module:
    return ast.parse(source.read_text())
