"""The digits file: where the installed scikit-learn keeps it."""

import importlib.util
from pathlib import Path

from tasks.errors import DataError

DIGITS_FILE = "digits.csv.gz"


def find_digits() -> Path:
    """Returns the path of scikit-learn's digits.csv.gz without importing it; raises DataError if there is none."""
    package = importlib.util.find_spec("sklearn")
    folders = package.submodule_search_locations if package is not None else None
    for folder in folders or ():
        file = Path(folder) / "datasets" / "data" / DIGITS_FILE
        if file.is_file():
            return file
    raise DataError(
        f"data.source.kind=digits: the installed scikit-learn has no datasets/data/{DIGITS_FILE}; "
        "install it again with 'pip install --force-reinstall scikit-learn'"
    )
