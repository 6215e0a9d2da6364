"""The tensors of one run of an integer network in the order in which they come about."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.engine import IntegerEngine
from npuc.ir import Value, layer_name, value_name
from npuc.ir.dtypes import dtype_of, quant_of
from npuc.tensors import plain

Array = np.ndarray[Any, Any]


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

    @property
    def md5(self) -> str:
        """Of the bytes of the values."""
        return hashlib.md5(self.values.tobytes(), usedforsecurity=False).hexdigest()

    @property
    def reals(self) -> Array | None:
        """What the integers of a quantized tensor stand for."""
        if not self.scale:
            return None
        centred = self.values.astype(np.int64) - self.zero_point
        return np.asarray((centred * self.scale).astype(np.float32))


def layer_tensors(engine: IntegerEngine, inputs: Mapping[str, Array]) -> Iterator[LayerTensor]:
    """The inputs, then the results of each layer as soon as it has run."""
    seen: Counter[str] = Counter()

    def tensor(value: Value, name: str, layer: str, kind: str, array: Array) -> LayerTensor:
        seen[name] += 1
        quantized = quant_of(value)
        scale, zero = (quantized.scale, quantized.zero_point) if quantized is not None else (0.0, 0)
        own = name if seen[name] == 1 else f"{name}#{seen[name]}"
        return LayerTensor(own, layer, kind, dtype_of(value.type).name, scale, zero, as_stored(array))

    steps = engine.trace(inputs)
    for port in engine.graph.inputs:
        yield tensor(port.value, port.name, port.name, "input", inputs[port.name])
    for op, results in steps:
        for value, array in zip(op.results, results, strict=True):
            yield tensor(value, value_name(value) or op.name, layer_name(op) or op.name, op.name, array)


def as_stored(array: Array) -> Array:
    """The elements of a tensor little-endian and row-major, in a type that NumPy's files have."""
    whole = plain(np.asarray(array))
    return np.array(whole, whole.dtype.newbyteorder("<"), order="C", copy=None)
