"""The embedded Prefect server: there without being asked for, gone with this process."""

import os

# Prefect reads these when it is imported: quiet, private, and patient on a busy machine.
SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",  # what goes wrong is said once, by the command
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
}


def start() -> None:
    """Starts Prefect's temporary server, unless PREFECT_API_URL or a profile names one; call it before any flow.

    Prefect would start it by itself, but leave it running for ever if this process were killed.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import PREFECT_API_URL

    from tasks.workers.guard import guard

    if PREFECT_API_URL.value() is not None:
        return
    server = SubprocessASGIServer()  # the one that every flow of this process will use
    server.start()
    if server.server_process is not None:
        guard(server.server_process.pid)
