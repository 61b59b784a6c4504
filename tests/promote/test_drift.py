"""Drift: how far the data of a run are from the champion's, by both manifests alone."""

import logging
import shutil
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.prepare.histogram import histogram_of
from tasks.prepare.manifest import MANIFEST, FeatureStatistics, ShardManifest
from tasks.promote.drift import compare, feature_drift, measure, psi
from tasks.promote.drift_plot import write_plot
from tasks.promote.promotion import CHAMPION
from tasks.promote.record import DRIFT, DRIFT_PLOT, Drift, FeatureDrift
from tasks.runs import Run
from tasks.track.client import open_client, tracking_uri
from tasks.track.tracker import tracked
from tests.conftest import Digits

COUNTS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=8)


def _numbers(numbers: list[float], *, missing: int = 0) -> FeatureStatistics:
    array = np.array(numbers, np.float64)
    quantiles = {str(level): float(np.quantile(array, level)) for level in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)}
    return FeatureStatistics(
        num_missing=missing, mean=float(array.mean()), quantiles=quantiles, histogram=histogram_of(array)
    )


def _manifest(digits: Digits, statistics: dict[str, FeatureStatistics], **counts: int) -> ShardManifest:
    manifest = digits.shards.manifest()
    counts = counts or {"zero": 50, "one": 50}
    train = manifest.splits["train"].model_copy(update={"class_counts": tuple(counts.values())})
    changes = {"statistics": statistics, "label_map": tuple(counts), "splits": {**manifest.splits, "train": train}}
    return manifest.model_copy(update=changes)


def test_known_distributions_have_their_figures() -> None:
    found = feature_drift(np.array([50, 50]), np.array([80, 20]))
    assert found.psi == pytest.approx(0.3 * log(0.8 / 0.5) - 0.3 * log(0.2 / 0.5))
    between = 0.5 * log(0.5 / 0.65) + 0.5 * log(0.5 / 0.35) + 0.8 * log(0.8 / 0.65) + 0.2 * log(0.2 / 0.35)
    assert found.js == pytest.approx(sqrt(between / 2 / log(2)))
    # With nothing in common: the least share stands for none.
    apart = feature_drift(np.array([7, 0]), np.array([0, 3]))
    assert (apart.psi, apart.js) == pytest.approx((2 * (1 - 1e-4) * log(1e4), 1))


@given(COUNTS)
def test_drift_is_the_same_both_ways_and_none_between_equals(counts: list[tuple[int, int]]) -> None:
    before, after = np.array([*counts, (1, 1)]).T
    found = feature_drift(before, after)
    assert found.psi >= 0
    assert 0 <= found.js <= 1
    back = feature_drift(after, before)
    assert (back.psi, back.js) == pytest.approx((found.psi, found.js), abs=1e-7)
    assert feature_drift(before, before) == FeatureDrift(psi=0, js=0)
    more = feature_drift(before, 3 * before)
    assert (more.psi, more.js) == pytest.approx((0, 0), abs=1e-7)


def test_numbers_are_compared_in_tenths_of_the_champions(digits: Digits) -> None:
    before = _manifest(digits, {"age": _numbers([*range(100)])})
    after = _manifest(digits, {"age": _numbers([*range(50), *range(50)], missing=100)})
    features, left_out = compare(before, after)
    shares = np.array([[0.1] * 10 + [0], [0.1] * 5 + [0] * 5 + [0.5]])
    assert features["age"].psi == pytest.approx(psi(*shares))
    assert features["label"] == FeatureDrift(psi=0, js=0)
    assert left_out == {}


@pytest.mark.parametrize(("value", "is_another"), [(5.0, False), (4.0, True), (6.0, True)])
def test_one_number_for_another_is_a_drift_though_the_champion_knows_no_other(
    digits: Digits, value: float, is_another: bool
) -> None:
    before, after = (_manifest(digits, {"age": _numbers([each] * 10)}) for each in (5.0, value))
    assert compare(before, after)[0]["age"].js == is_another


def test_values_words_and_classes_are_compared_by_name_and_rare_ones_together(digits: Digits) -> None:
    rare = tuple((f"rare {place}", 1) for place in range(50))
    before = {
        "colour": FeatureStatistics(vocabulary=(("red", 9950), *rare)),
        "comment": FeatureStatistics(vocabulary=(("good", 60), ("bad", 20)), num_tokens=100, num_missing=7),
    }
    after = {
        "colour": FeatureStatistics(vocabulary=(("red", 5000), ("blue", 3000)), num_missing=2000),
        "comment": FeatureStatistics(vocabulary=(("bad", 1), ("good", 3)), num_tokens=5),
    }
    features, _ = compare(_manifest(digits, before, one=30, two=70), _manifest(digits, after, two=50, three=50))
    colours = np.array([[0, 9950, 50, 0], [3000, 5000, 0, 2000]]) / 10_000  # blue, red, the rare ones, missing
    assert features["colour"].psi == pytest.approx(psi(*colours))
    assert features["comment"] == FeatureDrift(psi=0, js=0)
    assert features["label"].psi == pytest.approx(psi(np.array([0.3, 0, 0.7]), np.array([0, 0.5, 0.5])))


