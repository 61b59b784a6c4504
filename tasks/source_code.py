"""Source code: the files that a module of the user's is made of, and their digest."""

import ast
import importlib
import sys
import sysconfig
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, cast

from tasks.errors import ConfigError
from tasks.files import digest_file, digest_json

_INSTALLED = frozenset(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib"))


def source_code_digest(module: str, folder: str | None, *, setting: str) -> str:
    """Returns a digest of the source files that `module` is made of, without importing them.

    They are its own and those of what it imports from the same folder tree; installed packages are left to the versions
    that a run records. `folder` stands in front of the import path. `setting` is what the config says of the module,
    such as "model.build='mine:build'", for the ConfigError that is raised if it is not found or one of the files is not
    valid Python.
    """
    file = _find(module, [folder, *sys.path] if folder else sys.path)
    if file is None:
        place = f"{setting.partition('=')[0].rpartition('.')[0]}.folder".replace("train.", "model.")
        raise ConfigError(
            f"{setting}: no module {module!r} in {place}={folder} or the installed packages; "
            f"put the file beside the config or set {place}"
        )
    # The folder of the import path in which it was found, above its packages.
    root = file.parents[module.count(".") + (file.name == "__init__.py")]
    files: dict[str, Path] = {}
    # Where packages are installed, others lie beside the module's own: TensorFlow does.
    _collect(module, root, files, within=module.partition(".")[0] if root in _INSTALLED else "")
    return digest_json({name: digest_file(file) for name, file in files.items()})


def run_code_digest(build: str, folder: str | None, loss: str) -> str:
    """Returns a digest of the source files of a run's `model.build`, and of its `train.loss` if that is one's own.

    Raises as `source_code_digest` does.
    """
    digests = [
        source_code_digest(path.partition(":")[0], folder, setting=f"{setting}={path!r}")
        for setting, path in (("model.build", build), ("train.loss", loss))
        if ":" in path
    ]
    return digests[0] if len(digests) == 1 else digest_json(digests)


def pipeline_digest() -> str:
    """Returns a digest of the source files of this package: in a checkout its release does not tell what is run."""
    package = Path(__file__).parent
    return digest_json({str(file.relative_to(package)): digest_file(file) for file in package.rglob("*.py")})


def import_function(path: str, folder: str | None, *, setting: str) -> Callable[..., Any]:
    """Returns the function of an import path 'module:function'; `folder` is put in front of the import path.

    Raises ConfigError, which names `setting`, if it cannot be imported.
    """
    module, _, function = path.partition(":")
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return cast(Callable[..., Any], getattr(importlib.import_module(module), function))
    except ImportError as error:
        raise ConfigError(f"{setting}={path!r}: cannot be imported: {error}; is model.folder right?") from error
    except AttributeError as error:
        raise ConfigError(f"{setting}={path!r}: {error}; name a function of that module") from error


def _find(module: str, path: list[str]) -> Path | None:
    """Returns the source file of a module without running its parent packages, as importlib.util.find_spec would."""
    spec = None
    for part in module.split("."):
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return Path(spec.origin) if spec is not None and spec.origin else None


def _collect(module: str, root: Path, files: dict[str, Path], *, within: str) -> None:
    """Adds to `files` the source of `module` and, below `root`, of all that it imports; of one package if `within`."""
    if within and module.partition(".")[0] != within:
        return
    file = _find(module, [str(root)])
    if module in files or file is None or file.suffix != ".py":
        return
    files[module] = file
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(_parse(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                _collect(alias.name, root, files, within=within)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for name in [base, *(f"{base}.{alias.name}" for alias in node.names)]:
                _collect(name, root, files, within=within)


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except SyntaxError as error:
        raise ConfigError(f"{file}, line {error.lineno}: not valid Python: {error.msg}; correct it") from None
