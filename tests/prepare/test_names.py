"""Names of features: what Keras and a SavedModel's signature can have, and never one for two."""

import re

import pytest

from tasks.errors import ConfigError
from tasks.prepare.names import feature_names


def test_feature_names_are_valid_for_keras_and_signatures() -> None:
    names = ["a_b", "petal length (cm)", "größe", "中", "2nd", "class", "_y", "-"]
    assert list(feature_names(names[:6]).values()) == [
        "a_b",
        "petal_length_cm",
        "groudfe",
        "u4e2d",
        "x2nd",
        "class_",
    ]
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) for name in feature_names(names).values())
    with pytest.raises(ConfigError, match=r"'a_b' and 'a\.b' would both be the feature 'a_b'"):
        feature_names(["a_b", "c", "a.b"])
