"""A compiled model as an engine: the same calls as graph mode, executed instruction by instruction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.ir import Graph
from npuc.ir.dtypes import tensor_type
from npuc.program.model import CompiledModel, HostConversion
from npuc.sim import memory
from npuc.sim.functional import Simulator

Array = np.ndarray[Any, Any]


class CompiledEngine:
    """Runs a compiled model in the simulator; with `raw`, outputs are the integers that they were converted from."""

    def __init__(self, compiled: CompiledModel, *, threads: int = 1, raw: bool = False) -> None:
        self.simulator = Simulator(compiled, threads)
        self.compiled = compiled
        self._sources = integers_of(compiled) if raw else {}

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """Execute all subgraphs; tensors by the names of inputs and outputs."""
        found = self.simulator.run(inputs)
        for name, source in self._sources.items():
            found[name] = memory.read(self.simulator.segments, self.compiled.tensor(source))
        return found


def integers_of(compiled: CompiledModel) -> dict[str, str]:
    """Outputs that the host converts from integers, and the tensors that those are in."""
    return {
        one.result: one.source
        for subgraph in compiled.subgraphs
        if isinstance(subgraph, HostConversion)
        for one in subgraph.conversions
        if one.result in compiled.outputs
    }


def interface_of(compiled: CompiledModel) -> Graph:
    """The inputs of a compiled model as a program without ops: what finds and checks data for it."""
    ports = []
    for name in compiled.inputs:
        tensor = compiled.tensor(name)
        ports.append((name, tensor_type(tensor.shape, dtype_of(tensor.dtype))))
    return Graph.empty(ports, preprocess=_preprocess(compiled))


def _preprocess(compiled: CompiledModel) -> dict[str, dict[str, Any]]:
    """How pictures become inputs, as far as the file states it in a form that makes sense."""
    from npuc.errors import PreprocessError
    from npuc.images.preprocess import Preprocess

    stated = compiled.metadata.get("preprocess")
    found: dict[str, dict[str, Any]] = {}
    for name in compiled.inputs:
        one = stated.get(name) if isinstance(stated, dict) else None
        if not isinstance(one, dict):
            continue
        try:
            found[name] = Preprocess.from_dict(one).to_dict()
        except PreprocessError as error:
            raise PreprocessError(error.message, where=f"input '{name}'", fix=error.fix) from error
    return found
