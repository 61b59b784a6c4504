"""The shards bench: every side writes, every figure is there. How fast it is, is not for a test to say."""

import json

from tasks.bench.runner import Cost, ratios_of, rows_of
from tasks.bench.shards import bench_shards

SIDES = {"ours", "ours_one_worker", "naive", "tfds", "crc_write", "array_record"}


def test_report_has_every_side_of_both_sizes() -> None:
    report = bench_shards(num_examples=300, rounds=1)
    assert {(row.side, row.metric) for row in report.rows} == {
        (side, f"{metric}_{case}")
        for side in SIDES
        for metric in ("cpu_seconds", "wall_seconds")
        for case in ("3kb", "110kb")
    }
    assert all(0 <= row.min <= row.median <= row.max for row in report.rows)
    assert report.ratios.keys() == {f"{side}{ending}" for side in SIDES - {"ours"} for ending in ("", "_110kb")}
    assert report.host.cores >= 1
    assert json.loads(report.model_dump_json()).keys() == {"rows", "ratios", "host"}


def test_ratio_is_the_median_over_the_rounds_of_a_rivals_cost_over_ours() -> None:
    costs = {"ours": [Cost(1, 9), Cost(2, 9), Cost(4, 9)], "naive": [Cost(3, 9), Cost(8, 9), Cost(20, 9)]}
    assert ratios_of(costs) == {"naive": 4}
    row = rows_of(costs, case="3kb")[0]
    assert (row.side, row.metric, row.median, row.min, row.max) == ("ours", "cpu_seconds_3kb", 2, 1, 4)
