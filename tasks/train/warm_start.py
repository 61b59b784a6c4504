"""The warm start: a model's first weights, from a file whose every array is compared before one is taken."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path

import keras
from safetensors import SafetensorError, safe_open

from tasks.errors import ConfigError, DataError
from tasks.files import digest_file
from tasks.patterns import found_in
from tasks.starting_weights import FileWeights

SHOWN = 6
_CHECKPOINT_KEY = re.compile(r"\d{4} (\S+) \(.*\) \w+")  # as tasks/train/checkpoint.py writes them
_DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def warm_start(model: keras.Model, start: FileWeights) -> str:
    """Gives `model` the weights in a file, and returns a line on what was taken and what was not.

    Raises DataError if the file is missing, damaged or of another digest; ConfigError, before any weight is changed, if
    it lacks one that is not excluded, or holds it in another shape or type.
    """
    path, setting = Path(start.file), "model.warm_start"
    if not path.is_file():
        raise DataError(f"{path}: is not there, and {setting} names it; bring it back, or begin without it")
    if (digest := digest_file(path)) != start.sha256:
        raise DataError(
            f"{path}: has the sha256 {digest}, and {setting} wants {start.sha256}; bring back the right file"
        )
    weights = {variable.path: variable for variable in model.weights}
    if len(weights) < len(model.weights):
        twice = {path for path, count in Counter(variable.path for variable in model.weights).items() if count > 1}
        raise ConfigError(f"{setting}: the model has more than one {_some(sorted(twice))}; give their layers names")
    anew = found_in(start.exclude, weights, setting=f"{setting}.exclude") if start.exclude else []
    wanted = {name: variable for name, variable in weights.items() if name not in anew}
    try:
        with safe_open(path, framework="numpy") as file:
            keys = _keys_by_path(list(file.keys()), wanted, averages=start.averages)
            for name, variable in wanted.items():
                if name not in keys:
                    raise ConfigError(
                        f"{setting}: {path} has no {name}, but {_some(sorted(keys))}; leave it out with "
                        f"{setting}.exclude=[^{name}$], or build the model as that one was"
                    )
                part = file.get_slice(keys[name])
                found = tuple(part.get_shape()), _DTYPES.get(part.get_dtype(), part.get_dtype())
                if found != (tuple(variable.shape), variable.dtype):
                    raise ConfigError(
                        f"{setting}: {path} has {name} as {found[0]} {found[1]}, and the model as "
                        f"{tuple(variable.shape)} {variable.dtype}; leave it out with {setting}.exclude, or build the "
                        "model as that one was"
                    )
            for name, variable in wanted.items():
                variable.assign(file.get_tensor(keys[name]))
    except SafetensorError as error:
        raise DataError(f"{path}: is no file of safetensors ({error}); write it anew") from error
    unused = [name for name in _of_the_model(keys) if name not in weights]
    return (
        f"warm start: {len(wanted)} of {len(weights)} weights from {start.origin or path}"
        + (f"; drawn anew: {_some(anew)}" if anew else "")
        + (f"; of the file, not used: {_some(unused)}" if unused else "")
    )


def _keys_by_path(keys: list[str], wanted: Mapping[str, keras.Variable], *, averages: bool) -> dict[str, str]:
    """Returns the file's keys by the path of their weight; a checkpoint's averages in the place of what they are of."""
    by_path: dict[str, str] = {}
    for key in sorted(keys):  # a checkpoint's begin with their place
        match = _CHECKPOINT_KEY.fullmatch(key)
        by_path.setdefault(match[1] if match else key, key)
    if averages:
        for name in wanted:
            average = f"ema_{name.replace('/', '_')}"  # tasks/train/ema.py
            by_path |= {name: by_path.pop(average)} if average in by_path else {}
    return by_path


def _of_the_model(paths: Iterable[str]) -> list[str]:
    """Returns what may be weights of a model; in a checkpoint averages and the optimizer come after them."""
    first = takewhile(lambda path: not path.startswith("ema_") and not path.endswith("/iteration"), paths)
    return [path for path in first if not path.endswith("seed_generator_state")]


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
