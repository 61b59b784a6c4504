"""Secrets: none of them is written down."""

import logging
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tasks.config import Config, build_config
from tasks.errors import ConfigError
from tasks.secrets import keep_out_of_logs, scrub
from tasks.track.tracker import tracked

CANARY = "canary-0815/4711"


@pytest.fixture
def guarded() -> Iterator[None]:
    """Logger `millstream`, scrubbed as by the command."""
    logger = logging.getLogger("millstream")
    before = list(logger.filters)
    keep_out_of_logs()
    yield
    logger.filters = before


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY", "api_key", "PRIVATE_KEY", "Secret"]
)
def test_what_a_variable_that_is_named_a_secret_holds_is_hidden(name: str) -> None:
    assert scrub(f"<{CANARY}> and {CANARY}", {name: CANARY}) == "<***> and ***"


@pytest.mark.parametrize("name", ["HOME", "MONKEY", "KEYBOARD", "SSH_AUTH_SOCK", "TOKENIZERS_PARALLELISM"])
def test_what_any_other_variable_holds_is_not(name: str) -> None:
    assert scrub(f"in {CANARY}", {name: CANARY}) == f"in {CANARY}"


def test_the_password_of_a_url_is_hidden_wherever_it_is_repeated() -> None:
    environment = {"DATABASE": "postgresql://me:p%40ss-word@host:5432/db"}
    assert scrub("p@ss-word, p%40ss-word", environment) == "***, ***"


def test_the_login_of_a_url_is_hidden_whoever_knows_it() -> None:
    assert scrub("GET https://me:x@host/a@b and s3://token@host", {}) == "GET https://***@host/a@b and s3://***@host"


@pytest.mark.parametrize("text", ["sqlite:////home/me/a@b/mlflow.db", "me@example.org", "https://host/x?mail=me@host"])
def test_what_is_no_login_stays(text: str) -> None:
    assert scrub(text, {"X_TOKEN": "short", "Y_TOKEN": ""}) == text


def test_logs_hide_them_in_messages_and_tracebacks(
    guarded: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    try:
        raise ValueError(CANARY)
    except ValueError:
        logging.getLogger("millstream").exception("it broke with %s", CANARY)
    assert CANARY not in caplog.text
    assert "it broke with ***\nTraceback (most recent call last):" in caplog.text
    assert "ValueError: ***" in caplog.text


def test_an_outage_does_not_tell_the_password_of_the_server(
    guarded: None, digits: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:canary-0815@127.0.0.1:{taken.getsockname()[1]}")
        run = digits.run()
        with tracked(run, flush_seconds=0.1) as tracker:
            deadline = time.monotonic() + 60
            while "nothing can be sent to http://127.0.0.1:" not in caplog.text:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    assert "did not take all of run" in caplog.text
    assert "canary" not in caplog.text + tracker.uri
    assert not any(b"canary" in file.read_bytes() for file in run.directory.rglob("*") if file.is_file())


def test_a_config_tells_no_login_and_its_refusal_neither() -> None:
    with pytest.raises(ConfigError, match="give the whole URI in MLFLOW_TRACKING_URI instead") as refused:
        build_config({"name": "a", "tracking": {"uri": "postgresql://me:canary@host/db"}})
    assert "canary" not in str(refused.value)


def test_prefects_form_refuses_a_login_and_takes_the_rest() -> None:
    pattern = Config.model_json_schema()["$defs"]["TrackingConfig"]["properties"]["uri"]["pattern"]
    takes = [
        bool(re.search(pattern, uri))
        for uri in ("http://me:x@host", "postgresql://me@host/db", "http://host:5000/base", "sqlite:////a@b/mlflow.db")
    ]
    assert takes == [False, False, True, True]


def test_the_present_folder_is_no_secret() -> None:
    environment = {"PWD": "/home/me/project", "OLDPWD": "/home/me", "DB_PWD": "opensesame"}
    assert scrub("/home/me/project/workspace: opensesame", environment) == "/home/me/project/workspace: ***"
