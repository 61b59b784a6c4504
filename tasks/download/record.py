"""RawData: what download hands on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tasks.files import Receipt, Record, digest_json


class RawData(Record):
    """A source on local disk, complete and verified."""

    directory: Path
    """The folder of the files: raw/<digest>/ in the workspace with COMPLETED, or the user's own folder."""
    pattern: str | None
    """Glob below the folder that selects the files, such as '*.csv' or the name of one; None: all."""
    fetched: bool
    """True if the folder is ours, fetched or made by a worker; False if it is the user's own, never written to."""
    digest: str
    """sha256 over names and contents of the files."""
    num_files: int
    size_bytes: int
    reused: bool
    """True if it was there already and nothing was fetched."""

    @classmethod
    def of_receipts(cls, directory: Path, receipts: Mapping[str, Receipt], digest: str, *, reused: bool) -> Self:
        """Returns the record of a completed directory of ours."""
        return cls(
            directory=directory,
            pattern=None,
            fetched=True,
            digest=digest,
            num_files=len(receipts),
            size_bytes=sum(receipt.size_bytes for receipt in receipts.values()),
            reused=reused,
        )


def receipts_digest(receipts: Mapping[str, Receipt]) -> str:
    """Returns `RawData.digest` of files that were fetched."""
    return digest_json({name: receipt.sha256 for name, receipt in receipts.items()})
