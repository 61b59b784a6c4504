"""prefect.yaml is what conf/ says."""

import shutil
from pathlib import Path

import pytest
import yaml

from flows.deployments import check, render
from tasks.config import Config
from tasks.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def conf(tmp_path):
    (tmp_path / "conf").mkdir()
    shutil.copy(ROOT / "conf" / "digits.yaml", tmp_path / "conf")
    return tmp_path / "conf"


def test_the_committed_file_is_what_conf_says():
    check(ROOT / "conf", ROOT / "prefect.yaml")


def test_every_config_and_every_schedule_is_a_deployment(conf):
    (conf / "other.yaml").write_text("name: other\ndeploy: {work_pool: cpu-pool, when_busy: cancel}\n")
    plain, weekly, retraining, other = yaml.safe_load(render(conf))["deployments"]
    names = [item["name"] for item in (plain, weekly, retraining, other)]
    assert names == ["digits", "digits-weekly", "digits-retraining", "other"]
    assert plain["schedules"] == []
    assert weekly["schedules"] == [{"cron": "0 3 * * 1", "timezone": "Europe/Berlin", "active": False}]
    assert weekly["parameters"] == retraining["parameters"] == plain["parameters"]
    assert weekly["entrypoint"] == plain["entrypoint"]
    assert retraining["entrypoint"] == "flows/retraining.py:retraining"
    assert retraining["schedules"] == [{"cron": "0 5 * * *", "timezone": "Europe/Berlin", "active": False}]
    assert retraining["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    (trigger,) = retraining["triggers"]
    assert trigger["expect"] == ["millstream.data.updated"]
    assert trigger["match"] == {"prefect.resource.id": "millstream.data.digits"}
    assert "triggers" not in plain | weekly | other
    assert other["work_pool"] == {"name": "cpu-pool"}
    assert other["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}


def test_the_parameters_are_the_groups_of_the_config(conf):
    parameters = yaml.safe_load(render(conf))["deployments"][0]["parameters"]
    assert parameters.keys() <= Config.model_fields.keys() - {"deploy", "sweep"}
    assert parameters["train"]["total"] == "15 epochs"
    assert parameters["model"]["folder"] == "conf"


def test_a_sweep_is_a_deployment_of_its_own_flow(conf):
    (conf / "digits.yaml").write_text("name: own\nsweep: {space: {train.seed: {low: 0, high: 9}}}\n")
    plain, sweep = yaml.safe_load(render(conf))["deployments"]
    assert (plain["name"], sweep["name"]) == ("own", "own-sweep")
    assert sweep["entrypoint"] == "flows/sweep.py:sweep"
    assert sweep["parameters"] == {**plain["parameters"], "sweep": {"space": {"train.seed": {"low": 0, "high": 9}}}}


def test_a_folder_of_code_that_a_config_names_stays(conf):
    (conf / "digits.yaml").write_text(
        "name: own\ndata: {source: {kind: array, read: 'mine:read', folder: readers}}\nmodel: {folder: models}\n"
    )
    parameters = yaml.safe_load(render(conf))["deployments"][0]["parameters"]
    assert (parameters["data"]["source"]["folder"], parameters["model"]["folder"]) == ("readers", "models")


def test_a_stale_file_is_refused_with_the_lines_that_differ(conf, tmp_path):
    file = tmp_path / "prefect.yaml"
    file.write_text(render(conf).replace("15 epochs", "14 epochs"))
    with pytest.raises(ConfigError, match="run `millstream deployments --write`") as refused:
        check(conf, file)
    assert "-      total: 14 epochs\n+      total: 15 epochs" in str(refused.value)


def test_a_schedule_without_a_known_time_zone_is_refused(conf):
    path = conf / "digits.yaml"
    path.write_text(path.read_text().replace("Europe/Berlin", "Europe/Bärlin"))
    with pytest.raises(ConfigError, match=r"timezone='Europe/Bärlin': must be the name of a time zone"):
        render(conf)


def test_a_schedule_with_the_name_of_the_retraining_is_refused(conf):
    path = conf / "digits.yaml"
    path.write_text(path.read_text().replace("    weekly: {", "    retraining: {"))
    with pytest.raises(ConfigError, match=r"deploy\.schedules\.retraining: would be called digits-retraining, as the "):
        render(conf)
