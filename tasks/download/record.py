"""RawData: what download hands on."""

from pathlib import Path

from tasks.files import Record


class RawData(Record):
    """A source on local disk, complete and verified."""

    directory: Path
    """raw/<digest>/ in the workspace; holds the files and COMPLETED."""
    digest: str
    """sha256 over names and contents of the files."""
    num_files: int
    size_bytes: int
    reused: bool
    """True if it was there already and nothing was fetched."""
