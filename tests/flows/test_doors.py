"""The doors of the rooms: what Prefect may do with them, and what it may not."""

import errno
from typing import Any

import pytest
from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.states import Failed

from tasks.download.task import download
from tasks.errors import ConfigError, DataError
from tasks.evaluate.task import evaluate
from tasks.export.task import export
from tasks.prepare.task import prepare
from tasks.promote.task import challenge, register
from tasks.train.task import train


@pytest.mark.parametrize("task", [download, prepare])
def test_only_what_waiting_may_mend_is_tried_again(task: Task[Any, Any]) -> None:
    assert task.retry_condition_fn is not None
    full = OSError(errno.ENOSPC, "No space left on device")
    answers = [
        task.retry_condition_fn(task, None, Failed(data=error))
        for error in (OSError("no route"), full, ConfigError("typo"), DataError("no class 7"))
    ]
    assert answers == [True, False, False, False]


@pytest.mark.parametrize("task", [train, evaluate, export, register, challenge])
def test_prefect_never_repeats_what_the_workers_look_after(task: Task[Any, Any]) -> None:
    assert (task.retries, task.timeout_seconds) == (0, None)


@pytest.mark.parametrize("task", [download, prepare, train, evaluate, export, register, challenge])
def test_prefect_keeps_no_second_truth(task: Task[Any, Any]) -> None:
    assert (task.cache_policy, task.persist_result) == (NO_CACHE, False)
