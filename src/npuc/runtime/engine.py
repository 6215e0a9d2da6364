"""A compiled model as an engine: the same calls as graph mode, executed instruction by instruction."""

from __future__ import annotations

from collections.abc import Mapping

from npuc.arrays import Array
from npuc.program.model import ChipSubgraph, CompiledModel, HostConversion, named_inputs
from npuc.runtime.runner import Runner
from npuc.runtime.states import StreamStates, zero_state


class CompiledEngine:
    """Runs a compiled model on the simulator, or on the model of the chip that it is for; with `raw`, outputs are the integers
    that they were converted from, and with `raw_inputs`, inputs are given as integers."""

    def __init__(
        self, compiled: CompiledModel, *, threads: int = 1, raw: bool = False, raw_inputs: bool = False
    ) -> None:
        self.compiled = compiled
        self._runner = Runner(
            compiled, device_for(compiled), raw=raw_inputs, raw_outputs=raw, workers=1, threads=threads
        )

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """Execute all subgraphs; tensors by the names of inputs and outputs. States begin anew, unless they are given."""
        self._runner.reset()
        return self._runner.run(named_inputs(inputs, self.compiled.inputs))

    def states(self, quantization: Mapping[str, tuple[float, int]] | None = None) -> StreamStates:
        """The states of a stream, for runs that are given them; `quantization` of outputs that are integers."""
        pairs = {state.input: state.output for state in self.compiled.states}
        begin = {
            info.name: zero_state(info.shape, info.dtype, info.zero_point)
            for info in self._runner.input_tensors
            if info.name in pairs
        }
        return StreamStates(pairs, begin, quantization)


def device_for(compiled: CompiledModel) -> str:
    """The name of the device that executes a compiled model here: that of a chip if it holds programs of one."""
    chips = any(isinstance(part, ChipSubgraph) for part in compiled.subgraphs)
    return "bm1684x-model" if chips else "simulated"


def integers_of(compiled: CompiledModel) -> dict[str, str]:
    """Outputs that the host converts from integers, and the tensors that those are in."""
    return {
        conversion.result: conversion.source
        for subgraph in compiled.subgraphs
        if isinstance(subgraph, HostConversion)
        for conversion in subgraph.conversions
        if conversion.result in compiled.outputs
    }
