"""Names of features: those that Keras inputs and the arguments of a SavedModel's signature can have."""

import keyword
import re
import unicodedata
from collections.abc import Mapping, Sequence

from tasks.errors import ConfigError
from tasks.prepare.source import ID, LABEL

MARK = "_missing"
"""What follows a feature's name in the name of the feature that marks its missing values."""


def feature_names(names: Sequence[str], what: str = "column") -> dict[str, str]:
    """Returns the feature's name of each source's own name, the same if it will do.

    A feature's name is of ASCII letters, digits and underscores and begins with a letter: accents are dropped, other
    letters become their code point (`u4e2d`), anything else an underscore. Raises ConfigError if two names become one.
    """
    names_by_feature: dict[str, str] = {}
    for name in names:
        feature = _feature_name(name)
        if (other := names_by_feature.setdefault(feature, name)) != name:
            raise ConfigError(
                f"data.source: the {what}s {other!r} and {name!r} would both be the feature {feature!r}; rename one, "
                f"or leave it out"
            )
    return {name: feature for feature, name in names_by_feature.items()}


def rename_notes(names: Mapping[str, str], what: str = "column") -> tuple[str, ...]:
    """Returns a note on the names that `feature_names` has changed, if any."""
    renamed = [f"{name} is {feature}" for name, feature in names.items() if name != feature]
    return (f"{what}s renamed, because no model input can have such a name: {', '.join(renamed)}",) if renamed else ()


def _feature_name(name: str) -> str:
    ascii_only = "".join(_ascii(character) for character in unicodedata.normalize("NFKD", name))
    feature = ascii_only
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", feature):
        feature = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_]", "_", feature)).strip("_")
    if not feature or not feature[0].isalpha():
        feature = f"x{feature}"
    return f"{feature}_" if keyword.iskeyword(feature) or feature in (LABEL, ID) else feature


def _ascii(character: str) -> str:
    if character.isascii():
        return character
    return "" if unicodedata.combining(character) else f"u{ord(character):x}"
