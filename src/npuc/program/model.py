"""A program for the machine: instruction streams, constants, and tables that say what is where.

A compiled model is a list of subgraphs that run one after the other. An NPU subgraph is one stream for each core; a CPU
subgraph is an ONNX model. They exchange tensors in DRAM, which is made of segments: a loader puts each segment where it
likes, and instructions name the segment and the byte in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from npuc.arithmetic.machine import Machine
from npuc.arrays import Array
from npuc.errors import InputDataError, TargetError
from npuc.program.isa import BY_NAME

SegmentKind = Literal["weights", "workspace", "io"]

SHARED = 255
"""The segment number that means the shared memory on the chip."""


@dataclass(frozen=True)
class Segment:
    """A part of DRAM with an address of its own."""

    name: str
    kind: SegmentKind
    size: int
    address: int = 0
    """Base address; 0: the loader decides."""


@dataclass(frozen=True)
class Tensor:
    """A tensor in DRAM: an input or output of the model, or one that subgraphs exchange."""

    name: str
    shape: tuple[int, ...]
    """Its logical shape, N x C x H x W for rank 4."""
    order: tuple[int, ...]
    """The axes of `shape` from the outermost in memory to the innermost: (0, 2, 3, 1) for rank 4. It is dense."""
    dtype: str
    """As in `npuc.arithmetic.dtypes`: i8, ui8, i16, i32, f32, ..."""
    scale: float
    """Real value of a step; 0 if its elements are plain."""
    zero_point: int
    segment: int
    offset: int
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Allocation:
    """A place in local memory that an object has while some instructions run: what the sanitizer and drawings need."""

    name: str
    core: int
    address: int
    size: int
    first: int
    """Index in the core's stream of the first instruction that may touch it."""
    last: int
    """And of the last one."""


@dataclass(frozen=True)
class NpuSubgraph:
    """A part of a model that runs on the NPU."""

    name: str
    streams: tuple[Array, ...]
    """One a core: `RECORD` bytes an instruction, uint8 of shape (n, RECORD). The queue of an instruction is in its head;
    within a queue the order is that of the stream, and a wait never names a later instruction of the stream."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """Names of tensors in the tensor table."""
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True)
class ChipSubgraph:
    """A part of a model that runs on a chip with an instruction set of its own, as the file that the chip's runtime reads."""

    name: str
    program: bytes
    """A `.bmodel` file. Its inputs and outputs are those of the subgraph, in order, dense in the order of their axes."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class CpuSubgraph:
    """A part of a model that runs on the CPU."""

    name: str
    model: bytes
    """An ONNX model; its inputs and outputs have the names of tensors."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reasons: dict[str, str] = field(default_factory=dict)
    """Layer to the reason why it is not on the NPU."""
    host: bytes = b""
    """The same in host operators (`npuc.program.host_ops`), for the C runtime; empty if an older npuc compiled it."""


@dataclass(frozen=True)
class Conversion:
    """A tensor made of another: reals to integers (npu.quantize) or back (npu.dequantize), by the tensors' own scales."""

    source: str
    result: str
    rounding: str = "half_away"
    """For reals to integers: half_away or half_even."""


@dataclass(frozen=True)
class HostConversion:
    """Conversions that the host does between subgraphs."""

    name: str
    conversions: tuple[Conversion, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """What it reads."""
        return tuple(conversion.source for conversion in self.conversions)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What it makes."""
        return tuple(conversion.result for conversion in self.conversions)


@dataclass(frozen=True)
class State:
    """What a model carries from one run to the next: an input that takes what an output gave in the run before."""

    input: str
    output: str


@dataclass(frozen=True)
class CompiledModel:
    """Everything that a `.npu` file holds."""

    name: str
    target: dict[str, Any]
    """The target, as its YAML file would state it."""
    fingerprint: int
    """64 bits of the target."""
    segments: tuple[Segment, ...]
    """Segment 0 holds the constants, segment 1 the workspace; inputs and outputs follow."""
    weights: Array
    """The bytes of segment 0."""
    tensors: tuple[Tensor, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: tuple[str, ...]
    """The names that `layer` of an instruction is an index of."""
    subgraphs: tuple[NpuSubgraph | ChipSubgraph | CpuSubgraph | HostConversion, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    """For tools: options, versions, the schedule, the quantization, preprocessing."""
    debug: bytes = b""
    """Where the layers are in memory (npuc.program.debug_info); empty if that is not known."""
    states: tuple[State, ...] = ()
    """Kept by a runtime between runs."""

    @cached_property
    def machine(self) -> Machine:
        """The figures of the target that simulators need."""
        try:
            return Machine.from_dict(self.target)
        except ValueError as error:
            raise TargetError(str(error), where=self.name) from error

    def tensor(self, name: str) -> Tensor:
        """A tensor by its name."""
        return next(tensor for tensor in self.tensors if tensor.name == name)


def records(name: str, count: int) -> Array:
    """`count` empty instructions of one kind, as a structured array."""
    instruction = BY_NAME[name]
    rows = np.zeros(count, instruction.dtype)
    rows["opcode"] = instruction.opcode
    return rows


def named_inputs(inputs: Any, expected: Collection[str]) -> Mapping[str, Any]:
    """Inputs by name: a mapping as it is; for several inputs, a list or tuple in their order; else the array of the only one."""
    if isinstance(inputs, Mapping):
        return inputs
    if isinstance(inputs, list | tuple) and len(inputs) == len(expected) > 1:
        return dict(zip(expected, inputs, strict=True))
    if len(expected) == 1:
        return {next(iter(expected)): inputs}
    raise InputDataError(
        f"one array was given without a name, and the network has {len(expected)} inputs",
        fix=f"Give a mapping by input name: {', '.join(expected) or 'an empty one'}",
    )
