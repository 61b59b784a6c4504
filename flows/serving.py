"""The commands that use a registered model."""

from pathlib import Path

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


COMMANDS = (predict,)
