"""The embedded Prefect server: there without being asked for, gone with this process."""

import os
import signal
import subprocess
from typing import Any

from tasks.errors import ConfigError
from tasks.secrets import scrub

# Prefect reads these when it is imported: quiet, private, and patient on a busy machine.
SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",  # what goes wrong is said once, by the command
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
}


def start() -> None:
    """Starts Prefect's temporary server, or checks the one that PREFECT_API_URL or a profile names; call it before any
    flow. Raises ConfigError if that one does not answer.

    Prefect would start its temporary server by itself, but leave it running for ever if this process were killed, and
    let a Ctrl-C in the terminal end it before the flow has reported its end.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from prefect.client.orchestration import get_client
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import PREFECT_API_URL

    from tasks.workers.guard import guard

    class Server(SubprocessASGIServer):
        """Prefect makes one such server a process, whichever class asks for it first: this one."""

        def _run_uvicorn_command(self) -> subprocess.Popen[Any]:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which the child inherits
            try:
                process = super()._run_uvicorn_command()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            guard(process.pid)
            return process

    url = PREFECT_API_URL.value()
    if url is None:
        Server().start()
        return
    with get_client(sync_client=True) as client:
        problem = client.api_healthcheck()
    if problem is not None:
        raise ConfigError(
            f"PREFECT_API_URL={scrub(url)}: no Prefect server answers ({scrub(str(problem))}); start it with `prefect "
            "server start`, or unset PREFECT_API_URL to do without one"
        )
