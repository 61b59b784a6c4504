"""The digits file: where the installed scikit-learn keeps it, and its copy in the workspace."""

import importlib.util
import shutil
from pathlib import Path

from tasks.download.record import RawData
from tasks.errors import DataError
from tasks.files import atomic_directory, digest_file, digest_json, is_whole, lock, read_receipts

DIGITS_FILE = "digits.csv.gz"


def digits_digest() -> str:
    """Returns `RawData.digest` of the digits."""
    file = find_digits()
    return digest_json({file.name: digest_file(file)})


def download_digits(workspace: Path) -> RawData:
    """Returns the copy of the digits in raw/<digest>/ of the workspace, made unless it is there and whole."""
    digest = digits_digest()
    directory = workspace / "raw" / digest
    with lock(directory.with_name(f".{digest}.lock")):
        reused = directory.exists() and is_whole(directory)
        if not reused:
            with atomic_directory(directory) as incomplete:
                shutil.copyfile(find_digits(), incomplete / DIGITS_FILE)
    return RawData.of_receipts(directory, read_receipts(directory), digest, reused=reused)


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
