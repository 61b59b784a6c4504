"""TrainResult: what training hands on."""

from pathlib import Path

from tasks.files import Record

RESULT = "train.json"  # in the run's directory


class TrainResult(Record):
    """A finished training."""

    total: str = ""
    """`train.total` to which it was trained; a run that is given a longer one goes on from here."""
    best_checkpoint: Path
    last_checkpoint: Path
    best_step: int
    best_value: float
    """Value of train.best_metric at the best checkpoint."""
    num_steps: int
    num_epochs: int
    num_replicas: int
    num_parameters: int
    devices: tuple[str, ...]
    examples_per_second: float
    """Of the steps alone: compilation, validation and checkpoints left out."""
    step_seconds_p50: float
    step_seconds_p95: float
    input_wait_fraction: float
    """Share of the steps' time that was spent waiting for the feed."""
    input_wait_seconds_p50: float
    input_wait_seconds_p95: float
    examples_per_second_per_replica: float | None = None
    host_fraction: float | None = None
    """Share of the time of calls of the in-graph loop in which no step ran: the host's own work."""
    model_flops_per_step: float | None = None
    """Floating-point operations of a full global batch's matrix products and convolutions, forward and backward; None
    if they cannot be counted."""
    model_flops_per_second: float | None = None
    """Of these, reached by all replicas together."""
    mfu: float | None = None
    """Model FLOPs utilisation: that over the devices' peak (0..1); None on CPUs and for GPUs whose peak is unknown."""
    input_advice: str | None = None
    """What to change first, if that share is not small."""
    precision: str = ""
    """What `train.precision` came to."""
    num_overflows: int = 0
    """Steps that overflowed in mixed_float16 and were not applied; the loss scale was halved."""
    resumed_from_step: int
    """0 for a training that began at the start."""
    stopped_early: str = ""
    """Why it ended before its total; empty if it did not."""
    skipped_steps: tuple[int, ...] = ()
    """Steps, counted from 1, whose global batch was left out by `train.on_nonfinite: rollback`."""
