"""To integers with learned weights, scales and biases; and which range the type of each tensor comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value, npu, result_names, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.layers import IntegerLayer
from npuc.quant.lower import Context, Positions, Ranges, SchemeOf, lowered
from npuc.quant.parameters import quantize_bias, quantize_weight
from npuc.quant.scheme import Scheme


@dataclass(frozen=True)
class LearnedLayer:
    """Reals that become the integers of a layer, and the scales that they become integers with."""

    weight: Array
    scale: Array
    """One, or one an output channel."""
    bias: Array | None

    @staticmethod
    def of(layer: IntegerLayer) -> LearnedLayer:
        """A layer as it is: the reals that its integers stand for."""
        alone = layer.bias is not None and layer.real.bias is not None and layer.real.bias.has_one_use()
        bias = layer.bias * layer.unit if alone and layer.bias is not None else None
        return LearnedLayer(layer.integers.astype(np.float64) * layer.scale, layer.scale.reshape(-1), bias)


def lower_learned(
    source: Graph, ranges: Ranges, scheme_of: SchemeOf, learned: Mapping[Any, LearnedLayer]
) -> Graph:
    """The integer network of a float one, where some layers (ops of it) have learned."""
    return lowered(lambda moved: _Lowering(source, ranges, scheme_of, learned, moved))


class _Lowering(Context):
    def __init__(
        self,
        source: Graph,
        ranges: Ranges,
        scheme_of: SchemeOf,
        learned: Mapping[Any, LearnedLayer],
        moved: Positions,
    ) -> None:
        super().__init__(source, ranges, scheme_of, moved)
        self._learned = {op.operands[1]: layer for op, layer in learned.items()}
        self._biases = {op.bias: layer.bias for op, layer in learned.items() if layer.bias is not None}

    def quantized_weight(
        self, value: Value, axis: int, scheme: Scheme, bias: Value | None, scale: float, least: float = 0.0
    ) -> tuple[Array, Array, int]:
        found = self._learned.get(value)
        if found is None:
            return super().quantized_weight(value, axis, scheme, bias, scale, least)
        own = self._biases.get(bias, self.constant(bias))
        return (*quantize_weight(found.weight, axis, scheme, own, scale, least, found.scale), 0)

    def quantized_bias(self, value: Value, scale: float, weight_scale: Array, scheme: Scheme) -> Array:
        found = self._biases.get(value)
        if found is None:
            return super().quantized_bias(value, scale, weight_scale, scheme)
        return quantize_bias(found, scale, weight_scale, scheme)


def type_origins(source: Graph, ranges: Ranges, scheme_of: SchemeOf) -> dict[Value, str]:
    """The name of the range that gives each tensor its type; a tensor whose type no range gives is left out."""
    return _Origins(source, ranges, scheme_of).found()


class _Origins(Context):
    """Ops that move elements and concatenations pass types on as they are, so a type tells where it was made."""

    def found(self) -> dict[Value, str]:
        self._made: list[tuple[QuantType, str]] = []
        self._assign_types()
        names = {id(kind): name for kind, name in self._made}
        return {value: names[id(kind)] for value, kind in self._types.items() if id(kind) in names}

    def _ranged(self, value: Value, scheme: Scheme) -> Any:
        kind = super()._ranged(value, scheme)
        if isinstance(kind, QuantType):
            self._made.append((kind, value_name(value)))
        return kind


def lost(made: Graph, before: Graph) -> set[str]:
    """The tensors of an integer network that another form of it does not make by the same op with as wide a bias."""
    forms = _forms(made)
    return {name for name, form in _forms(before).items() if forms.get(name) != form}


def _forms(made: Graph) -> dict[str, Any]:
    found = {}
    for op in made.ops:
        # Where types differ that were alike by chance, integers are rescaled in between.
        if not isinstance(op, top.WeightOp | npu.Requant):
            bias = op.bias if isinstance(op, npu.Conv | npu.Deconv | npu.MatMul) else None
            found[result_names(op)[0]] = (type(op), None if bias is None else bias.type)
    return found
