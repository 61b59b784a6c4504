"""Labels: the classes behind values of any type, and each value as an index into them."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.download.listing import natural_key
from tasks.errors import ConfigError
from tasks.prepare.wording import shown

MAX_CLASSES = 10_000
"""More different values than this are no classes."""


def class_name(value: Any) -> str:
    """Returns the name of the class that a value means: 7 and 7.0 are '7', True is 'true', text is itself.

    Takes what Python and numpy have for text, UTF-8 bytes, whole numbers, floats and truth values. Raises ValueError,
    the end of a sentence, for a float that is not whole and for anything else.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"is {value}, not a class: text, a whole number or a truth value")
        return str(int(value))
    if isinstance(value, int | str):
        return str(value)
    raise ValueError(f"is {type(value).__name__}, not a class: text, a whole number or a truth value")


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Returns classes sorted with the numbers in their names as numbers: 2 before 10, a2 before a10.

    It is the order of files, but for classes that are whole numbers all: there a minus counts, so that -3 is before -1.
    In a file's name it is a hyphen.
    """
    names = list(names)
    if all(re.fullmatch(r"-?[0-9]+", name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names, key=natural_key))


def given_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """Returns data.source.classes as they are; raises ConfigError if one is given twice."""
    if len(set(classes)) < len(classes):
        twice = next(name for index, name in enumerate(classes) if name in classes[:index])
        raise ConfigError(f"data.source.classes: {twice!r} is given twice; keep one")
    return tuple(classes)


def label_map(values: Iterable[Any], target: str, classes: Sequence[str] | None = None) -> tuple[str, ...]:
    """Returns the class names of a target's different values in natural order, or `classes` if they are given.

    Raises ConfigError, which names `target`, if there are more than 10,000, if none, if a value is a float that is not
    whole (a regression target), or if one class is given twice.
    """
    if classes is not None:
        return given_classes(classes)
    names = set()
    for value in values:
        try:
            names.add(class_name(value))
        except ValueError as error:
            raise ConfigError(
                f"data.source.target: {target!r} {error}; to learn the number itself, take "
                "data.target.kind=regression, else choose a column of classes"
            ) from None
        if len(names) > MAX_CLASSES:
            raise ConfigError(
                f"data.source.target: {target!r} has more than {MAX_CLASSES:,} different values, such as {value!r}; "
                "to learn the number itself, take data.target.kind=regression, else choose a column of classes"
            )
    if not names:
        raise ConfigError(f"data.source.target: {target!r} has no value in any example; choose another column")
    return natural_order(names)


def label_index(classes: Sequence[str], value_type: type) -> dict[str, int]:
    """Returns the label of each class by what `class_name` calls it, for values that are str, int, float or bool.

    A class given as 1.0 is thus found among numbers, and True among truth values. Raises ConfigError if two classes
    are then one.
    """
    index = {_as_named(name, value_type): label for label, name in enumerate(classes)}
    if len(index) < len(classes):
        raise ConfigError(
            f"data.source.classes: two of {list(classes)} are one and the same {value_type.__name__}; keep one"
        )
    return index


def labels_of(values: NDArray[Any] | Sequence[Any], index: dict[str, int]) -> NDArray[np.int64]:
    """Returns the label of each of n values, int64 [n]; -1 where a value is no class of `index`."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        different, places = np.unique(values, return_inverse=True)
        return np.array([_label(value, index) for value in different], np.int64)[places.reshape(-1)]
    known: dict[tuple[type, Any], int] = {}  # True, 1 and 1.0 are one key of a dict, but not one class
    for value in values:
        if (type(value), value) not in known:
            known[type(value), value] = _label(value, index)
    return np.array([known[type(value), value] for value in values], np.int64)


def why_no_class(value: Any) -> str:
    """Returns what is wrong with a value that `labels_of` found no class for, as the end of a sentence."""
    return f"is {shown(value)}, which is not one of data.source.classes"


def one_hot_labels(values: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the place of the 1 in each row of [n, classes], int64 [n]; -1 where not one is 1 and the others 0."""
    ones = values == 1
    fits = (ones.sum(axis=1) == 1) & ((values == 0) | ones).all(axis=1)
    return np.where(fits, ones.argmax(axis=1), -1)


def split_names(text: str | None, delimiter: str) -> list[str]:
    """Returns the names of classes in a text, without blanks round them; an empty one and None have none."""
    return [name.strip() for name in text.split(delimiter)] if text and text.strip() else []


def multi_hot(named: Sequence[Sequence[str]], classes: Sequence[str]) -> tuple[NDArray[np.uint8], dict[int, str]]:
    """Returns which of the classes each example names, [n, num_classes], and what is wrong with one, by its place."""
    index = {name: place for place, name in enumerate(classes)}
    hot, wrong = np.zeros((len(named), len(classes)), np.uint8), {}
    for row, names in enumerate(named):
        for name in names:
            if name in index:
                hot[row, index[name]] = 1
            else:
                what = f"has {shown(name)}" if name else "has an empty name"
                wrong[row] = f"{what} in it, which is not one of data.source.classes"
    return hot, wrong


def _label(value: Any, index: dict[str, int]) -> int:
    try:
        return index.get(class_name(value), -1)
    except ValueError:
        return -1


def _as_named(name: str, value_type: type) -> str:
    if value_type is bool and name.lower() in ("true", "false", "0", "1"):
        return "true" if name.lower() in ("true", "1") else "false"
    if value_type in (int, float):
        try:
            return class_name(int(name) if re.fullmatch(r"[+-]?[0-9]+", name) else float(name))
        except (ValueError, OverflowError):
            return name
    return name
