"""Columns: what is stored of each example by which the figures of a split can be told, besides what is learned."""

from collections.abc import Sequence

from tasks.errors import ConfigError
from tasks.prepare.manifest import ShardManifest

SHARD = "shard"
_KINDS = frozenset({"text", "category", "number", "missing", "id"})


def column_names(manifest: ShardManifest) -> tuple[str, ...]:
    """Returns the names that evaluate.slices may have.

    Features that are text or numbers, the target (of a regression each of its numbers), and SHARD: the file.
    """
    features = [name for name, feature in manifest.features.items() if feature.kind in _KINDS]
    target = manifest.label_map if manifest.target_kind == "regression" else (manifest.target,)
    return tuple(dict.fromkeys((*features, *target, SHARD)))


def check_columns(manifest: ShardManifest, names: Sequence[str]) -> None:
    """Raises ConfigError if evaluate.slices names what is not stored."""
    known = column_names(manifest)
    for name in names:
        if name not in known:
            why = (
                f"is {manifest.features[name].kind}, by whose values nothing can be told apart"
                if name in manifest.features
                else "is not stored in the shards, which hold only inputs and what is learned"
            )
            raise ConfigError(f"evaluate.slices: {name!r} {why}; take any of {', '.join(known)}")
