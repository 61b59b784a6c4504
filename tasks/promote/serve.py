"""The server: MLflow's scoring server on a registered model, in this process, on this machine only."""

import json
import logging
import os
import socket
import tempfile
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import ConfigError
from tasks.export.manifest import ExportManifest
from tasks.promote.fetched import fetch_model
from tasks.promote.predict import ENVIRONMENT
from tasks.track.client import default_uri

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

HOST = "127.0.0.1"
_STOP_SECONDS = 10  # requests that are being answered get so long
_MAX_WORDS = 400  # characters of a refusal
logger = logging.getLogger("millstream")


def serve(reference: str, workspace: Path, *, port: int) -> None:
    """Answers requests to the registered model NAME, NAME@alias or NAME/version until it is interrupted.

    POST /invocations as MLflow has it; a request that is wrong gets 4xx and {"error": a sentence}. Port 0 is any free
    one, which the log says. Raises ConfigError if the port is taken, and what `fetch_model` does.
    """
    for name, value in {**ENVIRONMENT, "TF_CPP_MIN_LOG_LEVEL": "2"}.items():
        os.environ.setdefault(name, value)
    with (
        socket.socket() as listener,
        tempfile.TemporaryDirectory(prefix="millstream-serve-") as folder,
    ):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} of {HOST} cannot be had ({error.strerror}); name another with --port"
            ) from None
        logger.info("serve: loading %s", reference)
        model, exported = fetch_model(reference, default_uri(workspace), Path(folder) / "fetched")
        app = _app(exported, Path(folder) / "served")

        import uvicorn

        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_STOP_SECONDS)
        logger.info(
            "serve: %s at http://%s:%d/invocations, takes %s; Ctrl-C ends it",
            model.uri,
            HOST,
            listener.getsockname()[1],
            ", ".join(exported.inputs),
        )
        uvicorn.Server(config).run(sockets=[listener])


def _app(exported: ExportManifest, directory: Path) -> "FastAPI":
    """Returns MLflow's server on the SavedModel; of the registry's own files no code is run."""
    import mlflow
    from mlflow.pyfunc import scoring_server

    from tasks.promote.packing import PYFUNC_MODEL, signature

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="mlflow")  # on what only a log needs
        mlflow.pyfunc.save_model(
            str(directory),
            python_model=str(PYFUNC_MODEL),
            artifacts={"saved_model": str(exported.directory)},
            signature=signature(exported),
            pip_requirements=[],
        )
        model = mlflow.pyfunc.load_model(str(directory))
    app: FastAPI = scoring_server.init(model)
    app.middleware("http")(_in_a_sentence)
    return app


async def _in_a_sentence(request: "Request", proceed: "Callable[[Request], Awaitable[Response]]") -> "Response":
    """Answers what is wrong with a request in a sentence, where MLflow gives its traceback and the data."""
    from fastapi.responses import JSONResponse

    if request.method == "POST" and "content-type" not in request.headers:
        return JSONResponse({"error": "the header Content-Type is missing; give application/json"}, 415)
    try:
        response = await proceed(request)
    except Exception as error:  # noqa: BLE001 - what MLflow's reading of a request has overlooked; the rest it catches
        logger.warning("serve: a request could not be read (%s: %s)", type(error).__name__, error)
        return JSONResponse({"error": f"the request could not be read ({error})"[:_MAX_WORDS]}, 400)
    if response.status_code < 400:
        return response
    body = b"".join([part async for part in response.body_iterator])  # type: ignore[attr-defined]
    return JSONResponse({"error": _sentence(body.decode(errors="replace"))}, response.status_code)


def _sentence(body: str) -> str:
    """Returns what MLflow says is wrong, without the data that it repeats."""
    try:
        found = json.loads(body)
        said = str(found.get("message") or found.get("detail"))
    except (ValueError, AttributeError):
        said = body
    if "Failed to enforce schema" in said:
        said = said.rpartition("Error: ")[2]
    said = said.rpartition("\nError: ")[2].partition("\nInput:")[0].partition(" IMPORTANT:")[0]
    return " ".join(said.split())[:_MAX_WORDS]
