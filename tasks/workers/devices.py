"""Devices: which of them TensorFlow uses in this process, and the strategy that runs a step on them."""

import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tasks.distribution import (
    AllReduced,
    Distribute,
    Mirrored,
    ModelParallel,
    MultiWorkerMirrored,
    OneDevice,
    ParameterServer,
)
from tasks.errors import ConfigError
from tasks.workers.child import answer_sigterm, progress
from tasks.workers.cluster import leads, place_in_cluster

if TYPE_CHECKING:
    import tensorflow as tf

# What a build for CUDA 12 (tensorflow[and-cuda]) loads at run time; the version of cuDNN is asked of the build.
_CUDA_LIBRARIES = (
    "libcuda.so.1",  # the driver
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libcupti.so.12",
    "libnccl.so.2",
)


def open_strategy(distribute: Distribute) -> "tf.distribute.Strategy":
    """Returns the strategy, after TensorFlow's devices were configured for it; once in a process, before any op.

    GPUs take memory as they need it. Without a GPU every replica is a logical device of the one CPU. What is meant for
    several workers runs on the devices of this one if it is alone, as it is in an evaluation.
    Raises ConfigError if more replicas are asked for than there are GPUs, or an all-reduce that they cannot do.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    progress("start", num_gpus=len(gpus))
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    kind = "GPU" if gpus else "CPU"
    match distribute:
        case ParameterServer() if leads():
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            strategy = tf.distribute.ParameterServerStrategy(resolver)
            answer_sigterm()
            return strategy
        case OneDevice() | ParameterServer():
            return tf.distribute.OneDeviceStrategy(f"{kind}:0")
        case AllReduced(all_reduce="nccl") if not gpus:
            raise ConfigError("distribute.all_reduce=nccl: needs GPUs, and TensorFlow sees none here; use auto")
        case MultiWorkerMirrored() if place_in_cluster()[1] > 1:
            return _open_multi_worker(distribute)
        case MultiWorkerMirrored():
            return _open_mirrored(Mirrored(num_replicas="auto" if gpus else 1), num_gpus=len(gpus))
        case Mirrored():
            return _open_mirrored(distribute, num_gpus=len(gpus))
        case ModelParallel():
            groups = device_groups(distribute)
            _make_cpu_devices(0 if gpus else sum(map(len, groups)))
            # A variable's copies may lie on other devices than the replicas', which no collective knows of.
            return tf.distribute.MirroredStrategy(
                [group[0] for group in groups], cross_device_ops=tf.distribute.ReductionToOneDevice()
            )


def device_groups(distribute: ModelParallel) -> list[list[str]]:
    """Returns the devices of each replica by TensorFlow's full names; raises ConfigError if there are too few GPUs."""
    import tensorflow as tf

    return plan_groups(distribute, num_gpus=len(tf.config.list_physical_devices("GPU")))


def plan_groups(distribute: ModelParallel, *, num_gpus: int) -> list[list[str]]:
    """Returns what `device_groups` returns on a host with so many GPUs; 0: on logical devices of its CPU."""
    count = distribute.total_devices
    num_groups = count // distribute.num_devices
    if num_gpus and count > num_gpus:
        raise ConfigError(
            f"distribute.num_devices={distribute.num_devices}: {num_groups} group(s) of so many need {count} GPUs, and "
            f"{num_gpus} are visible to TensorFlow; use at most {num_gpus // num_groups}"
        )
    kind = "GPU" if num_gpus else "CPU"
    names = [f"/job:localhost/replica:0/task:0/device:{kind}:{index}" for index in range(count)]
    return [names[first : first + distribute.num_devices] for first in range(0, count, distribute.num_devices)]


def _open_mirrored(distribute: Mirrored, *, num_gpus: int) -> "tf.distribute.Strategy":
    import tensorflow as tf

    kind = "GPU" if num_gpus else "CPU"
    numbers = distribute.devices or range(num_replicas(distribute.num_replicas, num_gpus=num_gpus))
    if num_gpus and max(numbers) >= num_gpus:
        raise ConfigError(
            f"distribute.devices={list(numbers)}: only {num_gpus} GPUs are visible to TensorFlow; use numbers from "
            f"0 to {num_gpus - 1}"
        )
    _make_cpu_devices(0 if num_gpus else max(numbers) + 1)
    return tf.distribute.MirroredStrategy(
        [f"{kind}:{index}" for index in numbers], cross_device_ops=_cross_device_ops(distribute, kind)
    )


def _open_multi_worker(distribute: MultiWorkerMirrored) -> "tf.distribute.Strategy":
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication_options(distribute))
    # Else each step first asks all workers whether they have a batch, and the batch has no static shape: a feed gives
    # every worker as many.
    strategy.extended.experimental_enable_get_next_as_optional = False
    answer_sigterm()  # which the strategy's coordination service does not hand on
    return strategy


