"""`millstream notify-data` says what is wrong when there is no server that it could tell."""

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.arrival import notify_data
from tasks.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (None, r"^PREFECT_API_URL: is not set; set it to the server that is to be told"),
        (
            "http://127.0.0.1:9/api",
            r"^PREFECT_API_URL=http://127\.0\.0\.1:9/api: did not take the event \(.+\); start a",
        ),
        ("http://ann:s3cret@127.0.0.1:9/api", r"^PREFECT_API_URL=http://\*\*\*@127\.0\.0\.1:9/api: did not"),
    ],
)
def test_a_server_that_is_not_there_is_named(url, problem):
    with temporary_settings({PREFECT_API_URL: url}), pytest.raises(ConfigError, match=problem):
        notify_data("digits")


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ConfigError, match=r"^conf/digits\.yaml: must be the name of a config, such as digits"):
        notify_data("conf/digits.yaml")
