"""Statistics that no rounding, no size of a number and no column of the wrong kind can spoil."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.errors import ConfigError
from tasks.prepare import statistics
from tasks.prepare.manifest import Feature, FeatureStatistics
from tasks.prepare.statistics import Summaries

FEATURES = {
    "price": Feature(kind="number", shape=(), dtype="float64", storage="raw_bytes"),
    "cut": Feature(kind="category", shape=(), dtype="string", storage="bytes_list"),
}


def _summarized(name: str, *batches: list[Any]) -> FeatureStatistics:
    summaries = Summaries({name: FEATURES[name]})
    type = pa.float64() if name == "price" else pa.binary()
    for values in batches:
        summaries.add({name: pa.array(values, type)}, np.ones(len(values), bool))
    return summaries.result()[name]


@pytest.mark.parametrize("value", [0.1, 1e308, 1_700_000_000_000_000.3])
def test_equal_numbers_have_no_deviation_however_their_mean_is_rounded(value: float) -> None:
    found = _summarized("price", [value] * 1000, [value] * 333)
    assert (found.mean, found.std, found.min, found.max) == (value, 0, value, value)


@pytest.mark.parametrize("values", [[1e308, 1e308, 1], [-1e200, 1e200]])
def test_numbers_without_a_finite_deviation_are_refused(values: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"price holds numbers from .* to .*, which are too large to be normalised"):
        _summarized("price", values)


def test_too_many_different_texts_are_no_categories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_CATEGORIES", 3)
    assert len(_summarized("cut", [b"a", b"b"], [b"b", b"c"]).vocabulary or ()) == 3
    with pytest.raises(ConfigError, match=r"cut has more than 3 different values.*name it in data\.source\.text"):
        _summarized("cut", [b"a", b"b"], [b"c", b"d"])
