"""The errors that a user can mend; everything else is a bug of ours and an `assert`."""

import errno

# What the operating system says of a disk that is full, read-only or not ours: no new try mends it.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


class MillstreamError(Exception):
    """Says where, what, why and how to mend it; the command prints it without a traceback."""

    exit_code = 1


class ConfigError(MillstreamError):
    """The config, or its fit to the data or the machine, is wrong; nothing was trained."""

    exit_code = 2


class DataError(MillstreamError):
    """A file is missing, damaged or not what its manifest says."""


class RunError(MillstreamError):
    """A run cannot be opened: it is running elsewhere, unknown or already finished."""


class WorkerError(MillstreamError):
    """A worker process failed, was killed or stopped making progress."""


class WorkerLost(WorkerError):
    """A worker process ended without a word or stopped making progress: by chance, for all that is known.

    What the worker itself raised, or was told to do by SIGTERM, would come again and is not this.
    """


class OutOfMemory(WorkerLost):
    """A device had too little memory for a step; the next worker takes fewer examples at once."""


class TrainingError(MillstreamError):
    """Training cannot go on: for example a loss that is not finite."""


class Stopped(TrainingError):
    """A worker was asked to stop and did so at the next good moment; the same command goes on."""


class ExportError(MillstreamError):
    """The exported model is not the trained one; it was not given its name."""


class TrackingError(MillstreamError):
    """The MLflow server does not answer, and what was asked for needs it."""


def needs_the_user(error: object) -> bool:
    """Returns whether a person must mend something before another try can end better."""
    return isinstance(error, MillstreamError) or (isinstance(error, OSError) and error.errno in _DISK)
