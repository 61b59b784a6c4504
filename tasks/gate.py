"""Gate: the fields of a config that say what a new model must show before it takes the champion's place by itself."""

from typing import TYPE_CHECKING

from pydantic import Field

from tasks.errors import ConfigError
from tasks.section import Section
from tasks.target import FIGURES

if TYPE_CHECKING:
    from tasks.config import Config


class GateConfig(Section):
    """What a new model, the challenger, must show; it is compared with the champion on the same examples of
    evaluate.split, by the first figure of its report: accuracy, subset_accuracy, or mae."""

    minimum: dict[str, float] = {}
    """What figures of the report must reach, {figure: value}: at least, or of loss, mae and rmse at most. All that a
    first model is asked for, with latency and size."""
    slice_minimum: dict[str, float] = {}
    """Likewise of each slice of evaluate.slices that is not small."""
    margin: float = 0
    """By how much it must at least be better than the champion, in the unit of the figure; below 0: how much worse it
    may be."""
    alpha: float | None = Field(0.05, gt=0, lt=1)
    """Largest probability with which chance alone gives such a lead over the champion, by a paired test: of one class
    McNemar's exact one, else a bootstrap of the losses; null, or a margin below 0: it is told but not asked for."""
    max_slice_drop: float | None = Field(None, ge=0)
    """By how much a slice that is not small may be worse than the champion's, in the unit of the figure; default: by
    any."""
    max_latency_seconds: float | None = Field(None, gt=0)
    """Longest time of a call for one example, of which 95 % of the calls stay below; default: any. It is measured on
    the machine that exports."""
    max_size_bytes: int | None = Field(None, gt=0)
    """Largest size of the SavedModel with all that lies beside it; default: any."""


def check_gate(config: "Config") -> None:
    """Raises ConfigError if the gate asks for figures that data.target.kind has not, or for slices of which none is."""
    gate, kind = config.promote.gate, config.data.target.kind
    for field, figures in (("minimum", gate.minimum), ("slice_minimum", gate.slice_minimum)):
        for figure in figures:
            if figure not in FIGURES[kind]:
                raise ConfigError(
                    f"promote.gate.{field}.{figure}: does not fit data.target.kind={kind}, which has "
                    f"{', '.join(FIGURES[kind])}; take one of these"
                )
    for field, asked in (("slice_minimum", gate.slice_minimum), ("max_slice_drop", gate.max_slice_drop is not None)):
        if asked and not config.evaluate.slices:
            raise ConfigError(
                f"promote.gate.{field}: there are no slices, because evaluate.slices is empty; name columns there, or "
                "leave it out"
            )
