"""Readers as a user would write them."""

import datetime
import io

import numpy as np
from PIL import Image


def good(n=4, skip=()):
    for i in range(n):
        example = {
            "label": ["b10", "b9"][i % 2],
            "age": i,
            "weight": i / 2,
            "short": np.float32(0.1),
            "grid": np.full((2, 3), -i, np.int16),
            "mask": np.array([i % 2 == 0, True]),
            "colour": "rot",
            "note": f"süß {i}",
            "photo": _png(i),
            "day": datetime.date(2026, 1, 1 + i),
            "split": ["train", "test"][i // 2 % 2],
            "key": f"k{i}",
        }
        yield {name: value for name, value in example.items() if name not in skip}


def sign(number):
    if number > 2:  # of a tensor: only AutoGraph makes this a part of the graph
        return number
    return -number


def of_tensorflow():
    import tensorflow as tf

    for number in tf.data.Dataset.range(6).map(sign).as_numpy_iterator():
        yield {"label": ["even", "odd"][abs(number) % 2], "x": int(number)}


def broken(number):
    for i, example in enumerate(good(9, skip=["photo", "day"]), start=1):
        if i == number:
            raise OSError("the tape\nis torn")
        yield example


def no_list():
    return 3


def first_is(**values):
    yield {"label": 1, "age": 2, **values}


def first_is_an_array(dtype):
    yield {"label": 1, "x": np.zeros(2, dtype)}


def one_hot():
    yield {"label": np.array([0, 1]), "x": 1}


def spoilt():
    """Yields a good example, then bad ones of each kind, then a good one."""
    whole = {"label": 1, "age": 2, "weight": 0.5, "grid": np.zeros((2, 2), np.float32), "text": "a", "key": "k1"}
    yield whole
    yield {name: value for name, value in whole.items() if name != "age"} | {"key": "k2"}
    yield whole | {"grid": np.zeros((2, 3), np.float32), "key": "k3"}
    yield whole | {"grid": np.zeros((2, 2)), "key": "k4"}
    yield whole | {"age": None, "key": "k5"}
    yield whole | {"age": 2.5, "key": "k6"}
    yield whole | {"age": 2**63, "key": "k7"}
    yield whole | {"weight": 2**53 + 1, "key": "k8"}
    yield whole | {"text": "\udc80", "key": "k9"}
    yield whole | {"extra": 1, "key": "k10"}
    yield whole
    yield [1, 2]
    yield whole | {"weight": float("nan"), "key": "k13"}
    yield whole | {"grid": np.full((2, 2), np.inf, np.float32), "key": "k14"}
    yield whole | {"age": np.uint8(7), "weight": 3, "key": "k15"}


def _png(value):
    data = io.BytesIO()
    Image.new("L", (2, 2), value).save(data, "png")
    return data.getvalue()


def learned(values):
    """Examples that differ in what is learned only."""
    for value in values:
        yield {"x": 1, "label": value}
