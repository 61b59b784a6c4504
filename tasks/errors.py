"""The errors that a user can mend; everything else is a bug of ours and an `assert`."""


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


class TrainingError(MillstreamError):
    """Training cannot go on: for example a loss that is not finite."""


class ExportError(MillstreamError):
    """The exported model is not the trained one; it was not given its name."""


class TrackingError(MillstreamError):
    """The MLflow server does not answer, and what was asked for needs it."""
