"""Which instruction writes which part of which tensor: what a debugger needs to see the layers of a compiled model.

A compiled model keeps few of its tensors: most live in local memory, row by row. So the compiler notes for every tensor of
the network where its parts are when instructions write them, or from which other tensor or subgraph it can be had. The note
is the JSON of the section `.npu.debug`. No runtime reads it, a file without it runs as well, and whoever reads it here
trusts none of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from npuc.arithmetic.dtypes import dtype_of
from npuc.errors import DebugInfoError
from npuc.format_versions import DEBUG_SECTION
from npuc.program.model import SHARED, CompiledModel, CpuSubgraph, NpuSubgraph

LARGEST = 1 << 34
"""Bytes that a tensor may claim to have."""

Count = Annotated[int, Field(ge=0, lt=1 << 48)]


class Place(NamedTuple):
    """A part of a tensor in a memory, while some instructions of its layer write it."""

    core: Count
    segment: Annotated[int, Field(ge=-1, le=SHARED)]
    """-1: local memory of the core."""
    first: Count
    """Index in the core's stream of the first instruction that writes it."""
    last: Count
    address: Count
    size: Count
    byte: Count
    """The byte of the tensor, in memory order, that is at `address`."""


class TracedTensor(BaseModel):
    """A tensor of the network. It is written part by part (`places`), in a CPU subgraph (`onnx`), the elements of another
    one under another shape (`view_of`), or only in DRAM (`memory`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str
    """As dumps call it."""
    layer: str
    kind: str
    shape: Annotated[tuple[Annotated[int, Field(ge=-1)], ...], Field(max_length=16)]
    order: tuple[int, ...]
    """The axes of the shape from the outermost in memory to the innermost."""
    dtype: str
    scale: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    zero_point: int
    subgraph: Annotated[int, Field(ge=-1)]
    """The subgraph that makes it; -1 for an input of the model."""
    inputs: tuple[Count, ...] = ()
    """The tensors that its layer reads."""
    memory: str | None = None
    """The tensor of the tensor table through which other subgraphs have it."""
    onnx: str | None = None
    view_of: Count | None = None
    permute: tuple[int, ...] = ()
    """Of a view: the axes of the other one in the order in which they are read."""
    number: Count = 0
    """Of its layer in the layer table."""
    places: tuple[Place, ...] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * dtype_of(self.dtype).itemsize


class DebugInfo(BaseModel):
    """All tensors, each behind those that it is made of."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    version: Literal[1] = 1
    tensors: tuple[TracedTensor, ...]

    def encoded(self) -> bytes:
        """As the file has it."""
        fields = self.model_dump(mode="json", exclude_defaults=True) | {"version": self.version}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read_debug_info(compiled: CompiledModel) -> DebugInfo:
    """The note in a compiled model, checked against everything that it speaks of."""
    if not compiled.debug:
        raise DebugInfoError(
            "does not tell which instruction writes which layer",
            where=compiled.name,
            fix="Compile it again: files of an older npuc do not have the section .npu.debug",
        )
    try:
        info = DebugInfo.model_validate_json(compiled.debug)
        names = {tensor.name for tensor in compiled.tensors}
        for number, tensor in enumerate(info.tensors):
            problem = _problem(tensor, info.tensors[:number], compiled, names)
            if problem:
                raise ValueError(f"tensor {number}: {problem}")
    except ValidationError as error:
        DEBUG_SECTION.check_json(compiled.debug, compiled.name, DebugInfoError)
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise _damaged(compiled, f"{place}: {first['msg']}") from error
    except ValueError as error:
        raise _damaged(compiled, str(error)) from error
    return info


def _damaged(compiled: CompiledModel, words: str) -> DebugInfoError:
    fix = "Compile the model again; it runs all the same"
    return DebugInfoError(f"its section .npu.debug is damaged: {words}", where=compiled.name, fix=fix)


def _view_problem(tensor: TracedTensor, base: TracedTensor) -> str:
    if tensor.permute and sorted(tensor.permute) != list(range(len(base.shape))):
        return "its order of axes is none"
    return "" if tensor.size == base.size else "it has not the size of what it is a view of"


def _problem(
    tensor: TracedTensor, before: Sequence[TracedTensor], compiled: CompiledModel, names: set[str]
) -> str:
    """What a tensor's entry claims that is not so; empty if nothing."""
    try:
        dtype_of(tensor.dtype)
    except (KeyError, ValueError, TypeError):
        return "its type does not exist"
    if sorted(tensor.order) != list(range(len(tensor.shape))):
        return "its order of axes is none"
    if tensor.subgraph >= len(compiled.subgraphs):
        return "its subgraph does not exist"
    earlier = (*tensor.inputs, *(() if tensor.view_of is None else (tensor.view_of,)))
    if any(other >= len(before) for other in earlier):
        return "it is made of a later one"
    ways = (
        tensor.onnx is not None,
        tensor.view_of is not None,
        bool(tensor.places),
    )
    if sum(ways) > 1 or (sum(ways) == 0 and tensor.memory is None):
        return "it has not one place to be had from"
    if tensor.memory is not None and tensor.memory not in names:
        return "the model has no such tensor in DRAM"
    subgraph: Any = compiled.subgraphs[tensor.subgraph] if tensor.subgraph >= 0 else None
    if tensor.onnx is not None:
        return "" if isinstance(subgraph, CpuSubgraph) else "its subgraph is not one of the CPU"
    if min(tensor.shape, default=1) < 0 or not 0 < tensor.size <= LARGEST:
        return "its shape is impossible"
    if sum(ways) == 0:
        return ""
    if tensor.view_of is not None:
        return _view_problem(tensor, before[tensor.view_of])
    if not isinstance(subgraph, NpuSubgraph):
        return "its subgraph is not one of the NPU"
    for place in tensor.places:
        if place.core >= len(subgraph.streams) or not place.first <= place.last < len(
            subgraph.streams[place.core]
        ):
            return "a place of it is outside its stream"
        if place.byte + place.size > tensor.size:
            return "a place of it is outside the tensor"
    return ""
