"""The user's model: found by its import path, built, and looked at before it is trained."""

import ast
import importlib
import inspect
import logging
import sys
import sysconfig
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.config import ModelConfig
from tasks.errors import ConfigError
from tasks.files import digest_file, digest_json

if TYPE_CHECKING:
    import keras

logger = logging.getLogger("millstream")

# Stock layers whose result depends on the number of replicas, and what to use in their place.
REPLICA_DEPENDENT = {
    "BatchNormalization": "tasks.models.layers.SyncBatchNorm",
    "Dropout": "tasks.models.layers.StatelessDropout",
    "SpatialDropout1D": "tasks.models.layers.StatelessDropout",
    "SpatialDropout2D": "tasks.models.layers.StatelessDropout",
    "GaussianDropout": "tasks.models.layers.StatelessDropout",
    "AlphaDropout": "tasks.models.layers.StatelessDropout",
}


_INSTALLED = frozenset(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib"))


def build_model(
    config: ModelConfig, inputs: Mapping[str, tuple[tuple[int, ...], str]], num_classes: int
) -> "keras.Model":
    """Returns the model of `config.build`, its random layers numbered.

    `inputs` are (shape without the batch, dtype) by name: Preprocess.inputs.
    Raises ConfigError if the function cannot be imported or called, or returns no model of logits [b, num_classes].
    Call it inside the strategy's scope.
    """
    import keras

    from tasks.models.layers import number_random_layers

    build = _import_build(config)
    tensors = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in inputs.items()}
    try:
        inspect.signature(build).bind(tensors, num_classes, **config.args)
    except TypeError as error:
        raise ConfigError(
            f"model.build={config.build!r}: does not take model.args={config.args}: {error}; its signature must be "
            "build(inputs: dict[str, keras.KerasTensor], num_classes: int, **args) -> keras.Model"
        ) from None
    model = build(tensors, num_classes, **config.args)
    if not isinstance(model, keras.Model):
        raise ConfigError(f"model.build={config.build!r}: returned {type(model).__name__}, not a keras.Model")
    if not isinstance(model.input, dict) or set(model.input) - set(inputs):
        raise ConfigError(
            f"model.build={config.build!r}: its inputs are not by name; end it with keras.Model(inputs, ...), "
            f"inputs being the dict of {', '.join(inputs)} that it was given"
        )
    if model.output_shape != (None, num_classes):
        raise ConfigError(
            f"model.build={config.build!r}: its output has the shape {model.output_shape}; "
            f"it must be logits of shape (None, {num_classes}), one for each class"
        )
    for layer in model._flatten_layers():
        better = REPLICA_DEPENDENT.get(type(layer).__name__)
        if better and not getattr(layer, "synchronized", False):
            logger.warning(
                "model layer %s (%s): its result depends on the number of replicas; %s does not",
                layer.name,
                type(layer).__name__,
                better,
            )
    number_random_layers(model)
    return model


def code_digest(config: ModelConfig) -> str:
    """Returns a digest of the source files that `config.build` is made of, without importing them.

    They are its module and what that imports from the same folder tree; installed packages are left to the versions
    that a run records. Raises ConfigError if the module is not found or one of the files is not valid Python.
    """
    module = config.build.partition(":")[0]
    path = [config.folder, *sys.path] if config.folder else sys.path
    file = _find(module, path)
    if file is None:
        raise ConfigError(
            f"model.build={config.build!r}: no module {module!r} in model.folder={config.folder} or the installed "
            "packages; put the file beside the config or set model.folder"
        )
    # The folder of the import path in which it was found, above its packages.
    root = file.parents[module.count(".") + (file.name == "__init__.py")]
    files: dict[str, Path] = {}
    # Where packages are installed, others lie beside the module's own: TensorFlow does.
    _collect(module, root, files, within=module.partition(".")[0] if root in _INSTALLED else "")
    return digest_json({name: digest_file(file) for name, file in files.items()})


def _import_build(config: ModelConfig) -> Callable[..., Any]:
    module, _, function = config.build.partition(":")
    if config.folder and config.folder not in sys.path:
        sys.path.insert(0, config.folder)
    try:
        return getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise ConfigError(
            f"model.build={config.build!r}: cannot be imported: {error}; is model.folder right?"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"model.build={config.build!r}: {error}; name a function of that module") from error


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
