"""Provenance: the code, the packages and the host that a run comes from."""

import platform
import socket
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("tensorflow", "keras", "mlflow", "prefect", "numpy")


def provenance_tags(folder: Path) -> dict[str, str]:
    """Returns MLflow tags: the host, versions, and the git commit if `folder` lies in a checkout."""
    tags = {"millstream.host": socket.gethostname(), "version.python": platform.python_version()}
    for package in _PACKAGES:
        try:
            tags[f"version.{package}"] = metadata.version(package)
        except metadata.PackageNotFoundError:  # such as tensorflow under another build's name
            continue
    commit = _git(folder, "rev-parse", "HEAD")
    if commit:
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
        tags |= {"mlflow.source.git.commit": commit, "git.dirty": "true" if changes else "false"}
    return tags


def requirements() -> str:
    """Returns every installed distribution as a requirements.txt, under the versions of Python and platform."""
    lines = {f"{found.name}=={found.version}" for found in metadata.distributions()}
    return "\n".join(
        [f"# Python {platform.python_version()} on {platform.platform()}", *sorted(lines, key=str.lower), ""]
    )


def _git(folder: Path, *arguments: str) -> str | None:
    """Returns what git prints; None without git or outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
