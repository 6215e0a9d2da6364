"""The noise that each rounding alone causes at the outputs: error over signal, as the mean over the slices.

Tensors are rounded to their types in the integer network or to a short float, weights to their integers there, to those with
fewer bits, or to that float; everything else is float. Roundings are independent of each other, so their noises add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import DType
from npuc.arrays import Array
from npuc.compare import find_slices
from npuc.engine import float_engine
from npuc.engine.rounded import output_noise
from npuc.ir import Graph, Value, npu, top, value_name
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant.layers import IntegerLayer
from npuc.quant.mixed_precision.units import Unit, key
from npuc.quant.parameters import quantize_weight
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import Scheme
from npuc.quant.validation import Noise, Program, noise_behind, slice_noise

Sample = Mapping[str, Array]


def tensor_types(quantized: Graph) -> dict[str, QuantType]:
    """The integer type of every tensor of the float network; for a tensor that stays float, the type in which it is read."""
    types = {
        value_name(op.x): kind
        for op in quantized.ops
        if isinstance(op, npu.Quantize) and (kind := quant_of(op.y)) is not None
    }
    return types | integer_types(quantized)


@dataclass(frozen=True)
class Probe:
    """Measures the noise of single roundings in a float network, on some samples."""

    graph: Graph
    samples: Sequence[Sample]
    exact: Sequence[Sequence[Array]]
    threads: int = 1
    behind: Program | None = None
    """What the noise is measured behind; None measures it at the outputs."""
    measure: Noise = field(init=False, repr=False)
    """Computes the noise of outputs against the exact ones, per slice."""

    def __post_init__(self) -> None:
        if self.behind is not None:
            object.__setattr__(self, "measure", noise_behind(self.graph, self.behind))
            return
        names = [port.name for port in self.graph.outputs]
        slices = find_slices(self.graph, (dict(zip(names, row, strict=True)) for row in self.exact))
        object.__setattr__(self, "measure", slice_noise(self.graph, slices))

    @staticmethod
    def of(graph: Graph, samples: Sequence[Sample], threads: int = 1, behind: Program | None = None) -> Probe:
        """A probe with the exact outputs of the network."""
        return Probe(graph, samples, _outputs(graph, samples, threads), threads, behind)

    def tensors(self, units: Sequence[Unit], types: Mapping[str, QuantType | DType]) -> list[float]:
        """The noise of rounding the 8-bit tensors of each unit to some types."""
        ports = {port.value: port.name for port in self.graph.inputs}
        ends = {port.value: index for index, port in enumerate(self.graph.outputs)}
        sets = [
            [value_name(value) for value in unit.narrow if value not in ports and value not in ends]
            for unit in units
        ]
        noises = []
        for unit, inner in zip(
            units,
            output_noise(self.graph, sets, types, self.samples, self.threads, self.measure),
            strict=True,
        ):
            noise = inner
            for value in unit.narrow:
                kind = types[value_name(value)]
                if value in ports:
                    noise += self._input(ports[value], kind)
                if value in ends:
                    noise += self._output(ends[value], kind)
            noises.append(noise)
        return noises

    def _input(self, name: str, kind: QuantType | DType) -> float:
        changed = [{**sample, name: _rounded(sample[name], kind)} for sample in self.samples]
        return self.measure(_outputs(self.graph, changed, self.threads), self.exact)

    def _output(self, index: int, kind: QuantType | DType) -> float:
        changed = [list(row) for row in self.exact]
        for row in changed:
            row[index] = _rounded(row[index], kind)
        return self.measure(changed, self.exact)

    def weights(self, op: Any, weight: Array) -> float:
        """The noise of replacing the weights of one layer."""
        changed = self.graph.copy()
        twin = next(layer for layer in changed.ops if type(layer) is type(op) and key(layer) == key(op))
        place: Value = twin.b if isinstance(twin, top.MatMul) else twin.weight  # type: ignore[attr-defined]
        new = changed.add_weight(f"{key(op)}/probed", weight.astype(np.float32))
        twin.parent.insert_op_before(new, twin)  # type: ignore[union-attr]
        twin.operands[list(twin.operands).index(place)] = new.output
        return self.measure(_outputs(changed, self.samples, self.threads), self.exact)


def rounded_weights(layer: IntegerLayer) -> Array:
    """The real values of the integer weights of a layer."""
    return np.asarray(layer.integers.astype(np.float64) * layer.scale)


def with_scheme(layer: IntegerLayer, scheme: Scheme) -> IntegerLayer:
    """A layer under another scheme, with weights rounded to nearest."""
    integers, scale = quantize_weight(layer.weight, layer.axis, scheme, layer.real_bias, layer.x.scale)
    shape = [-1 if axis == layer.axis and scale.size > 1 else 1 for axis in range(layer.weight.ndim)]
    lowest, most = scheme.weight_limits
    return replace(
        layer,
        integers=integers,
        scale=scale.astype(np.float64).reshape(shape),
        lowest=lowest,
        highest=most,
        scheme=scheme,
    )


def _outputs(graph: Graph, samples: Sequence[Sample], threads: int) -> list[list[Array]]:
    engine = float_engine(graph, threads=threads)
    names = [port.name for port in graph.outputs]
    return [[np.asarray(values[name]) for name in names] for values in map(engine.run, samples)]


def _rounded(array: Array, kind: QuantType | DType) -> Array:
    if isinstance(kind, DType):
        return array.astype(kind.numpy).astype(array.dtype)
    low, high = kind.dtype.limits
    steps = np.clip(np.rint(array.astype(np.float64) / kind.scale) + kind.zero_point, low, high)
    rounded: Array = ((steps - kind.zero_point) * kind.scale).astype(array.dtype)
    return rounded
