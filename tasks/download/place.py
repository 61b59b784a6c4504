"""Place: the folder and the pattern that a source's path stands for."""

import importlib.util
import os
import re
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from tasks.errors import ConfigError, DataError

PACKAGE = "package://"
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Place:
    """Files on this machine that stay where they are."""

    directory: Path
    pattern: str | None
    """For `list_files`."""


def is_url(path: str) -> bool:
    """Returns whether a source's path names something that has to be fetched."""
    return "://" in path and not path.startswith(PACKAGE)


def locate(path: str) -> Place:
    """Returns the place of a file, folder or glob, or of package://NAME/FILE; raises DataError if it is not there.

    A name that exists is that file, whatever characters are in it; else `*`, `?` and `[` make it a glob.
    """
    if path.startswith(PACKAGE):
        return _in_package(path)
    file = Path(os.path.abspath(os.path.expanduser(path)))
    if file.is_dir():
        return Place(file, None)
    if file.exists():
        return Place(file.parent, escape(file.name))
    parts = file.parts
    magic = next((index for index, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    directory = Path(*parts[:magic])
    if magic == len(parts) or not directory.is_dir():
        raise DataError(f"data.source.path={path}: there is no {directory}; relative paths start at the present folder")
    return Place(directory, "/".join(parts[magic:]))


def _in_package(path: str) -> Place:
    name, _, file = path.removeprefix(PACKAGE).partition("/")
    if not name.isidentifier() or not file:  # a dotted name would be imported
        raise ConfigError(
            f"data.source.path={path}: must be package://NAME/FILE, such as package://plotnine/data/x.csv"
        )
    package = importlib.util.find_spec(name)
    if package is None:
        raise DataError(
            f"data.source.path={path}: no package {name} is installed; install it with 'pip install {name}'"
        )
    for folder in package.submodule_search_locations or ():
        try:
            return locate(os.path.join(folder, file))
        except DataError:  # a package may lie in several folders
            continue
    raise DataError(
        f"data.source.path={path}: the installed {name} has no {file}; "
        f"install it again with 'pip install --force-reinstall {name}', or correct the path"
    )
