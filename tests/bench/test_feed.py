"""The feed bench: every side delivers the same, every figure is there. How fast it is, is not for a test to say."""

import json

import pytest

from tasks.augmentation import RandomResizedCrop
from tasks.bench.accelerator import first_batch_seconds, stall_share
from tasks.bench.case import Case, config_case, jpeg_case, records_case
from tasks.bench.feed import bench_feed, ratios_by_rival, side_rows, stage_rows, stage_seconds
from tasks.bench.pipelines import turn
from tasks.bench.plot import write_plot
from tasks.bench.report import FeedReport
from tasks.bench.runner import Cost, examine_host
from tasks.config import build_config

SIDES = ("ours", "guide", "tfds", "grain", "raw_read", "synthetic", "ours_cached", "parse", "decode")
COSTS = {
    "ours": [Cost(2, 1), Cost(4, 2)],
    "guide": [Cost(8, 4), Cost(16, 8)],
    "raw_read": [Cost(1, 1), Cost(1, 1)],
    "synthetic": [Cost(0.25, 1), Cost(0.25, 1)],
    "ours_cached": [Cost(1, 1), Cost(1, 1)],
    "parse": [Cost(0.5, 1), Cost(2.5, 1)],
    "decode": [Cost(0.25, 1), Cost(1, 1)],
}


@pytest.fixture(scope="module")
def small_records(tmp_path_factory):
    return records_case(tmp_path_factory.mktemp("bench") / "records", 600, 3072)


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory):
    return jpeg_case(tmp_path_factory.mktemp("bench") / "jpegs", 40)


@pytest.mark.parametrize("side", SIDES)
def test_every_side_delivers_the_same_number_of_records_in_every_turn(small_records, side):
    assert Case.read(small_records).num_examples == 512
    assert [turn(side, small_records) for _ in range(3)] == [512, 512, 512]


@pytest.mark.parametrize(
    "side", ["ours", "naive", "naive_antialias", "ours_resized", "raw_read", "synthetic", "parse", "decode"]
)
def test_every_side_delivers_the_same_number_of_images_in_every_turn(jpegs, side):
    assert [turn(side, jpegs) for _ in range(2)] == [32, 32]


@pytest.mark.parametrize("side", [side for side in SIDES if side != "grain"])
def test_every_side_takes_the_shards_of_a_config(digits, tmp_path, side):
    file = config_case(tmp_path, digits.config, digits.workspace, num_examples=10**9, num_images=1)
    assert turn(side, file) == 1437 // 64 * 64


def test_a_batch_larger_than_the_split_is_measured_as_the_whole_split(digits, tmp_path):
    config = build_config(digits.config.model_dump(mode="json"), ["feed.global_batch_size=9999"])
    file = config_case(tmp_path, config, digits.workspace, num_examples=10**9, num_images=1)
    assert turn("ours", file) == 1437


def test_a_feed_is_measured_from_a_cache_where_it_would_take_one(jpegs):
    case = Case.read(jpegs)
    crop = case.feed.model_copy(update={"augment": (RandomResizedCrop(),)})
    assert case.can_be_cached
    assert not case.model_copy(update={"feed": crop}).can_be_cached  # every epoch decodes other windows


def test_an_accelerator_waits_some_share_of_its_time_and_a_resumed_feed_gives_a_batch(small_records):
    assert 0 < stall_share(small_records, examples_per_second=1e6, seconds=0.1) < 1
    assert first_batch_seconds(small_records, epoch_share=0.9) > 0


def test_a_stage_costs_what_it_costs_beyond_a_ready_batch_and_batch_is_what_is_left():
    stages = stage_seconds(COSTS)
    assert stages == {"read": [1, 1], "parse": [0.25, 2.25], "decode": [0, 0.75], "batch": [0.75, 0]}
    rows = {(row.side, row.metric): row.median for row in stage_rows(stages, 100, name="x", cores=2)}
    assert rows["stage parse", "cpu_seconds_x"] == 1.25
    assert rows["stage parse", "bound_x"] == (2 * 100 / 0.25 + 2 * 100 / 2.25) / 2
    assert ("stage batch", "bound_x") not in rows
    assert rows["stage whole", "cpu_seconds_x"] == 3


def test_ratios_are_the_cpu_seconds_of_the_rival_over_ours():
    assert ratios_by_rival(COSTS) == {
        "guide": 4,
        "raw_read": (1 / 2 + 1 / 4) / 2,
        "synthetic": (0.25 / 2 + 0.25 / 4) / 2,
        "cached_vs_synthetic": 0.25,
    }
    naive = {"naive": COSTS["guide"], "naive_antialias": [Cost(4, 1), Cost(16, 1)]}
    images = {"ours": COSTS["ours"], **naive, "ours_resized": COSTS["raw_read"]}
    assert ratios_by_rival(images) == {"naive": 4, "naive_antialias": 3, "naive_resized": 12}


def test_a_side_has_a_rate_and_cpu_seconds_but_a_stage_is_no_side():
    rows = side_rows(COSTS, 100, name="x")
    assert {row.side for row in rows} == COSTS.keys() - {"parse", "decode"}
    assert [(row.metric, row.median) for row in rows[:2]] == [("examples_per_second_x", 75), ("cpu_seconds_x", 3)]


def test_the_plot_is_a_picture(tmp_path):
    rows = (*side_rows(COSTS, 100, name="x"), *stage_rows(stage_seconds(COSTS), 100, name="x", cores=2))
    report = FeedReport(rows=rows, ratios={}, host=examine_host([]), advice=())
    write_plot(report, tmp_path / "feed.png")
    assert (tmp_path / "feed.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_the_report_has_every_side_of_both_data_sets(tmp_path):
    report = bench_feed(
        None, tmp_path, num_examples=600, num_images=40, rounds=1, gpu_rate=100, accelerator_seconds=0.1
    )
    rates = {
        (row.side, row.metric.removeprefix("examples_per_second_")) for row in report.rows if row.unit[-2:] == "/s"
    }
    assert {(side, "3kb") for side in SIDES[:-2]} | {(s, "jpeg") for s in ("ours", "naive", "ours_resized")} <= rates
    assert {row.side for row in report.rows if row.metric == "cpu_seconds_jpeg"} >= {
        f"stage {stage}" for stage in ("read", "parse", "decode", "batch", "whole")
    }
    assert {row.metric for row in report.rows} >= {"gpus_3kb", "gpus_jpeg", "first_batch_seconds_3kb"}
    assert report.ratios.keys() == {*SIDES[1:6], "cached_vs_synthetic", "naive", "naive_antialias", "naive_resized"}
    assert all(ratio > 0 for ratio in report.ratios.values())
    assert [sentence.partition(":")[0] for sentence in report.advice] == ["3kb", "jpeg"]
    assert json.loads(report.model_dump_json()).keys() == {"rows", "ratios", "host", "advice"}
