"""The scaling bench: every number of replicas is there, sums are checked, MLflow has it all."""

from pathlib import Path

import mlflow
import pytest

from flows.scaling import track_scaling
from tasks.bench.runner import examine_host
from tasks.bench.scaling import bench_scaling, replica_counts
from tasks.bench.scaling_plot import write_scaling_plot
from tasks.bench.scaling_report import Point, Reduction, ScalingReport
from tasks.config import build_config

TRAIN_TESTS = Path(__file__).parents[1] / "train"


def point(mode, replicas, rate, efficiency):
    return Point(
        mode=mode,
        num_replicas=replicas,
        global_batch_size=64,
        examples_per_second=rate,
        min=rate - 1,
        max=rate + 1,
        speedup=efficiency * replicas,
        efficiency=efficiency,
        input_wait_fraction=0.0,
    )


REPORT = ScalingReport(
    name="digits",
    devices=(),
    points=(point("weak", 1, 100.0, 1.0), point("weak", 2, 180.0, 0.9), point("strong", 2, 150.0, 0.75)),
    reductions=(
        Reduction(all_reduce="ring", num_replicas=2, num_bytes=8, seconds=0.5, is_right=True),
        Reduction(all_reduce="one_device", num_replicas=2, num_bytes=8, seconds=0.1, is_right=False),
        Reduction(all_reduce="nccl", num_replicas=2, failed="there is none here"),
    ),
    host=examine_host([]),
)


def test_replicas_are_doubled_up_to_all_there_are():
    assert [replica_counts(largest) for largest in (1, 2, 3, 8, 6)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4, 8],
        [1, 2, 4, 6],
    ]


def test_a_sum_that_is_wrong_is_never_the_best():
    assert REPORT.best() == {
        "best_examples_per_second": 180.0,
        "best_num_replicas": 2.0,
        "best_efficiency": 0.9,
        "best_all_reduce_seconds": 0.5,
    }


def test_the_best_figures_stand_on_a_run_with_the_picture_and_each_point_on_one_below_it(tmp_path):
    write_scaling_plot(REPORT, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert track_scaling(REPORT, None, tmp_path, tmp_path / "scaling.png")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("digits-scaling").experiment_id])
    (parent,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    below = {run.info.run_name: run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    assert parent.data.metrics == REPORT.best()
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["scaling.png"]
    names = {"weak-1", "weak-2", "strong-2", "all-reduce-ring", "all-reduce-one_device", "all-reduce-nccl"}
    assert below.keys() == names
    assert below["weak-2"].data.metrics["efficiency"] == 0.9
    assert {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_two_replicas_are_measured_and_every_all_reduce_sums_right(digits, workers):
    small = (f"model.folder={TRAIN_TESTS}", "model.build=models_for_tests:dense", "model.args={}")
    config = build_config(digits.config.model_dump(mode="json"), small)
    report = bench_scaling(config, digits.workspace, max_replicas=2, num_steps=2, rounds=2)
    assert [(each.mode, each.num_replicas, each.global_batch_size) for each in report.points] == [
        ("weak", 1, 64),
        ("weak", 2, 128),
        ("strong", 1, 64),
        ("strong", 2, 64),
    ]
    assert [each.efficiency for each in report.points if each.num_replicas == 1] == [1, 1]
    assert all(each.min > 0 for each in report.points)
    assert {(each.all_reduce, each.is_right) for each in report.reductions} == {
        ("one_device", True),
        ("hierarchical", True),
        ("ring", True),
    }