def test_what_cannot_be_compared_is_named_with_its_reason(digits: Digits) -> None:
    before = {
        "gone": _numbers([1]),
        "kind": _numbers([1]),
        "old": FeatureStatistics(mean=1.0),
        "text": FeatureStatistics(vocabulary=(), num_tokens=0),
        "none": FeatureStatistics(num_missing=3),
    }
    after = {
        "new": _numbers([1]),
        "kind": FeatureStatistics(vocabulary=(("1", 1),)),
        "old": _numbers([1]),
        "text": FeatureStatistics(vocabulary=(("good", 1),), num_tokens=1),
        "none": _numbers([1]),
    }
    one, other = _manifest(digits, before), _manifest(digits, after)
    features, left_out = compare(one, other.model_copy(update={"config": {"target": {"kind": "multi_label"}}}))
    assert set(features) == {"none"}
    assert features["none"].js == 1
    assert left_out == {
        "gone": "it is only in the data of the champion",
        "new": "it is only in the new data",
        "kind": "the statistics of both are not of one kind",
        "old": "its shards were written before histograms were kept",
        "text": "one of both has no words of it",
        "label": "data.target.kind was multiclass and is multi_label",
    }


def test_numbers_that_move_unseen_beside_a_few_of_another_size_are_not_said_to_stay(digits: Digits) -> None:
    def drift(before: list[float], after: list[float]) -> tuple[dict[str, FeatureDrift], dict[str, str]]:
        return compare(*(_manifest(digits, {"x": _numbers(numbers)}) for numbers in (before, after)))

    draws = np.random.default_rng(0)
    few, many, zeros = draws.normal(0, 1, 500), draws.normal(1000, 1, 9500), np.zeros(9500)
    assert "hides how they move" in drift([*few, *many], [*few, *many + 5])[1]["x"]
    assert "x" in drift([*many], [*few, *many])[1]  # of which the bins are as coarse
    assert drift([*many], [*many + 5])[0]["x"].psi > 5
    assert drift([*few, *zeros], [*few, *zeros])[0]["x"].psi == 0  # one number, however often


def test_the_plot_takes_any_number_of_features_of_any_name(tmp_path: Path) -> None:
    for num_features in (0, 1, 50):
        features = {f"${place} \\frac{'m' * 60}": FeatureDrift(psi=place, js=0.5) for place in range(num_features)}
        write_plot(Drift(champion="digits/1", features=features, not_compared={}), tmp_path / "drift.png")
        assert (tmp_path / "drift.png").read_bytes()[:4] == b"\x89PNG"


def test_figures_and_plot_of_a_drift_are_on_the_mlflow_run(
    digits: Digits, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millstream")
    champion, run = (digits.run("promote.registered_name=drifting") for _ in range(2))
    assert measure(champion, digits.shards) is None
    assert "drift: drifting has no champion yet" in caplog.text
    _make_champion(champion)
    shards = digits.shards.model_copy(update={"directory": tmp_path})
    manifest = digits.shards.manifest()
    counts = manifest.splits["train"].class_counts
    _manifest(digits, {}, **dict(zip(manifest.label_map, reversed(counts), strict=True))).write(tmp_path / MANIFEST)
    with tracked(run) as tracker:
        drift = measure(run, shards)
        assert drift is not None
        tracker.log_drift(drift)
    expected, actual = np.array([counts, counts[::-1]]) / sum(counts)
    found = _client_of(run).get_run(run.state().mlflow_run_id)
    assert found.data.metrics["drift/label/psi"] == found.data.metrics["drift/max_psi"] == psi(expected, actual)
    assert found.data.metrics["drift/label/js"] == drift.features["label"].js > 0
    files = {item.path for item in _client_of(run).list_artifacts(found.info.run_id)}
    assert files >= {DRIFT, DRIFT_PLOT}
    # What was found once holds, though the champion is another by now.
    assert measure(run, digits.shards) == drift


def test_a_champion_whose_manifest_is_gone_is_named_and_the_run_goes_on(
    digits: Digits, caplog: pytest.LogCaptureFixture
) -> None:
    champion, run = (digits.run("promote.registered_name=lost") for _ in range(2))
    _make_champion(champion, with_data=False)
    assert measure(run, digits.shards) is None
    assert "drift: not measured, the manifest of lost/1 cannot be had: " in caplog.text


def _client_of(run: Run):
    return open_client(tracking_uri(run))


def _make_champion(run: Run, *, with_data: bool = True) -> None:
    """Registers a version for a run that is tracked, but not trained."""
    with tracked(run) as tracker:
        mlflow_run_id = tracker.mlflow_run_id()
    client, name = _client_of(run), run.config.promote.registered_name
    if not with_data:
        shutil.rmtree(f"{client.get_run(mlflow_run_id).info.artifact_uri}/data")
    client.create_registered_model(name)
    client.create_model_version(name, "file:///nowhere", run_id=mlflow_run_id)
    client.set_registered_model_alias(name, CHAMPION, "1")
