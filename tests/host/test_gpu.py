"""The GPU stack: every misfit is named, from versions and from what nvidia-smi prints. The outputs are made up."""

import pytest

from tasks.host.finding import Finding
from tasks.host.gpu import stack_findings

WANTS = ["keras>=3.12.0", "numpy>=1.26"]
GPUS = {
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
    "built_with_cuda": True,
    "cuda_version": "12.5.1",
    "devices": ["CPU:0", "GPU:0 (NVIDIA A100)", "GPU:1 (NVIDIA A100)"],
    "missing_libraries": [],
}
SMI = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   27C    P0             62W /  400W |       0MiB /  81920MiB |      0%      Default |
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0F:00.0 Off |                    0 |
+-----------------------------------------------------------------------------------------+
"""


def test_stack_that_fits_is_one_finding():
    assert list(stack_findings(GPUS, SMI, WANTS)) == [
        Finding(name="stack", status="ok", found="TensorFlow 2.21.0 with Keras 3.15.1, driver 550.54.15, CUDA 12")
    ]
    [cpu] = stack_findings(GPUS | {"devices": ["CPU:0"]}, None, WANTS)
    assert cpu.found == "TensorFlow 2.21.0 with Keras 3.15.1"


@pytest.mark.parametrize(
    ("changes", "smi", "name", "found", "fix"),
    [
        ({"keras": "3.8.0"}, SMI, "keras and tensorflow", "wants keras>=3.12.0, installed is 3.8.0", "make setup"),
        (
            {},
            SMI.replace("550.54.15", "470.82.01").replace("12.4", "11.4"),
            "driver and cuda",
            "driver 470.82.01 runs CUDA up to 11.4; TensorFlow 2.21.0 is built for CUDA 12, which needs driver "
            "525.60.13 or newer",
            "install NVIDIA's driver 525.60.13 or newer",
        ),
        (
            {"built_with_cuda": False, "cuda_version": "", "devices": ["CPU:0"]},
            SMI,
            "driver and tensorflow",
            "driver 550.54.15 is there, but TensorFlow 2.21.0 is built for CPUs only",
            "make setup GPU=1",
        ),
        (
            {"devices": ["CPU:0"]},
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54\n",
            "driver",
            "the driver's kernel module and its libraries are of different releases",
            "restart the machine",
        ),
        (
            {"devices": ["CPU:0"]},
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is "
            "installed and running.\n",
            "driver",
            "nvidia-smi reaches no driver: NVIDIA-SMI has failed because it couldn't communicate",
            "modprobe nvidia",
        ),
        (
            {"devices": ["CPU:0", "GPU:0 (NVIDIA A100)"]},
            SMI,
            "gpus",
            "nvidia-smi lists 2 GPU(s), TensorFlow sees 1",
            "CUDA_VISIBLE_DEVICES",
        ),
    ],
    ids=["keras", "old driver", "cpu build", "half updated driver", "no driver", "hidden gpu"],
)
def test_misfit_is_named_with_its_fix(changes, smi, name, found, fix):
    [finding] = stack_findings(GPUS | changes, smi, WANTS)
    assert (finding.name, finding.status) == (name, "warning" if name == "gpus" else "problem")
    assert found in finding.found
    assert fix in finding.fix
