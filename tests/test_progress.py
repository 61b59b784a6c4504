"""Progress without a terminal: a line now and then."""

import logging

import pytest

from tasks import progress
from tasks.progress import step_progress


def test_steps_are_said_now_and_then(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with caplog.at_level(logging.INFO, "millstream"), step_progress("download: fruit") as show:
        show("1 example staged")
        monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
        show("2 examples staged")
    assert caplog.messages == ["download: fruit: 2 examples staged"]