def _make_cpu_devices(count: int) -> None:
    """Cuts the CPU into so many logical devices; 0: leaves it as it is."""
    import tensorflow as tf

    if count:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def communication_options(
    distribute: Mirrored | MultiWorkerMirrored,
) -> "tf.distribute.experimental.CommunicationOptions":
    """Returns how TensorFlow's collectives sum gradients; the all-reduces hierarchical and one_device use none."""
    import tensorflow as tf

    implementations = tf.distribute.experimental.CommunicationImplementation
    return tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=distribute.pack_size.size_bytes if distribute.pack_size else 0,
        implementation={"nccl": implementations.NCCL, "ring": implementations.RING}.get(
            distribute.all_reduce, implementations.AUTO
        ),
    )


def _cross_device_ops(distribute: Mirrored, kind: str) -> "tf.distribute.CrossDeviceOps | None":
    """Returns what sums over the devices of one worker; None: TensorFlow's collectives."""
    import tensorflow as tf

    if distribute.all_reduce == "hierarchical":
        return tf.distribute.HierarchicalCopyAllReduce()
    # On CPUs the collectives would pack gradients for links that there are not.
    to_one = distribute.all_reduce == "one_device" or (kind == "CPU" and distribute.all_reduce == "auto")
    return tf.distribute.ReductionToOneDevice() if to_one else None


def num_replicas(requested: int | Literal["auto"], *, num_gpus: int) -> int:
    """Returns how many replicas a mirrored strategy has; raises ConfigError if they are more than the GPUs."""
    if requested == "auto":
        return num_gpus or 2
    if num_gpus and requested > num_gpus:
        raise ConfigError(
            f"distribute.num_replicas={requested}: only {num_gpus} GPUs are visible to TensorFlow; "
            f"use at most {num_gpus}, or auto"
        )
    return requested


def compute_capabilities(strategy: "tf.distribute.Strategy") -> tuple[tuple[int, int], ...]:
    """Returns those of the strategy's GPUs: none on a CPU, and (0, 0) of a GPU that has none."""
    return tuple(details.get("compute_capability", (0, 0)) for details in _gpu_details(strategy))


def gpu_names(strategy: "tf.distribute.Strategy") -> tuple[str, ...]:
    """Returns the models of this process's GPUs that take batches, such as NVIDIA L4; none on a CPU."""
    return tuple(details.get("device_name", "") for details in _gpu_details(strategy))


def _gpu_details(strategy: "tf.distribute.Strategy") -> list[dict[str, Any]]:
    """Returns what TensorFlow knows of this process's GPUs that take batches: of a group of devices, the first."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:  # the strategy of a parameter server's chief has no devices to name
        return []
    numbers = [int(name.rpartition(":")[2]) for name in strategy.extended.worker_devices if "GPU" in name]
    return [tf.config.experimental.get_device_details(gpus[number]) for number in numbers]


def try_gpu() -> dict[str, bool]:
    """Returns {"answers": whether the first GPU that this process sees can be computed on}; one that is merely full
    counts as one that can."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return {"answers": False}
    tf.config.experimental.set_memory_growth(gpus[0], True)
    try:
        with tf.device("GPU:0"):
            return {"answers": float(tf.reduce_sum(tf.ones([8]))) == 8}
    except tf.errors.OpError as error:
        return {"answers": isinstance(error, tf.errors.ResourceExhaustedError) or "OUT_OF_MEMORY" in str(error)}


def describe_devices() -> dict[str, Any]:
    """Returns what TensorFlow finds here, as JSON.

    `tensorflow` and `keras`: versions. `built_with_cuda`: whether this build can use GPUs, and `cuda_version` by which
    CUDA. `devices`: names, GPUs with their model. `missing_libraries`: sonames that this build needs for GPUs and that
    cannot be loaded.
    """
    import keras
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    built_with_cuda = bool(build["is_cuda_build"])
    libraries = (*_CUDA_LIBRARIES, f"libcudnn.so.{build['cudnn_version']}") if built_with_cuda else ()
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "built_with_cuda": built_with_cuda,
        "cuda_version": build.get("cuda_version", ""),
        "devices": [_name(device) for device in tf.config.list_physical_devices()],
        "missing_libraries": [library for library in libraries if not _loads(library)],
    }


def _name(device: Any) -> str:
    import tensorflow as tf

    name = device.name.removeprefix("/physical_device:")
    model = tf.config.experimental.get_device_details(device).get("device_name") if name.startswith("GPU") else None
    return f"{name} ({model})" if model else name


def _loads(library: str) -> bool:
    """Returns whether the library is found where TensorFlow looks: the system's path, then NVIDIA's Python packages."""
    spec = find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    candidates = [library, *(str(path) for folder in folders for path in folder.glob(f"*/lib/{library}"))]
    for candidate in candidates:
        try:
            ctypes.CDLL(candidate)
            return True
        except OSError:
            continue
    return False
