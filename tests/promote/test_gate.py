"""The gate: what is asked of a challenger, what was found, and what follows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.config import build_config
from tasks.errors import ConfigError
from tasks.evaluate.report import EvalReport, SliceFigures
from tasks.evaluation import EvaluateConfig
from tasks.export.manifest import ExportManifest, Latency
from tasks.gate import GateConfig
from tasks.promote.gate import decide, slice_headlines
from tasks.promote.paired_test import mcnemar, paired_bootstrap
from tasks.promote.record import Champion, Decision, RegisteredModel

CHALLENGER = RegisteredModel(name="digits", version=7, uri="models:/digits/7", digest="0" * 64)
EXPORTED = ExportManifest(
    directory=Path("models/digits"),
    step=10,
    digest="0" * 64,
    size_bytes=1000,
    formats=("savedmodel",),
    signatures=("serving_default",),
    num_warmup_requests=0,
    latencies=(
        Latency(batch_size=1, num_calls=50, p50_ms=1.0, p95_ms=2.5),
        Latency(batch_size=64, num_calls=50, p50_ms=9.0, p95_ms=9.5),
    ),
    num_parity_examples=256,
    largest_difference=0,
    label_map=("no", "yes"),
    inputs={},
    outputs={},
)
SLICES = {"red": (40, 0.9), "blue": (50, 0.7), "green": (3, 0.0)}


def _report(headline: str = "accuracy", **figures: float) -> EvalReport:
    return EvalReport(
        checkpoint=Path("10"),
        split="test",
        num_examples=93,
        settings=EvaluateConfig(),
        figures=figures or {"accuracy": 0.9, "loss": 0.25},
        headline=headline,
        classes=(),
        slices=tuple(
            SliceFigures(
                column="colour", value=value, num_examples=number, is_small=number < 30, figures={headline: figure}
            )
            for value, (number, figure) in SLICES.items()
        ),
        directory=Path("report"),
    )


def _champion(p_value: float = 0.01, **figures: float) -> Champion:
    return Champion(
        version=3,
        figures=figures or {"accuracy": 0.8, "loss": 0.5},
        slices={"colour=red": 0.85, "colour=blue": 0.75},
        p_value=p_value,
        test="by hand",
    )


def _decide(champion: Champion | None, report: EvalReport | None = None, **gate: Any) -> Decision:
    return decide(GateConfig(**gate), CHALLENGER, report or _report(), EXPORTED, champion)


def test_the_first_model_needs_the_minimum_alone() -> None:
    first = _decide(None)
    assert (first.accepted, first.reasons, first.champion, first.p_value) == (
        True,
        ("there is no champion yet",),
        None,
        None,
    )
    assert _decide(None, minimum={"accuracy": 0.9, "loss": 0.25}, margin=0.5, max_slice_drop=0).accepted
    low = _decide(None, minimum={"accuracy": 0.95, "loss": 0.2, "roc_auc": 0.5})
    assert (low.accepted, low.reasons) == (
        False,
        (
            "accuracy of the test split must be at least 0.95, and is 0.9",
            "loss of the test split must be at most 0.2, and is 0.25",
            "roc_auc of the test split must be at least 0.5, and cannot be told",
        ),
    )


def test_a_lead_must_be_as_large_as_the_margin_and_not_chance() -> None:
    better = _decide(_champion())
    assert better.accepted
    assert better.reasons == (
        "accuracy must not be worse than the champion's 0.8, and is 0.9",
        "chance must give such a lead with a probability of at most 0.05, and gives it with 0.01 (by hand)",
    )
    assert (better.champion, better.p_value, better.champion_figures) == (3, 0.01, {"accuracy": 0.8, "loss": 0.5})
    assert _decide(_champion(), margin=0.1).accepted  # though 0.9 - 0.8 < 0.1 in floating point
    assert _decide(_champion(), margin=0.11).reasons == (
        "accuracy must be better than the champion's 0.8 by at least 0.11, and is 0.9",
    )
    assert _decide(_champion(p_value=0.06)).reasons == (
        "chance must give such a lead with a probability of at most 0.05, and gives it with 0.06 (by hand)",
    )
    assert _decide(_champion(p_value=0.06), alpha=None).accepted
    worse = _champion(p_value=1, accuracy=0.95)
    assert not _decide(worse, alpha=None).accepted
    assert _decide(worse, margin=-0.05).accepted
    assert _decide(worse, margin=-0.04).reasons == (
        "accuracy must not be worse than the champion's 0.95 by over 0.04, and is 0.9",
    )


def test_of_an_error_less_is_better() -> None:
    report = _report("mae", mae=2.0)
    assert _decide(_champion(mae=3.0), report, margin=1).accepted
    assert not _decide(_champion(mae=1.5), report, alpha=None).accepted
    assert _decide(None, report, minimum={"mae": 1.9}).reasons == (
        "mae of the test split must be at most 1.9, and is 2",
    )


def test_slices_that_are_not_small_must_not_fall_too_far() -> None:
    assert slice_headlines(_report()) == {"colour=red": 0.9, "colour=blue": 0.7}
    assert _decide(_champion(), max_slice_drop=0.05).accepted
    assert _decide(_champion(), max_slice_drop=0.04).reasons == (
        "accuracy of colour=blue must not be worse than the champion's 0.75 by over 0.04, and is 0.7",
    )
    assert _decide(None, slice_minimum={"accuracy": 0.8}).reasons == (
        "accuracy of colour=blue must be at least 0.8, and is 0.7",
    )


def test_time_and_size_have_their_limits() -> None:
    assert _decide(_champion(), max_latency_seconds=0.0025, max_size_bytes=1000).accepted
    unmeasured = EXPORTED.model_copy(update={"latencies": ()})
    assert decide(GateConfig(max_latency_seconds=1), CHALLENGER, _report(), unmeasured, None).reasons == (
        "a call for one example must take at most 1 s (p95), and that was not measured",
    )
    assert _decide(None, max_latency_seconds=0.002, max_size_bytes=999).reasons == (
        "a call for one example must take at most 0.002 s (p95), and takes 0.0025 s",
        "the model must have at most 999 bytes, and has 1000",
    )


def test_mcnemar_counts_what_only_one_of_them_has_right() -> None:
    challenger = np.array([1, 1, 1, 1, 1, 0, 1, 0], bool)
    champion = np.array([0, 0, 0, 0, 0, 1, 1, 0], bool)
    found = mcnemar(challenger, champion)
    assert found.p_value == pytest.approx(7 / 64)  # five or six heads of six coins
    assert found.words == "McNemar, exact: only the challenger is right on 5, only the champion on 1"
    assert mcnemar(champion, challenger).p_value == pytest.approx(63 / 64)
    assert mcnemar(champion, champion).p_value == 1


def test_the_bootstrap_tells_a_lower_loss_from_chance() -> None:
    losses = np.arange(20.0)
    assert paired_bootstrap(losses, losses + 0.5).p_value == 1e-4  # in no resample is it not lower
    assert paired_bootstrap(losses, losses).p_value == 1
    assert paired_bootstrap(losses + 0.5, losses).p_value == 1
    assert paired_bootstrap(losses[:1], losses[:1] + 9).p_value == 1
    # Of two examples, one of which is won and one lost more: resamples of the first alone, a quarter of all.
    even = paired_bootstrap(np.array([0.0, 1.0]), np.array([0.5, 0.0]))
    assert even.p_value == pytest.approx(0.75, abs=0.02)
    assert even == paired_bootstrap(np.array([0.0, 1.0]), np.array([0.5, 0.0]))


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (
            {"minimum": {"mae": 3}},
            r"promote\.gate\.minimum\.mae: does not fit data\.target\.kind=multiclass, which has accuracy, loss; take",
        ),
        ({"max_slice_drop": 0.1}, r"promote\.gate\.max_slice_drop: there are no slices, because evaluate\.slices is"),
        ({"slice_minimum": {"accuracy": 0.1}}, r"promote\.gate\.slice_minimum: there are no slices"),
        ({"alpha": 0}, r"promote\.gate\.alpha=0: must be greater than 0 \(Largest probability"),
        ({"margins": 0}, r"promote\.gate\.margins=0: no such field; did you mean promote\.gate\.margin\?"),
    ],
)
def test_a_gate_that_cannot_be_is_refused(gate: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config({"name": "digits", "promote": {"gate": gate}})
