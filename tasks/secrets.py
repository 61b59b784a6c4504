"""Secrets: what must not be written down, taken out of what is said."""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

HIDDEN = "***"
_LOGIN = re.compile(r"(?<=://)[^\s/'\"@]+@")
_NAME = re.compile(
    # PWD alone is the present folder.
    r"(.*_)?(token|secret|signature|credentials?|password|passwd|passphrase|(api|access|private)?_?key)|.*_pwd",
    re.I,
)
_MIN_LENGTH = 6  # what is shorter stands in other words too


def scrub(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns a text without the logins of URLs and without what environment variables hold that are named as secrets.

    Such as MLFLOW_TRACKING_PASSWORD or HF_TOKEN, and the password of a URL in any variable, wherever it is repeated.
    """
    for secret in sorted(_secrets(environment), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _LOGIN.sub(f"{HIDDEN}@", text)


def hide_secrets(text: str) -> str:
    """Returns a text without the user names, passwords and queries of the URLs in it."""
    return re.sub(r"(\w+://)(?:[^/\s'\"]*@)?([^\s'\"?]*)(?:\?[^\s'\"]*)?", r"\1\2", text)


def keep_out_of_logs() -> None:
    """Scrubs from now on what logger `millstream` says, tracebacks included, whoever handles it."""
    logger = logging.getLogger("millstream")
    if _scrub_record not in logger.filters:
        logger.addFilter(_scrub_record)


def _scrub_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = scrub(record.getMessage()), None
    if record.exc_info:
        record.exc_text = scrub(logging.Formatter().formatException(record.exc_info))
        record.exc_info = None  # or a handler would format it anew
    return True


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if _NAME.fullmatch(name):
            found = [value]
        elif "://" in value and "@" in value:
            found = _passwords(value)
        else:
            continue
        yield from (secret for secret in found if len(secret) >= _MIN_LENGTH)


def _passwords(url: str) -> list[str]:
    try:
        password = urlsplit(url).password or ""
    except ValueError:  # no URL after all
        return []
    return [password, unquote(password)]
