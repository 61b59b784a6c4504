"""The commands that use a registered model."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from flows import display
from flows.options import Json
from tasks.runs import workspace_of


def predict(name: str, file: Path, /, *files: Path, json: Json = False) -> None:
    """What a registered model answers to files; a quick look without a server.

    Example: millstream predict digits@champion rows.json

    Parameters
    ----------
    name
        NAME for its newest version, NAME@alias or NAME/version.
    file
        An image, a text, an array (.npy), or rows with a value for each input (.json, .csv).
    files
        More of them.
    """
    from tasks.promote.predict import predict

    display.predictions(predict(name, (file, *files), workspace_of()), json=json)


def serve(
    name: str, /, *, port: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))] = 5001
) -> None:
    """A registered model behind MLflow's scoring server, on this machine only; Ctrl-C ends it.

    Example: millstream serve digits@champion --port 5001

    Parameters
    ----------
    name
        NAME for its newest version, NAME@alias or NAME/version.
    port
        Port on 127.0.0.1; 0 for any that is free.
    """
    from tasks.promote.serve import serve

    serve(name, workspace_of(), port=port)


COMMANDS = (predict, serve)
