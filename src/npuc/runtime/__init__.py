"""Compiled models that run: on a device, from many threads, with what belongs before and after.

`Runner` runs a model, `Pool` spreads jobs over several devices, `Pipeline` keeps stages busy at the same time;
`npuc.runtime.postprocess` makes answers of outputs. docs/runtime.md tells it all.
"""

from typing import Any

from npuc.registries import renamed
from npuc.runtime.device import Device, LoadedModel, device_names, open_device, register_device
from npuc.runtime.job import Job
from npuc.runtime.pipeline import Pipeline, Stage
from npuc.runtime.pool import Pool
from npuc.runtime.runner import Runner
from npuc.runtime.simulated import SimulatedDevice
from npuc.runtime.tensors import TensorInfo

__all__ = [
    "Device",
    "Job",
    "LoadedModel",
    "Pipeline",
    "Pool",
    "Runner",
    "SimulatedDevice",
    "Stage",
    "TensorInfo",
    "device_names",
    "open_device",
    "register_device",
]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Loaded": LoadedModel})
