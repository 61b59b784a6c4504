"""The doors of download and prepare: what is tried again and what is not."""

from typing import Any

import pytest
from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.states import Failed

from tasks.download.task import download
from tasks.errors import ConfigError, DataError
from tasks.prepare.task import prepare


@pytest.mark.parametrize("task", [download, prepare])
def test_only_what_waiting_may_mend_is_tried_again(task: Task[Any, Any]) -> None:
    assert task.retry_condition_fn is not None
    answers = [
        task.retry_condition_fn(task, None, Failed(data=error))
        for error in (OSError("no route"), ConfigError("typo"), DataError("no class 7"))
    ]
    assert answers == [True, False, False]


@pytest.mark.parametrize("task", [download, prepare])
def test_prefect_keeps_no_second_truth(task: Task[Any, Any]) -> None:
    assert (task.cache_policy, task.persist_result) == (NO_CACHE, False)
