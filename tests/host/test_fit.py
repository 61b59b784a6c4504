"""A config against the machine: replicas, batch and memory."""

import shutil

import pytest

from tasks.config import build_config
from tasks.host.finding import Finding
from tasks.host.fit import fit_findings

GB = 10**9


@pytest.fixture
def found(digits):
    """What is found of the digits with overrides: {name: finding}."""

    def examine(*overrides: str, num_gpus: int = 0, limit_bytes: int = 8 * GB, workspace=digits.workspace):
        config = build_config(digits.config.model_dump(mode="json"), overrides)
        findings = fit_findings(config, workspace, num_gpus=num_gpus, limit_bytes=limit_bytes)
        return {finding.name: finding for finding in findings}

    return examine


def test_batch_that_divides_fits(found):
    assert found(num_gpus=8)["replicas"] == Finding(
        name="replicas", status="ok", found="global batch of 64 on 8 replica(s): 8 each"
    )
    assert found("distribute.kind=one_device")["replicas"].found == "global batch of 64 on 1 replica(s): 64 each"


def test_batch_that_is_mostly_padding_gets_a_warning(found):
    replicas = found("feed.global_batch_size=9", num_gpus=8)["replicas"]
    assert replicas.status == "warning"
    assert replicas.found.endswith("2 each, of which 44% is padding that is computed for nothing")
    assert replicas.fix.startswith("feed.global_batch_size=16")


def test_more_replicas_than_gpus_are_a_problem(found):
    replicas = found("distribute.num_replicas=4", num_gpus=2)["replicas"]
    assert (replicas.status, replicas.fix) == ("problem", "distribute.num_replicas=auto")
    assert "only 2 GPUs are visible" in replicas.found


def test_memory_plan_is_that_of_the_feed(found):
    plan = found()["memory plan"]
    assert plan.status == "ok"
    decoded = 1437 * (64 + 16)  # an image of 8 x 8, its label and its id
    assert plan.found.startswith(f"feed: cache decoded: {decoded / 1e3:.1f} KB are within half of feed.memory_limit; ")
    assert "cache none, as asked for" in found("feed.cache=none")["memory plan"].found


def test_memory_plan_that_needs_more_than_its_limit_is_a_problem(found):
    plan = found("feed.memory_limit=500 KB", "feed.cache=none", "feed.prefetch_batches=1")["memory plan"]
    assert plan.status == "problem"
    assert plan.found.endswith(" KB of memory are needed, over feed.memory_limit=500 KB")
    assert plan.fix.startswith("use at most feed.window=")


def test_memory_plan_that_leaves_others_too_little_gets_a_warning(found):
    tight = found("feed.cache=decoded", limit_bytes=200_000)["memory plan"]
    assert (tight.status, tight.fix) == ("warning", "feed.cache=auto")
    tight = found(limit_bytes=200_000)["memory plan"]
    assert (tight.status, tight.fix) == ("warning", "a smaller feed.window or feed.global_batch_size")
    assert "cache none: " in tight.found


def test_memory_plan_waits_for_shards_of_this_very_config(found, digits, tmp_path):
    assert found("data.seed=77")["memory plan"].found.startswith("not known before the shards are there")
    [manifest] = digits.workspace.glob(f"data/{digits.shards.data_digest}/*/*/manifest.json")
    damaged = tmp_path / manifest.relative_to(digits.workspace)
    damaged.parent.mkdir(parents=True)
    shutil.copyfile(manifest, damaged)
    assert "cache decoded" in found(workspace=tmp_path)["memory plan"].found
    damaged.write_text("{")
    assert found(workspace=tmp_path)["memory plan"].found.startswith("not known")
