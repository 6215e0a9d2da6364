"""The tensors of one run of a network in the order in which they come about, float or integer, one layer at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from npuc.arrays import Array
from npuc.engine import ALL_TENSORS, IntegerEngine, float_engine
from npuc.ir import Graph, Value, layer_name, top
from npuc.ir.dtypes import dtype_of, quant_of
from npuc.tensors import plain


@dataclass(frozen=True)
class LayerTensor:
    """A tensor of a run: an input, or a result of a layer."""

    name: str
    """Of its own among all of the network."""
    layer: str
    kind: str
    """The op that made it, such as `npu.conv`; `input` for an input."""
    dtype: str
    """As in `npuc.ir.dtypes`."""
    scale: float
    """Real value of a step; 0 if its elements are plain."""
    zero_point: int
    values: Array
    """As a file holds them: little-endian, row-major, in a type that NumPy's files have."""
    computed: Array | None = None
    """Which elements were computed, if not all: no later layer of a compiled model needs the others, which are 0 here."""

    @property
    def md5(self) -> str:
        """Of the bytes of the values."""
        return digest_of(self.values)

    @property
    def reals(self) -> Array | None:
        """What the integers of a quantized tensor stand for."""
        if not self.scale:
            return None
        return reals_of(self.values, self.scale, self.zero_point)


Visit = Callable[[LayerTensor], bool]
"""Gets each tensor as soon as it exists; True ends the run."""


def digest_of(values: Array) -> str:
    """The MD5 of the bytes of elements that are as a file holds them (`as_stored`)."""
    return hashlib.md5(values.tobytes(), usedforsecurity=False).hexdigest()


class Layers(Protocol):
    """A network that can be run so that every tensor is seen."""

    def trace(self, inputs: Mapping[str, Array], visit: Visit) -> None:
        """Run it once."""


def reals_of(integers: Array, scale: float, zero_point: int) -> Array:
    """(q - zero point) x scale, in float32 as programs compute it (docs/arithmetic-eltwise.md)."""
    return np.asarray(
        ((integers.astype(np.int64) - zero_point) * float(np.float32(scale))).astype(np.float32)
    )


def layer_tensors(engine: IntegerEngine, inputs: Mapping[str, Array]) -> Iterator[LayerTensor]:
    """The inputs of an integer network, then the results of each layer as soon as it has run."""
    names = engine.graph.distinct_names()
    steps = engine.trace(inputs)
    for port in engine.graph.inputs:
        yield _tensor(port.value, names, port.name, "input", inputs[port.name])
    for op, results in steps:
        for value, array in zip(op.results, results, strict=True):
            yield _tensor(value, names, layer_name(op) or op.name, op.name, array)


def _tensor(value: Value, names: Mapping[Value, str], layer: str, kind: str, array: Array) -> LayerTensor:
    quantized = quant_of(value)
    scale, zero = (quantized.scale, quantized.zero_point) if quantized is not None else (0.0, 0)
    return LayerTensor(names[value], layer, kind, dtype_of(value.type).name, scale, zero, as_stored(array))


class IntegerLayers:
    """An integer network in graph mode."""

    def __init__(self, graph: Graph, threads: int = 1) -> None:
        self.engine = IntegerEngine(graph, threads=threads)

    def trace(self, inputs: Mapping[str, Array], visit: Visit) -> None:
        """Run it once, op by op."""
        for tensor in layer_tensors(self.engine, inputs):
            if visit(tensor):
                return


class FloatLayers:
    """A float network; it runs as a whole, and its tensors are seen afterwards."""

    def __init__(self, graph: Graph, threads: int = 1) -> None:
        self.graph = graph
        self.engine = float_engine(graph, ALL_TENSORS, threads)

    def trace(self, inputs: Mapping[str, Array], visit: Visit) -> None:
        """Run it once."""
        names = self.graph.distinct_names()
        arrays = self.engine.run(inputs)
        for port in self.graph.inputs:
            if visit(_tensor(port.value, names, port.name, "input", inputs[port.name])):
                return
        for op in self.graph.ops:
            if isinstance(op, top.WeightOp):
                continue
            for value in op.results:
                array = arrays.get(names[value])
                if array is None:
                    continue
                if visit(_tensor(value, names, layer_name(op) or op.name, op.name, np.asarray(array))):
                    return


def as_stored(array: Array) -> Array:
    """The elements of a tensor little-endian and row-major, in a type that NumPy's files have."""
    stored = plain(np.asarray(array))
    return np.array(stored, stored.dtype.newbyteorder("<"), order="C", copy=None)
