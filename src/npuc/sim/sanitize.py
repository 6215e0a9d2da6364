"""The sanitizer: a program executed while every byte remembers who wrote and read it (docs/simulator.md)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.program.instruction import decode
from npuc.program.isa import BY_OPCODE
from npuc.program.model import SHARED, CompiledModel, NpuSubgraph, Tensor
from npuc.sim import calls
from npuc.sim.functional import Simulator

MOST = 100
"""Findings that are told of a subgraph."""
FAULTS = {1: "unwritten", 2: "outside", 3: "race"}


@dataclass(frozen=True)
class Access:
    """An instruction that touches a byte."""

    core: int
    instruction: int
    """Index in the stream of the core."""
    opcode: str
    layer: str
    write: bool

    def __str__(self) -> str:
        how = "writes" if self.write else "reads"
        return f"instruction {self.instruction} of core {self.core} ({self.opcode}, {self.layer}) {how}"


@dataclass(frozen=True)
class Finding:
    """A fault of a program."""

    fault: str
    """`unwritten`, `outside`, `misaligned` or `race`."""
    subgraph: str
    place: str
    """Which memory."""
    address: int
    """The first byte."""
    bytes: int
    """How many bytes of the access."""
    operand: str
    """The field of the instruction."""
    access: Access
    other: Access | None = None
    """The other instruction of a race."""

    def __str__(self) -> str:
        what = f"{self.bytes} bytes at {self.address} of {self.place} ({self.operand})"
        match self.fault:
            case "unwritten":
                return f"{self.access} {what}, and nothing has written them before"
            case "outside":
                return f"{self.access} {what}, which are not inside a live allocation"
            case "misaligned":
                return f"{self.access} {what}, which begin at no multiple of the target's alignment"
            case _:
                return f"{self.access} {what}, and {self.other} them too; nothing orders the two"


def sanitize(
    compiled: CompiledModel, inputs: Mapping[str, Array] | None = None, threads: int = 1
) -> list[Finding]:
    """Execute a model under the sanitizer; without inputs, on zeros. An empty list means that its schedule is sound."""
    simulator = Simulator(compiled, threads)
    simulator.write_inputs(
        {name: _zeros(compiled.tensor(name)) for name in compiled.inputs} if inputs is None else inputs
    )
    for name in compiled.inputs:
        _mark(simulator, compiled.tensor(name))
    findings: list[Finding] = []
    for index, subgraph in enumerate(compiled.subgraphs):
        if isinstance(subgraph, NpuSubgraph):
            findings += _subgraph(simulator, index, subgraph)
            continue
        simulator.step(index)
        for name in subgraph.outputs:
            _mark(simulator, compiled.tensor(name))
    return findings


def _zeros(tensor: Tensor) -> Array:
    return np.zeros(tensor.shape, dtype_of(tensor.dtype).numpy)


def _mark(simulator: Simulator, tensor: Tensor) -> None:
    calls.function("npuc_sim_mark_written")(simulator.handle, tensor.segment, tensor.offset, tensor.size)


def _subgraph(simulator: Simulator, index: int, subgraph: NpuSubgraph) -> list[Finding]:
    program, error = simulator.program(index), calls.RawError(core=-1, instruction=-1)
    allocations = (calls.RawAllocation * max(1, len(subgraph.allocations)))(
        *(calls.RawAllocation(a.core, a.address, a.size, a.first, a.last) for a in subgraph.allocations)
    )
    findings, count = (calls.RawFinding * MOST)(), ctypes.c_int64()
    status = calls.function("npuc_sim_sanitize")(
        simulator.handle, program.address, simulator.threads, ctypes.addressof(allocations), len(subgraph.allocations),
        ctypes.addressof(findings), MOST, ctypes.addressof(count), ctypes.addressof(error),
    )  # fmt: skip
    layers = simulator.compiled.layers
    calls.check(status, error, program.streams, layers, subgraph.name)
    names = [segment.name for segment in simulator.compiled.segments]
    executed = [_finding(raw, subgraph.name, names, layers) for raw in findings[: min(count.value, MOST)]]
    return (_misaligned(subgraph, simulator.machine.alignment, layers) + executed)[:MOST]


def _misaligned(subgraph: NpuSubgraph, alignment: int, layers: Sequence[str]) -> list[Finding]:
    """Objects in local memory that begin where the target's alignment does not let them."""
    findings = []
    for place in subgraph.allocations:
        if place.address % alignment:
            head, instruction = decode(subgraph.streams[place.core][place.first].tobytes())
            access = Access(
                place.core,
                place.first,
                instruction.name,
                calls.layer_name(head.layer, layers),
                write=True,
            )
            findings.append(
                Finding(
                    "misaligned",
                    subgraph.name,
                    "local memory",
                    place.address,
                    place.size,
                    place.name,
                    access,
                )
            )
    return findings


def _finding(raw: Any, subgraph: str, segments: Sequence[str], layers: Sequence[str]) -> Finding:
    place = (
        "local memory"
        if raw.space < 0
        else "shared memory"
        if raw.space == SHARED
        else f"'{segments[raw.space]}'"
    )
    first = Access(
        raw.core,
        raw.instruction,
        BY_OPCODE[raw.opcode].name,
        calls.layer_name(raw.layer, layers),
        bool(raw.write),
    )
    other = None
    if raw.other_core >= 0:
        other = Access(
            raw.other_core,
            raw.other,
            BY_OPCODE[raw.other_opcode].name,
            calls.layer_name(raw.other_layer, layers),
            bool(raw.other_write),
        )
    operand = raw.operand.decode("ascii")
    return Finding(FAULTS[raw.fault], subgraph, place, raw.address, raw.bytes, operand, first, other)
