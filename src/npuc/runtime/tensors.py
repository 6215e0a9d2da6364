"""The tensors that a runner takes and gives, and what it has to do for them.

Networks take and give reals as a rule: the file has conversions between them and the integers of the NPU. With raw
tensors, the caller has the integers, and such conversions are left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.errors import FileFormatError
from npuc.program.model import CompiledModel, Conversion, HostConversion, NpuSubgraph, Tensor


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a runner."""

    name: str
    shape: tuple[int, ...]
    """The network's own, N x C x H x W for rank 4 as a rule."""
    dtype: np.dtype[Any]
    """Of the arrays that `run` takes or gives."""
    scale: float
    """The real value of a step of the integers behind it; 0 if there are none."""
    zero_point: int
    layout: str
    """How memory has the axes of a tensor of rank 4, NCHW or NHWC; an array that is so needs no copy. Else empty."""


@dataclass(frozen=True)
class ModelPort:
    """A tensor of the caller and the one of the file that it becomes or comes from."""

    info: TensorInfo
    tensor: Tensor
    quantized: bool
    """The caller has reals, the file integers, and no conversion of the file is between them."""
    host: bool
    """No NPU subgraph touches the tensor, so its memory can be the caller's."""
    own_segment: bool
    """The tensor is all of its segment, so the segment's memory can be the caller's."""


@dataclass(frozen=True)
class ModelPorts:
    """Inputs, outputs, and the conversions that they make needless."""

    inputs: tuple[ModelPort, ...]
    outputs: tuple[ModelPort, ...]
    skipped: frozenset[Conversion]
    batch: int | None
    """The first dimension of all inputs and outputs, if they have it in common."""

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(port.info.name for port in self.inputs)

    @cached_property
    def input_tensors(self) -> tuple[TensorInfo, ...]:
        """What a run takes, in order."""
        return tuple(port.info for port in self.inputs)

    @cached_property
    def output_tensors(self) -> tuple[TensorInfo, ...]:
        """What a run gives, in order."""
        return tuple(port.info for port in self.outputs)


def ports_of(model: CompiledModel, raw: bool, raw_outputs: bool | None = None) -> ModelPorts:
    """The ports of a model, for reals or for raw integers; outputs may be another way than inputs."""
    raw_outputs = raw if raw_outputs is None else raw_outputs
    known = {tensor.name: tensor for tensor in model.tensors}
    for name in (*model.inputs, *model.outputs):
        if name not in known:
            raise FileFormatError(f"there is no tensor '{name}'", where=model.name)
    conversions = [
        conversion
        for part in model.subgraphs
        if isinstance(part, HostConversion)
        for conversion in part.conversions
    ]
    uses = Counter(name for part in model.subgraphs for name in part.inputs)
    on_npu = {
        name
        for part in model.subgraphs
        if isinstance(part, NpuSubgraph)
        for name in (*part.inputs, *part.outputs)
    }
    after = {conversion.source: conversion for conversion in conversions if known[conversion.result].scale}
    before = {conversion.result: conversion for conversion in conversions if known[conversion.source].scale}
    skipped: set[Conversion] = set()

    def port(name: str, conversion: Conversion | None, other: str, raw: bool) -> ModelPort:
        tensor, behind = known[name], known[other]
        if raw and conversion is not None:
            skipped.add(conversion)
            tensor = behind
        quantized = not raw and bool(tensor.scale)
        kind = np.dtype(np.float32) if quantized else dtype_of(tensor.dtype).numpy
        info = TensorInfo(name, tensor.shape, kind, behind.scale, behind.zero_point, _layout(tensor))
        own_segment = (
            model.segments[tensor.segment].kind == "io" and model.segments[tensor.segment].size == tensor.size
        )
        return ModelPort(info, tensor, quantized, tensor.name not in on_npu, own_segment)

    inputs = []
    for name in model.inputs:
        conversion = after.get(name)
        if conversion is not None and (uses[name] > 1 or name in model.outputs):
            conversion = None
        inputs.append(port(name, conversion, conversion.result if conversion else name, raw))
    outputs = []
    for name in model.outputs:
        conversion = before.get(name)
        if conversion is not None and uses[name]:
            conversion = None
        outputs.append(port(name, conversion, conversion.source if conversion else name, raw_outputs))
    sizes = {end.info.shape[:1] for end in (*inputs, *outputs)}
    first = sizes.pop() if len(sizes) == 1 else ()
    return ModelPorts(
        tuple(inputs), tuple(outputs), frozenset(skipped), first[0] if first and first[0] else None
    )


def _layout(tensor: Tensor) -> str:
    return "".join("NCHW"[axis] for axis in tensor.order) if len(tensor.shape) == 4 else ""
