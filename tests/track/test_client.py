"""The client: where runs go, and how to look at them."""

from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from tasks.config import build_config
from tasks.runs import Run
from tasks.track.client import is_outage, open_client, run_url, tracking_uri, ui_command, without_password


def test_the_config_comes_before_the_environment_and_that_before_the_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Path("/w/runs/a")
    plain = Run(directory, build_config({"name": "a"}))
    named = Run(directory, build_config({"name": "a", "tracking": {"uri": "http://mine"}}))
    assert tracking_uri(plain) == "sqlite:////w/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ours")
    assert tracking_uri(plain) == "http://ours"
    assert tracking_uri(named) == "http://mine"


def test_a_database_that_was_half_made_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / ".mlflow.db.incomplete").write_bytes(b"what a killed process left")
    client = open_client(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert client.create_run("0").info.status == "RUNNING"
    assert not (tmp_path / ".mlflow.db.incomplete").exists()


def test_a_database_is_shown_by_a_command_and_a_server_by_its_own_address() -> None:
    database, server = "sqlite:////w/my runs/mlflow.db", "https://me:secret@mlflow.example/base/"
    assert ui_command(database) == "mlflow ui --backend-store-uri 'sqlite:////w/my runs/mlflow.db' --port 5000"
    assert ui_command(server) == ""
    end = "#/experiments/1/runs/r?workflowType=machine_learning"
    assert run_url(database, "1", "r") == f"http://127.0.0.1:5000/{end}"
    assert run_url(server, "1", "r") == f"https://mlflow.example/base/{end}"


def test_no_message_shows_a_password() -> None:
    assert without_password("postgresql+psycopg2://me:secret@host:5432/db") == "postgresql+psycopg2://host:5432/db"
    assert without_password("sqlite:////w/mlflow.db") == "sqlite:////w/mlflow.db"


def test_what_may_go_better_later_is_an_outage() -> None:
    assert is_outage(MlflowException("no answer"))
    assert is_outage(OSError("no space left on device"))
    assert not is_outage(MlflowException.invalid_parameter_value("a bad name"))
    assert not is_outage(TypeError("a bug"))
