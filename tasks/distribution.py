"""Distribution: the kinds of `distribute`, which say on what devices and workers a step runs."""

from typing import Annotated, Literal

from pydantic import Field

from tasks.section import Section, kind_if_none
from tasks.size import Size


class Devices(Section):
    """What holds of the devices of a run, however many there are."""

    when_busy: Literal["wait", "refuse"] = "wait"
    """What to do while another run of this host holds one of the devices."""
    hang_timeout_seconds: float = Field(300, gt=0)
    """Longest silence of a worker, between steps or batches, before it counts as hung and is stopped."""
    slow_phase_factor: float = Field(4, ge=1)
    """How many times as long it may be silent while it starts, compiles, writes a checkpoint or report, or exports."""


class OneDevice(Devices):
    """One replica: the first GPU, or the CPU."""

    kind: Literal["one_device"] = "one_device"


class _Reduced(Devices):
    """What holds where gradients are summed over several replicas."""

    pack_size: Size | None = None
    """Gradients are sent in packs of so many bytes ('32 MB'), the first while the rest is still computed; default: all
    in one. Not for the all-reduces hierarchical and one_device."""
    reduce_dtype: Literal["bfloat16", "float16"] | None = None
    """Type in which gradients cross the replicas, half the bytes of float32, for slow links; loss and metrics stay as
    they are. It rounds each replica's part, so that the weights depend on their number; default: as computed."""


class Mirrored(_Reduced):
    """One replica a device, gradients summed over all of them in each step (tf.distribute.MirroredStrategy)."""

    kind: Literal["mirrored"] = "mirrored"
    num_replicas: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """How many replicas; auto: every GPU, or 2 logical CPU devices where there is none."""
    all_reduce: Literal["auto", "nccl", "hierarchical", "one_device", "ring"] = "auto"
    """How gradients are summed: TensorFlow's choice for GPUs (auto), NCCL, by way of groups of GPUs (hierarchical), on
    one device, or round the ring of all; on CPUs auto is one_device."""


class MultiWorkerMirrored(_Reduced):
    """Several workers, processes with devices of their own, that do each step together, gradients summed over all
    (tf.distribute.MultiWorkerMirroredStrategy); on this host. The same weights as on one worker."""

    kind: Literal["multi_worker_mirrored"] = "multi_worker_mirrored"
    num_workers: int = Field(2, ge=1)
    """How many workers; each has an equal part of the GPUs, or one replica on the CPU."""
    all_reduce: Literal["auto", "nccl", "ring"] = "auto"
    """How gradients are summed: TensorFlow's choice, NCCL between GPUs, or round the ring of all."""
    interface: str = Field("127.0.0.1", pattern=r"^[0-9A-Za-z.:-]+$")
    """Address of this host at which the workers reach each other."""


Distribute = Annotated[
    OneDevice | Mirrored | MultiWorkerMirrored, Field(discriminator="kind"), kind_if_none("mirrored")
]
