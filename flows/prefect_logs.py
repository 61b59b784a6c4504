"""Our log lines in the Prefect UI: what the stages say stands with the flow run that they belong to."""

import logging
import os

from prefect.logging.handlers import APILogHandler

from tasks.secrets import keep_out_of_logs


def follow() -> None:
    """Sends what logger `millstream` says from now on to the flow run of this process."""
    # The tracker's thread belongs to no flow run; its words go to the worker's output alone.
    os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
    logger = logging.getLogger("millstream")
    logger.setLevel(logging.INFO)
    keep_out_of_logs()
    if not any(isinstance(handler, APILogHandler) for handler in logger.handlers):
        logger.addHandler(APILogHandler())
