"""Lowering with learned weights, scales and biases, and finding the range that determines the type of each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value, npu, result_names, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import IntegerLayer
from npuc.quant.lower import LoweringContext, lowered
from npuc.quant.parameters import quantize_bias, quantize_weight
from npuc.quant.scheme import Scheme
from npuc.quant.type_assignment import Positions, Ranges


@dataclass(frozen=True)
class LearnedLayer:
    """The learned real weights and bias of a layer, and the scales with which they are quantized."""

    weight: Array
    scale: Array
    """Per tensor, or per output channel."""
    bias: Array | None

    @staticmethod
    def of(layer: IntegerLayer) -> LearnedLayer:
        """The current layer: the real values of its integers."""
        alone = (
            layer.bias is not None and layer.float_op.bias is not None and layer.float_op.bias.has_one_use()
        )
        bias = layer.bias * layer.unit if alone and layer.bias is not None else None
        return LearnedLayer(layer.integers.astype(np.float64) * layer.scale, layer.scale.reshape(-1), bias)


def lower_learned(
    source: Graph, ranges: Ranges, scheme_of: LayerSchemes, learned: Mapping[Any, LearnedLayer]
) -> Graph:
    """The integer network of a float network in which some layers, keyed by their ops, were learned."""
    return lowered(lambda moved: _Lowering(source, ranges, scheme_of, learned, moved))


class _Lowering(LoweringContext):
    def __init__(
        self,
        source: Graph,
        ranges: Ranges,
        scheme_of: LayerSchemes,
        learned: Mapping[Any, LearnedLayer],
        moved: Positions,
    ) -> None:
        super().__init__(source, ranges, scheme_of, moved)
        self._learned = {op.operands[1]: layer for op, layer in learned.items()}
        self._biases = {op.bias: layer.bias for op, layer in learned.items() if layer.bias is not None}

    def quantized_weight(
        self, value: Value, axis: int, scheme: Scheme, bias: Value | None, scale: float, least: float = 0.0
    ) -> tuple[Array, Array, int]:
        learned = self._learned.get(value)
        if learned is None:
            return super().quantized_weight(value, axis, scheme, bias, scale, least)
        own = self._biases.get(bias, self.constant(bias))
        return (*quantize_weight(learned.weight, axis, scheme, own, scale, least, learned.scale), 0)

    def quantized_bias(self, value: Value, scale: float, weight_scale: Array, scheme: Scheme) -> Array:
        learned = self._biases.get(value)
        if learned is None:
            return super().quantized_bias(value, scale, weight_scale, scheme)
        return quantize_bias(learned, scale, weight_scale, scheme)


def type_origins(source: Graph, ranges: Ranges, scheme_of: LayerSchemes) -> dict[Value, str]:
    """For each tensor, the name of the range that determines its type; tensors without such a range are left out."""
    return _Origins(source, ranges, scheme_of).origins()


class _Origins(LoweringContext):
    """Finds where types come from: ops that move elements, and concats, pass on the same type object."""

    def origins(self) -> dict[Value, str]:
        self._from_ranges: list[tuple[QuantType, str]] = []
        self._assign_types()
        names = {id(kind): name for kind, name in self._from_ranges}
        return {value: names[id(kind)] for value, kind in self._types.items() if id(kind) in names}

    def _ranged(self, value: Value, scheme: Scheme) -> Any:
        kind = super()._ranged(value, scheme)
        if isinstance(kind, QuantType):
            self._from_ranges.append((kind, value_name(value)))
        return kind


def lost(quantized: Graph, before: Graph) -> set[str]:
    """The tensors of `before` that another form of the network does not compute by the same op with the same bias type."""
    forms = _forms(quantized)
    return {name for name, form in _forms(before).items() if forms.get(name) != form}


def _forms(quantized: Graph) -> dict[str, Any]:
    forms = {}
    for op in quantized.ops:
        # Types that were equal by chance may differ now, which inserts requantizations: those do not count.
        if not isinstance(op, top.WeightOp | npu.Requant):
            bias = op.bias if isinstance(op, npu.Conv | npu.Deconv | npu.MatMul) else None
            forms[result_names(op)[0]] = (type(op), None if bias is None else bias.type)
    return forms
