"""npuc: an open NPU compiler suite.

    npuc.compile    the whole way in one call: compile("model.onnx", "images/", target="edge-4t").save("model.npu")
    npuc.flow       from a model file to integers and to a program, one call a stage: what the commands do
    npuc.engine     float networks run, and any tensor can be looked at
    npuc.runtime    compiled models run: Runner, Pool, Pipeline
    npuc.lang       networks built in Python; npuc.from_torch makes one of a torch module
    npuc.target     the machines that are compiled for
    npuc.train      training for the machine
    npuc.evaluate, npuc.profile, npuc.debug    accuracy, time, and which layer is wrong

docs/index.md leads to the page of each. `import npuc` itself loads nothing: a package is there at first use.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from npuc import aliases
from npuc.registries import PROVIDERS

__version__ = "0.1.0"

# ONNX Runtime would report its use to its makers over the network. A compiler does not.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

PROVIDERS.update(
    {
        "passes": ("npuc.transform",),
        # A saved network names only the domain of such an op.
        "kernels of npuc.torch": ("npuc.frontend.torch.kernels",),
    }
)

aliases.install(
    {
        "npuc.calib.both": "npuc.calib.paired",
        "npuc.calib.images": "npuc.images.loading",
        "npuc.codegen.debug_info": "npuc.program.debug_info",
        "npuc.codegen.disassemble": "npuc.program.disassemble",
        "npuc.codegen.file": "npuc.program.file",
        "npuc.codegen.isa": "npuc.program.isa",
        "npuc.codegen.kernels": "npuc.program.custom_kernels",
        "npuc.codegen.program": "npuc.program.model",
        "npuc.codegen.relocate": "npuc.program.relocate",
        "npuc.program.inputs": "npuc.program.model",
        "npuc.schedule.lateness": "npuc.schedule.load_deadlines",
        "npuc.schedule.memory.picture": "npuc.schedule.memory.svg",
        "npuc.engine.custom": "npuc.kernels.custom",
        "npuc.engine.kernels": "npuc.kernels",
        "npuc.evaluate.compare": "npuc.compare.tensors",
        "npuc.evaluate.import_check": "npuc.import_check.check",
        "npuc.evaluate.layers": "npuc.compare.layers",
        "npuc.evaluate.measuring": "npuc.metrics.measuring",
        "npuc.evaluate.sample": "npuc.datasets.sample",
        "npuc.export.c": "npuc.deploy.c",
        "npuc.inspect.picture": "npuc.inspect.svg",
        "npuc.ir.preprocess": "npuc.images.preprocess",
        "npuc.partition.inspection": "npuc.inspect.inspection",
        "npuc.profile.picture": "npuc.profile.network_drawing",
        "npuc.quant.arithmetic": "npuc.arithmetic.requantization",
        "npuc.quant.expression": "npuc.quant.target_encoding",
        "npuc.quant.judging": "npuc.quant.validation",
        "npuc.quant.ladder.climb": "npuc.quant.ladder.sequence",
        "npuc.quant.ladder.workshop": "npuc.quant.ladder.context",
        "npuc.quant.mixed_precision.prices": "npuc.quant.mixed_precision.cost_model",
        "npuc.quant.tflite": "npuc.arithmetic.tflite",
        "npuc.sim.engine": "npuc.runtime.engine",
    }
)

_LAZY = (
    "arithmetic", "calib", "codegen", "compare", "compat", "datasets", "debug", "deploy", "engine", "errors",
    "evaluate", "export", "flow", "frontend", "images", "import_check", "inspect", "integrations", "ir", "keras",
    "kernels", "lang", "metrics", "partition", "plugins", "profile", "program", "quant", "runtime", "schedule", "sim",
    "target", "tensorflow", "tensors", "torch", "train", "transform",
)  # fmt: skip

_FUNCTIONS = {"compile": ("npuc.flow", "compile_model"), "from_torch": ("npuc.torch", "from_torch")}
"""Functions by their short names: module and name."""

__all__ = ["__version__", *_LAZY, *_FUNCTIONS]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return _part(f"npuc.{name}")
    if name in _FUNCTIONS:
        module, function = _FUNCTIONS[name]
        return getattr(_part(module), function)
    raise AttributeError(f"module 'npuc' has no attribute '{name}'")


def _part(module: str) -> Any:
    """A module of npuc; where only `npuc-runtime` is installed, most are not there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        from npuc.errors import MissingExtraError

        raise MissingExtraError(
            f"{module} is part of the compiler, and only its runtime is installed",
            fix="Install it with: pip install npuc",
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_FUNCTIONS})
