"""The serving directory: serving/<name>/<number>/, of which TensorFlow Serving follows the highest number."""

import shutil
from pathlib import Path

from tasks.errors import DataError
from tasks.files import COMPLETED, atomic_directory, is_completed, verify
from tasks.promote.record import Promotion

JOURNAL = (
    ".promotion.json"  # what was begun and is not done; TensorFlow Serving looks at directories with a number only
)
HISTORY = ".promotions.jsonl"
KEPT = 2  # the served model and the one before it, which a server may still hold open


def serving_directory(workspace: Path, name: str) -> Path:
    """Returns where the served models of a name lie."""
    return workspace / "serving" / name


def numbers(directory: Path) -> list[int]:
    """Returns the numbers of the models that lie there whole, lowest first."""
    return sorted(int(path.name) for path in directory.glob("*") if path.name.isdigit() and is_completed(path))


def next_number(directory: Path) -> int:
    """Returns a number that is higher than any that was ever served, whatever was removed since."""
    return 1 + max([*numbers(directory), *(change.number for change in history(directory))], default=0)


def served_version(directory: Path) -> int | None:
    """Returns the version in the registry of what is served; None if nothing is."""
    changes = history(directory)
    return changes[-1].version if changes and changes[-1].number in numbers(directory) else None


def history(directory: Path) -> list[Promotion]:
    """Returns every change, oldest first; raises DataError if the record of it is damaged."""
    file = directory / HISTORY
    try:
        return [Promotion.model_validate_json(line) for line in file.read_bytes().splitlines()]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise DataError(f"{file}: damaged ({error}); put it back from a backup, or remove the line") from error


def publish(model: Path, directory: Path, number: int) -> None:
    """Moves a SavedModel to `directory`/`number`, at once or not at all; one that is there whole stays as it is."""
    place = directory / str(number)
    if is_completed(place):
        verify(place)
        return
    with atomic_directory(place) as incomplete:
        for part in model.iterdir():
            if part.name != COMPLETED:  # of where it was made
                shutil.move(part, incomplete / part.name)


def retire(directory: Path) -> None:
    """Removes the models that are not served any more, but for the last of them."""
    for number in numbers(directory)[:-KEPT]:
        shutil.rmtree(directory / str(number))
