"""Where alerts go: a URL or nowhere, and never repeated."""

import pytest

from tasks.errors import ConfigError
from tasks.host.up import _webhook


def test_webhook_is_taken_from_the_environment():
    assert _webhook({}) is None
    assert _webhook({"MILLSTREAM_ALERT_WEBHOOK": ""}) is None
    assert (
        _webhook({"MILLSTREAM_ALERT_WEBHOOK": "https://hooks.example/T0/s3cret"}) == "https://hooks.example/T0/s3cret"
    )


@pytest.mark.parametrize("value", ["hooks.example/s3cret", "ftp://hooks.example/s3cret", "https:///s3cret"])
def test_what_is_no_url_is_refused_without_repeating_the_secret(value):
    with pytest.raises(ConfigError, match="MILLSTREAM_ALERT_WEBHOOK: must be a URL") as refused:
        _webhook({"MILLSTREAM_ALERT_WEBHOOK": value})
    assert "s3cret" not in str(refused.value)
