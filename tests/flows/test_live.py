"""The progress of a training in the Prefect UI: exact, once an epoch, and never in the way."""

import json
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.objects import Artifact
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.testing.utilities import prefect_test_harness

from flows import embedded, live
from tasks import events
from tasks.runs import Run
from tests.conftest import Digits

PAGE = "http://127.0.0.1:5000/#/experiments/1/runs/some"
BEGIN = ("train.total=4 epochs", "train.optimizer.schedule.kind=constant", "train.best_metric=val_accuracy")


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in embedded.SETTINGS.items():
            patch.setenv(name, value)
        with prefect_test_harness(server_startup_timeout=120):
            yield


def test_an_epoch_moves_the_progress_and_the_end_gives_a_table(
    server: None, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.05)
    run, key = digits.run(*BEGIN), "millstream-digits-progress"

    @flow(persist_result=False)
    def training() -> None:
        with live.shown(run, digits.shards, page=lambda: PAGE):
            _close_epoch(run, 1, loss=0.5)
            first = _wait_for(lambda: _found(key))
            assert (first.type, first.data) == ("progress", 25.0)
            assert first.description == (
                f"epoch 1, step 23 of 92: loss 0.5000, val_loss 1.0000, val_accuracy 0.2500; [MLflow run]({PAGE})"
            )
            _close_epoch(run, 2, loss=math.inf)
            assert _wait_for(lambda: (found := _found(key)) and found.data == 50.0 and found).id == first.id

    training()
    assert _found(key).data == 100.0  # it has ended well, though before train.total
    table = _found("millstream-digits-epochs")
    assert (table.type, table.description) == ("table", f"The last 2 of 2 epochs of run {run.id}")
    assert json.loads(table.data) == [
        {"epoch": 1, "step": 23, "loss": 0.5, "val_loss": 1.0, "val_accuracy": 0.25},
        {"epoch": 2, "step": 46, "loss": "inf", "val_loss": 1.0, "val_accuracy": 0.25},
    ]


def test_a_training_that_breaks_off_stays_where_it_was(server: None, digits: Digits) -> None:
    run = digits.run("name=broken", *BEGIN)

    @flow(persist_result=False)
    def training() -> None:
        with live.shown(run, digits.shards, page=str):
            _close_epoch(run, 3, loss=0.5)
            raise KeyError("lost")

    with pytest.raises(KeyError):
        training()
    assert _found("millstream-broken-progress").data == 75.0
    assert len(json.loads(_found("millstream-broken-epochs").data)) == 1


@pytest.mark.parametrize("listens", [False, True])
def test_a_server_that_is_gone_or_silent_is_told_of_once_and_stops_nothing(
    server: None, digits: Digits, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, listens: bool
) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(live, "TIMEOUT_SECONDS", 0.5)
    caplog.set_level(logging.WARNING, "millstream")
    run, said = digits.run("name=unseen", *BEGIN), []

    @flow(persist_result=False)
    def training() -> str:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            if listens:
                silent.listen()  # and never answers
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
            with temporary_settings({PREFECT_API_URL: url}), live.shown(run, digits.shards, page=str):
                _close_epoch(run, 1, loss=0.5)
                _wait_for(lambda: [each for each in caplog.records if each.name == "millstream"])
                _close_epoch(run, 2, loss=0.25)
            said.extend(each.getMessage() for each in caplog.records if each.name == "millstream")
            return "trained"

    assert training() == "trained"
    [message] = said
    assert message.startswith(f"prefect: the progress of run {run.id} is not shown: ")
    assert _found("millstream-unseen-progress") is None


def _close_epoch(run: Run, epoch: int, *, loss: float) -> None:
    figures = {"epoch": epoch, "loss": loss, "val_loss": 1.0, "val_accuracy": 0.25}
    events.append(run.events, figures, step=23 * epoch)


def _found(key: str) -> Artifact | None:
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
    assert len(found) <= 1
    return found[0] if found else None


def _wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("did not come true")
