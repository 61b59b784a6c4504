"""Distribution: the kinds of `distribute`, which say on what devices and workers a step runs."""

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tasks.patterns import Pattern
from tasks.section import Section, kind_if_none
from tasks.size import Size


class Devices(Section):
    """What holds of the devices of a run, however many there are."""

    when_busy: Literal["wait", "refuse"] = "wait"
    """What to do while another run of this host holds one of the devices."""
    on_lost_device: Literal["stop", "shrink"] = "stop"
    """What to do when one of the run's GPUs is gone for good: shrink goes on with the same global batch on those that
    are left, to the same weights; each then takes more examples at once, which train.microbatch can limit."""
    hang_timeout_seconds: float = Field(300, gt=0)
    """Longest silence of a worker, between steps or batches, before it counts as hung and is stopped."""
    slow_phase_factor: float = Field(4, ge=1)
    """How many times as long it may be silent while it starts, compiles, writes a checkpoint or report, or exports."""


class OneDevice(Devices):
    """One replica: the first GPU, or the CPU."""

    kind: Literal["one_device"] = "one_device"


class AllReduced(Devices):
    """What holds where gradients are summed over several replicas."""

    pack_size: Size | None = None
    """Gradients are sent in packs of so many bytes ('32 MB'), the first while the rest is still computed; default: all
    in one. Not for the all-reduces hierarchical and one_device."""
    reduce_dtype: Literal["bfloat16", "float16"] | None = None
    """Type in which gradients cross the replicas, half the bytes of float32, for slow links; loss and metrics stay as
    they are. It rounds each replica's part, so that the weights depend on their number; default: as computed."""


class Clustered(Devices):
    """Several processes of this host that reach each other over the network."""

    interface: str = Field("127.0.0.1", pattern=r"^[0-9A-Za-z.:-]+$")
    """Address of this host at which they reach each other."""


class Mirrored(AllReduced):
    """One replica a device, gradients summed over all of them in each step (tf.distribute.MirroredStrategy)."""

    kind: Literal["mirrored"] = "mirrored"
    num_replicas: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """How many replicas; auto: every GPU, or 2 logical CPU devices where there is none."""
    devices: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Numbers of the GPUs to take, such as [0, 2], one for each replica; default: the first."""
    all_reduce: Literal["auto", "nccl", "hierarchical", "one_device", "ring"] = "auto"
    """How gradients are summed: TensorFlow's choice for GPUs (auto), NCCL, by way of groups of GPUs (hierarchical), on
    one device, or round the ring of all; on CPUs auto is one_device."""

    @field_validator("devices")
    @classmethod
    def _are_as_many(cls, devices: tuple[int, ...] | None, info: ValidationInfo) -> tuple[int, ...] | None:
        count = info.data.get("num_replicas", "auto")
        if devices is not None and (len(set(devices)) != len(devices) or count not in ("auto", len(devices))):
            raise ValueError("must be different numbers, one for each of num_replicas, such as [0, 2]")
        return devices


class MultiWorkerMirrored(AllReduced, Clustered):
    """Several workers, processes with devices of their own, that do each step together, gradients summed over all
    (tf.distribute.MultiWorkerMirroredStrategy); on this host. The same weights as on one worker."""

    kind: Literal["multi_worker_mirrored"] = "multi_worker_mirrored"
    num_workers: int = Field(2, ge=1)
    """How many workers; each has an equal part of the GPUs, or one replica on the CPU."""
    all_reduce: Literal["auto", "nccl", "ring"] = "auto"
    """How gradients are summed: TensorFlow's choice, NCCL between GPUs, or round the ring of all."""


class ModelParallel(Devices):
    """One replica whose layers lie on several devices, for a model that is too large for one."""

    kind: Literal["model_parallel"] = "model_parallel"
    num_devices: int = Field(2, ge=1)
    """Devices of a replica; logical CPU devices where there is no GPU."""
    place: dict[Pattern, Annotated[int, Field(ge=0)]] = {}
    """Device of each layer: {regular expression, looked for in the layer's name: number of the device}; the first that
    is found counts, and other layers lie on device 0."""

    @property
    def total_devices(self) -> int:
        """Devices of all replicas together."""
        return self.num_devices

    @model_validator(mode="after")
    def _are_there(self) -> Self:
        for pattern, number in self.place.items():
            if number >= self.num_devices:
                raise ValueError(f"place: {pattern!r} is on device {number}, and num_devices={self.num_devices}")
        return self


class Hybrid(ModelParallel):
    """Several replicas, each of which has its layers on several devices: groups of devices, gradients summed over all
    groups in each step."""

    kind: Literal["hybrid"] = "hybrid"  # type: ignore[assignment]
    num_groups: int = Field(2, ge=1)
    """How many groups of num_devices; one replica each."""

    @property
    def total_devices(self) -> int:
        return self.num_groups * self.num_devices


class ParameterServer(Clustered):
    """Workers that each take batches and update weights that lie on parameter servers, without waiting for each other
    (tf.distribute.ParameterServerStrategy); on this host. For clusters whose machines come and go: the order of updates
    is that of the clock, a batch may be taken twice when a worker is lost, and no two trainings end alike."""

    kind: Literal["parameter_server"] = "parameter_server"
    num_workers: int = Field(2, ge=1)
    """Workers that compute gradients, besides the chief, which hands out batches."""
    num_servers: int = Field(1, ge=1)
    """Processes that hold the weights and apply updates."""


Distribute = Annotated[
    OneDevice | Mirrored | MultiWorkerMirrored | ModelParallel | Hybrid | ParameterServer,
    Field(discriminator="kind"),
    kind_if_none("mirrored"),
]
