"""Evaluation: the fields of a config that say on what the best checkpoint is judged, and what is told of it."""

from typing import Literal

from pydantic import Field

from tasks.section import Section


class EvaluateConfig(Section):
    """On what the best checkpoint is judged."""

    split: Literal["train", "validation", "test"] = "test"
    """The split that is evaluated."""
    batch_size: int = Field(256, gt=0)
    """Examples in one forward pass over all replicas; padded and masked, so it changes no figure."""
    threshold: float = Field(0.5, gt=0, lt=1)
    """Probability from which a class is said to be there, of data.target.kind=binary and multi_label."""
    num_resamples: int = Field(1000, ge=0)
    """Resamples of the split from which each figure has its 95 % interval: with 1000 its ends lie still to a few
    percent of its width; 0: no intervals."""
    slices: tuple[str, ...] = ()
    """Columns by whose values the figures are told once more: features in the shards that are text or numbers, `label`,
    or `shard`."""
    min_slice_examples: int = Field(30, ge=1)
    """Examples below which a slice is marked as small: of 30 an accuracy is still uncertain by some 15 points."""
    num_worst: int = Field(12, ge=0)
    """Examples with the highest losses that are shown with their inputs."""
    check_leaks: bool = True
    """Whether to count examples whose inputs are those of a training example too, which reads the training split once
    more."""
