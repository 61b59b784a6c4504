"""The parity bench: it tells a model that is the same on any number of replicas from one that is not."""

import math
from pathlib import Path

import pytest

from tasks.bench.parity import bench_parity, parted
from tasks.bench.parity_report import ParityReport, Parting
from tasks.bench.runner import examine_host
from tasks.config import build_config

TRAIN_TESTS = Path(__file__).parents[1] / "train"


def report(*rows):
    return ParityReport(num_steps=3, rows=rows, host=examine_host([]))


def parting(replicas, **fields):
    return Parting(side="ours", precision="float64", num_replicas=replicas, tolerance=1e-9, **fields)


def test_trainings_part_at_the_first_step_after_which_a_variable_differs_by_more_than_rounding():
    worst = [["kernel", 1e-12], ["bias", 1e-3], ["kernel", None]]
    found = parted({"worst": worst}, tolerance=1e-9)
    assert found == {"first_step": 2, "first_variable": "bias", "difference": math.inf, "variable": "kernel"}
    assert parted({"worst": [["kernel", 0.0]]}, tolerance=1e-9)["variable"] == ""


def test_the_verdict_is_that_of_float64_and_names_the_variable():
    single = Parting(side="ours", precision="float32", num_replicas=2, tolerance=1e-6, first_step=1)
    assert report(parting(1), parting(2), single).verdict().startswith("float64: the same after each of 3 steps")
    apart = report(parting(1), parting(2, first_step=2, first_variable="bias"))
    assert "not the same: on 2 replicas bias is another after step 2" in apart.verdict()
    assert "cannot be said" in report(parting(1), parting(2, failed="it crashed")).verdict()


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_ours_is_the_same_on_two_replicas_and_fit_is_not_where_a_batch_cannot_be_halved(digits, workers, tmp_path):
    overrides = (f"model.folder={TRAIN_TESTS}", "model.build=models_for_tests:dense", "model.args={}")
    short = ("train.precision=float64", "feed.global_batch_size=3", "train.clip.limit=0.5")
    config = build_config(digits.config.model_dump(mode="json"), [*overrides, *short])
    found = bench_parity(config, digits.workspace, num_steps=2, replicas=(2, 1), fit=True)
    rows = {(row.side, row.num_replicas): row for row in found.rows}
    assert [*rows] == [("ours", 1), ("ours", 2), ("fit", 1), ("fit", 2)]
    assert rows["ours", 2].first_step is None
    assert rows["ours", 2].difference <= 1e-9
    assert rows["fit", 2].failed or rows["fit", 2].first_step == 1
    assert found.verdict().startswith("float64: the same")
