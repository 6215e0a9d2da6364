"""`wego_torch`: a module quantized and compiled in place; CPU parts run beside the DPU's.

    quantized = wego_torch.quantize(module, [(1, 3, 32, 32)], loader, calibrator)
    meta = wego_torch.InputMeta(torch.float, [1, 3, 32, 32])
    compiled = wego_torch.compile(quantized, wego_torch.CompileOptions(inputs_meta=[meta]))
    compiled(image)

`torch.compile(model, backend="npuc")` does both in one line (docs/pytorch.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from npuc.codegen.compile_model import CompileOptions as ProgramOptions
from npuc.compat.vitis.notices import note, refusal, warn
from npuc.compat.vitis.pytorch_nndct.quantizer import torch_quantizer
from npuc.compat.vitis.targets import B4096
from npuc.errors import UsageError
from npuc.export.torch.carried import carried_network
from npuc.flow import compile_network
from npuc.integrations.signature import described_as
from npuc.integrations.torch.integers import IntegerModule
from npuc.integrations.torch.module import NpuModule
from npuc.ir import Graph, shape_of
from npuc.target import load_target
from npuc.target.fingerprint import fingerprint_of

__all__ = [
    "AccuracyMode",
    "CompileOptions",
    "InputMeta",
    "OptimizeOptions",
    "PartitionOptions",
    "TargetInfo",
    "compile",
    "get_target_info",
    "quantize",
    "version",
]


class AccuracyMode(Enum):
    """What becomes of fix neurons on the CPU; layers there are float here in both modes."""

    Default = 0
    ReserveRedundantFixNeurons = 1
    ReserveReduantFixNeurons = 1  # the guide's other spelling


@dataclass(frozen=True)
class InputMeta:
    """The type and shape of an input."""

    dtype: Any = None
    input_shape: Sequence[int] = ()


@dataclass(frozen=True)
class PartitionOptions:
    """Which layers the DPU gets."""

    wego_subgraph_min_ops_number: int = 0
    extra_accel_op_list: Sequence[str] = ()


@dataclass(frozen=True)
class OptimizeOptions:
    """How CPU parts run."""

    zendnn_enable: bool = False


@dataclass(frozen=True)
class CompileOptions:
    """How a module is compiled."""

    accuracy_mode: AccuracyMode = AccuracyMode.Default
    inputs_meta: Sequence[InputMeta] = field(default_factory=list)
    partition_options: PartitionOptions | None = None
    optimize_options: OptimizeOptions | None = None


@dataclass(frozen=True)
class TargetInfo:
    """The machine that programs are compiled for."""

    batch: int
    name: str
    fingerprint: int
    is_fingerprint_driven: bool = False


def get_target_info() -> TargetInfo:
    """The simulated DPU."""
    target = load_target(B4096)
    return TargetInfo(1, target.name, fingerprint_of(target))


def version() -> str:
    """The version of the vendor's package that this one stands in for."""
    return "3.5.0"


def compile(module: Any, options: CompileOptions | None = None) -> NpuModule:
    """Compile what `quantize` gave, or what `torch.jit.load` reads of a file of `export_torch_script`."""
    options = options or CompileOptions()
    graph, metadata = _network_of(module)
    shapes = [tuple(shape_of(port.value)) for port in graph.inputs]
    if options.inputs_meta and len(options.inputs_meta) != len(shapes):
        raise UsageError(
            f"inputs_meta describes {len(options.inputs_meta)} inputs, and the module has {len(shapes)}"
        )
    for meta, shape in zip(options.inputs_meta, shapes, strict=False):
        if tuple(meta.input_shape)[1:] != shape[1:]:
            raise UsageError(
                f"inputs_meta has shape {list(meta.input_shape)}, and the module was quantized for {list(shape)}"
            )
    if options.optimize_options is not None and options.optimize_options.zendnn_enable:
        note("zendnn_enable means nothing here: ONNX Runtime computes CPU parts")
    if options.accuracy_mode is not AccuracyMode.Default:
        note(
            f"accuracy_mode {options.accuracy_mode.name} means nothing here: layers on the CPU are float in both modes"
        )
    partition = options.partition_options or PartitionOptions()
    if partition.extra_accel_op_list:
        note("extra_accel_op_list means nothing here: the DPU gets every operator that it computes")
    least = partition.wego_subgraph_min_ops_number
    settings = ProgramOptions(least_ops=max(1, least + 1 if least else 1))
    done = compile_network(graph, load_target(B4096), settings, "wego")
    return NpuModule(replace(done.model, metadata={**done.model.metadata, **metadata}))


def _network_of(module: Any) -> tuple[Graph, dict[str, str]]:
    """The integers of a module, and how it is called."""
    if isinstance(module, IntegerModule):
        return module.graph, dict(described_as(module.signature))
    carried = carried_network(module) if isinstance(module, torch.nn.Module) else None
    if carried is None:
        raise refusal(
            "WEGO_TORCH_INVALID_MODEL",
            f"the module is a {type(module).__name__} without the scales of a quantized network",
            "Give what wego_torch.quantize returned, or torch.jit.load of a file that export_torch_script wrote",
        )
    return carried


def quantize(
    module: Any,
    input_shapes: Sequence[Sequence[int]],
    dataloader: Iterable[Any],
    calibrator: Callable[..., Any],
    export_dataloader: Iterable[Any] | None = None,
    device: Any = None,
    output_dir: Path | str = "quantize_result",
    bitwidth: int | None = None,
    quant_config_file: Path | str | None = None,
    *args: Any,
    **kwargs: Any,
) -> IntegerModule:
    """Quantize a module: `calibrator(module, batch, index, device, ...)` is called with every batch, and once more with the
    quantized module."""
    place = torch.device("cpu") if device is None else torch.device(device)
    if place.type != "cpu":
        warn("quantization computes on the CPU")
        place = torch.device("cpu")
    examples = tuple(torch.zeros(tuple(shape)) for shape in input_shapes)
    settings: dict[str, Any] = {
        "output_dir": output_dir,
        "bitwidth": bitwidth or 8,
        "quant_config_file": quant_config_file,
    }
    quantizer = torch_quantizer("calib", module, examples, **settings)
    batches = 0
    for index, batch in enumerate(dataloader):
        calibrator(quantizer.quant_model, batch, index, place, *args, **kwargs)
        batches += 1
    quantizer.export_quant_config()
    quantizer = torch_quantizer("test", module, examples, **settings)
    last = next(iter(dataloader if export_dataloader is None else export_dataloader), None)
    if last is not None:
        calibrator(quantizer.quant_model, last, batches, place, *args, **kwargs)
    result: IntegerModule = quantizer.quant_model
    return result
