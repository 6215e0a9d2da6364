"""Instruction mode: a compiled model executed on real memories, to the bit.

Subgraphs of the NPU run in the native simulator; `npuc.host` runs those of the CPU and conversions. They exchange tensors in
DRAM.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping

from npuc.arrays import Array
from npuc.errors import InputDataError, SimulationError, WrongTargetError
from npuc.host import HostSubgraphs, TensorConversion
from npuc.program.model import (
    ChipSubgraph,
    CompiledModel,
    Conversion,
    CpuSubgraph,
    HostConversion,
    NpuSubgraph,
    named_inputs,
)
from npuc.sim import calls, memory


def run(compiled: CompiledModel, inputs: Mapping[str, Array] | Array, threads: int = 1) -> dict[str, Array]:
    """Execute a model once; inputs and outputs are raw arrays of logical shapes. `Simulator` does it many times."""
    return Simulator(compiled, threads).run(inputs)


class Simulator:
    """The memories of the machine with a model in them. What is prepared at the first run serves all others."""

    def __init__(self, compiled: CompiledModel, threads: int = 1) -> None:
        chip = next((part for part in compiled.subgraphs if isinstance(part, ChipSubgraph)), None)
        if chip is not None:
            raise WrongTargetError(
                f"subgraph '{chip.name}' is a program of {compiled.target['name']} itself, which the simulator does not execute",
                where=compiled.name,
                fix="Run it on the device of the chip: npuc run does so by itself",
            )
        self.compiled, self.threads = compiled, threads
        self.machine = compiled.machine
        self.segments = memory.segments_of(compiled)
        self._programs = {
            index: calls.Program(subgraph.streams, self.segments)
            for index, subgraph in enumerate(compiled.subgraphs)
            if isinstance(subgraph, NpuSubgraph)
        }
        self._error = calls.RawError()
        self.host = HostSubgraphs(compiled, threads)
        cores = max((len(program.counts) for program in self._programs.values()), default=1)
        constants = self.segments[0]
        self.handle: int | None = calls.function("npuc_sim_create")(
            max(cores, 1),
            self.machine.local_size,
            self.machine.shared_size,
            constants.ctypes.data,
            constants.size,
        )
        if not self.handle:
            raise SimulationError("there is not enough memory for the machine's own", where=compiled.name)
        # At the end of a process a thread may still be inside; what it works on goes with the process.
        weakref.finalize(self, calls.function("npuc_sim_destroy"), self.handle).atexit = False

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """Execute all subgraphs in turn; raw arrays of logical shapes by the names of tensors, or that of the only input."""
        self.write_inputs(inputs)
        for index in range(len(self.compiled.subgraphs)):
            self.step(index)
        return {
            name: memory.read(self.segments, self.compiled.tensor(name)) for name in self.compiled.outputs
        }

    def write_inputs(self, inputs: Mapping[str, Array] | Array) -> None:
        """Put the inputs of the model into DRAM."""
        inputs = named_inputs(inputs, self.compiled.inputs)
        if set(inputs) != set(self.compiled.inputs):
            raise InputDataError(
                f"the model takes {', '.join(self.compiled.inputs)}, and {', '.join(inputs) or 'nothing'} is given"
            )
        for name, value in inputs.items():
            memory.write(self.segments, self.compiled.tensor(name), value)

    def step(self, index: int) -> None:
        """Execute one subgraph."""
        subgraph = self.compiled.subgraphs[index]
        if isinstance(subgraph, CpuSubgraph):
            self._on_cpu(index, subgraph)
            return
        if isinstance(subgraph, HostConversion):
            for conversion in subgraph.conversions:
                self._convert(conversion)
            return
        program, error = self._programs[index], self._error
        error.core = error.instruction = -1
        status = calls.function("npuc_sim_run")(
            self.handle, program.address, self.threads, ctypes.addressof(error)
        )
        if status:
            calls.check(status, error, program.streams, self.compiled.layers, subgraph.name)

    def bind(self, number: int, memory: Array) -> None:
        """Use other memory, bytes of the segment's size, for a segment after the constants."""
        if not 0 < number < len(self.segments) or memory.shape != self.segments[number].shape:
            raise SimulationError(f"segment {number} cannot be {memory.size} bytes", where=self.compiled.name)
        self.segments[number] = memory
        for program in self._programs.values():
            program.bind(number, memory)

    def program(self, index: int) -> calls.Program:
        """The streams of an NPU subgraph."""
        return self._programs[index]

    def _convert(self, conversion: Conversion) -> None:
        value = memory.read(self.segments, self.compiled.tensor(conversion.source))
        turned = TensorConversion(conversion, self.compiled, self.threads)
        memory.write(self.segments, turned.result, turned(value))

    def _on_cpu(self, index: int, subgraph: CpuSubgraph) -> None:
        tensors = {name: memory.read(self.segments, self.compiled.tensor(name)) for name in subgraph.inputs}
        for name, result in self.host.run(index, tensors).items():
            memory.write(self.segments, self.compiled.tensor(name), result)
