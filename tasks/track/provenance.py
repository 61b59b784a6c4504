"""Provenance: the code, the packages and the host that a run comes from."""

import platform
import socket
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Self

from tasks.config import Config
from tasks.errors import DataError
from tasks.files import Record
from tasks.runs import Run
from tasks.source_code import pipeline_digest, run_code_digest

PROVENANCE = "provenance.json"
COMMIT_TAG, CODE_TAG = "mlflow.source.git.commit", "millstream.code_digest"
_DIRTY_TAG, _PIPELINE_TAG = "git.dirty", "millstream.pipeline_digest"
_TAGGED_PACKAGES = ("tensorflow", "keras", "mlflow", "prefect", "numpy")


class Provenance(Record):
    """provenance.json of a run: under what it was carried out, the last time that it was."""

    host: str
    python: str
    platform: str
    packages: dict[str, str]
    """Version of every installed distribution, by its name."""
    code_digest: str
    """Of the source files that the model is made of."""
    pipeline_digest: str = ""
    """Of the source files of millstream itself; empty of a run from before it was recorded."""
    commit: str | None
    """The git commit, if the model's folder lies in a checkout."""
    dirty: bool | None
    """Whether tracked files there differ from the commit."""
    tags: dict[str, str]
    """What leads to the flow that carried it out."""

    def requirements(self) -> str:
        """Returns the packages as a requirements.txt, under the versions of Python and platform."""
        lines = [f"{name}=={version}" for name, version in self.packages.items()]
        return "\n".join([f"# Python {self.python} on {self.platform}", *lines, ""])

    def as_tags(self) -> dict[str, str]:
        """Returns it as MLflow tags: host, code and the versions that matter most."""
        tags = {
            "millstream.host": self.host,
            CODE_TAG: self.code_digest,
            _PIPELINE_TAG: self.pipeline_digest,
            "version.python": self.python,
            **{f"version.{name}": self.packages[name] for name in _TAGGED_PACKAGES if name in self.packages},
        }
        if self.commit is not None:
            tags |= {COMMIT_TAG: self.commit, _DIRTY_TAG: str(self.dirty).lower()}
        return tags | self.tags

    @classmethod
    def of_mlflow(cls, tags: Mapping[str, str], requirements: str) -> Self:
        """Returns what `as_tags` and `requirements` were made of, but for `tags`; empty where they do not say."""
        first, _, rest = requirements.partition("\n")
        python, _, system = first.removeprefix("# Python ").partition(" on ")
        pins = (line.partition("==") for line in rest.splitlines() if "==" in line)
        dirty = tags.get(_DIRTY_TAG)
        return cls(
            host=tags.get("millstream.host", ""),
            python=tags.get("version.python", python),
            platform=system,
            packages={name: version for name, _, version in pins},
            code_digest=tags.get(CODE_TAG, ""),
            pipeline_digest=tags.get(_PIPELINE_TAG, ""),
            commit=tags.get(COMMIT_TAG),
            dirty=None if dirty is None else dirty == "true",
            tags={},
        )


def find_provenance(run: Run) -> Provenance | None:
    """Returns what is recorded of a run; None of one that was never tracked."""
    try:
        return Provenance.read(run.directory / PROVENANCE)
    except DataError:
        return None


def write_provenance(run: Run, tags: Mapping[str, str]) -> None:
    """Records in the run's directory under what this process carries it out."""
    provenance(run.config, tags).write(run.directory / PROVENANCE)


def provenance(config: Config, tags: Mapping[str, str]) -> Provenance:
    """Returns under what this process carries out a run of a config."""
    model = config.model
    commit = _git(Path(model.folder or "."), "rev-parse", "HEAD")
    changes = _git(Path(model.folder or "."), "status", "--porcelain", "--untracked-files=no") if commit else None
    packages = {found.name: found.version for found in metadata.distributions()}
    return Provenance(
        host=socket.gethostname(),
        python=platform.python_version(),
        platform=platform.platform(),
        packages={name: packages[name] for name in sorted(packages, key=str.lower)},
        code_digest=run_code_digest(model.build, model.folder, config.train.loss),
        pipeline_digest=pipeline_digest(),
        commit=commit or None,
        dirty=None if changes is None else bool(changes),
        tags=dict(tags),
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
