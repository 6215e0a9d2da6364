"""Networks that bring their own quantization: scales, zero points, integer weights and biases stay as they are.

A quantize op gives the value that it reads its type, a dequantized constant is an integer weight, and the usual rules
build the integer ops from those. What the model leaves float, between a dequantize and a quantize, stays float.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npuc.ir import Graph, Value, dtype_of, npu, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant.lower import Context, SchemeOf
from npuc.quant.lowering.registry import NoIntegerForm
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.transform import canonicalize
from npuc.transform.drop_quantization import (
    Collapsed,
    StoredConstant,
    collapse,
    dequantize_constants,
    parameters,
)

Array = np.ndarray[Any, Any]

STORAGE = ("i8", "ui8", "i16")
"""The types of activations that there are kernels for."""
_CLOSE = 1e-6
"""How far the scale of a bias may be from that of its sum: the product of two float32 is rounded."""


def is_quantized(graph: Graph) -> bool:
    """True if a network brings its own quantization."""
    ops = [op for op in graph.ops if isinstance(op, top.Quantize | top.Dequantize)]
    return any(parameters(graph, op) is not None for op in ops)


class Prequantized:
    """A quantized network, prepared: `graph` is the float network behind it, `lower` makes the integer one."""

    def __init__(self, graph: Graph) -> None:
        work = graph.copy()
        self.constants: dict[str, StoredConstant] = dequantize_constants(work)
        # The quantize and dequantize ops of activations are walls for the passes: what they fuse was float.
        self.collapsed: Collapsed = collapse(canonicalize(work), STORAGE)
        self.graph: Graph = self.collapsed.graph

    def lower(self, scheme: Scheme | SchemeOf | None = None) -> Graph:
        """The integer network. Of a scheme, only the way of requantization counts; None keeps a layer float."""
        scheme = scheme or SCHEMES["int8"]
        scheme_of: SchemeOf = scheme if callable(scheme) else (lambda op, s=scheme: s)  # type: ignore[misc]
        return _Lowering(self, scheme_of).run()


class _Lowering(Context):
    rounding = "half_even"
    wide_sums = True

    def __init__(self, network: Prequantized, scheme_of: SchemeOf) -> None:
        super().__init__(network.graph, {}, scheme_of)
        self.network = network
        self._read: dict[Value, Value] = {}

    def _assign_types(self) -> None:
        self._types.update(self.network.collapsed.types)
        for op in self.source.ops:
            if isinstance(op, top.WeightOp) or not isinstance(op, TopOp):
                continue
            if op in self.network.collapsed.casts:
                self._scheme[op] = self.scheme_of(op) or SCHEMES["int8"]
                continue
            if not self._may_lower(op):
                continue
            wanted = self.scheme_of(op)
            open_ends = [v for v in (*op.results, *op.operands) if not self._typed(v)]
            if wanted is not None and open_ends:
                self.reasons[value_name(op.results[0])] = "the model keeps it float"
            elif wanted is not None:
                kind = self._types.get(op.operands[0])
                self._scheme[op] = replace(wanted, activation=kind.dtype.name) if kind else wanted

    def _typed(self, value: Value) -> bool:
        return value in self._types or self.constant(value) is not None

    def _lower(self, op: TopOp, scheme: Scheme) -> bool:
        if op not in self.network.collapsed.casts:
            return super()._lower(op, scheme)
        if isinstance(op, top.Quantize):
            return True  # the other half of the pair does both
        self._current = scheme
        to = self._types[op.results[0]]
        quantize = op.operands[0].owner
        assert isinstance(quantize, top.Quantize)
        source = quantize.x
        if source not in self._types:
            real = self._exact(source)
            made = self.emit(npu.Quantize, real, to=to, rounding=self.rounding, loc=op.location).y
        else:
            made = self.requantized(self.integer(source), to, value_name(op.results[0]))
        self._integer[op.results[0], to] = made
        return True

    def _casts(self, op: TopOp, scheme: Scheme) -> dict[Value, QuantType]:
        return {}

    def _exact(self, value: Value) -> Value:
        return super().real(value)

    def real(self, value: Value) -> Value:
        """What the model quantizes is read as the reals that its integers stand for, even if it was made as float."""
        if value not in self._types or self.constant(value) is not None:
            return super().real(value)
        if value not in self._read:
            name = f"{value_name(value)}/real"
            made = self.emit(npu.Dequantize, self.integer(value), to=dtype_of("f32").type, name=name).y
            self._read[value] = made
        return self._read[value]

    def _own_type(self, value: Value) -> QuantType:
        if value not in self._types:
            stored = self._stored(value)
            if stored is not None and stored.type is not None and stored.type.dtype.name in STORAGE:
                self._types[value] = stored.type
        return super()._own_type(value)

    def _stored(self, value: Value | None) -> StoredConstant | None:
        owner = value.owner if value is not None else None
        return self.network.constants.get(owner.ref) if isinstance(owner, top.WeightOp) else None

    def quantized_weight(
        self, value: Value, axis: int, scheme: Scheme, bias: Value | None, scale: float
    ) -> tuple[Array, Array, int]:
        """The integers of the model, if it has some."""
        stored = self._stored(value)
        if stored is None:
            return super().quantized_weight(value, axis, scheme, bias, scale)
        if stored.scale.size > 1 and stored.axis != axis:
            raise NoIntegerForm(f"its weights have scales along axis {stored.axis}, not {axis}")
        zeros = np.unique(stored.zero_point)
        if len(zeros) > 1:
            raise NoIntegerForm("its weights have zero points that differ between channels")
        if stored.integers.dtype.name not in ("int8", "uint8", "int16", "int4"):
            raise NoIntegerForm(f"its weights are {stored.integers.dtype.name}")
        return stored.integers, stored.scale.astype(np.float64).reshape(-1), int(zeros[0])

    def quantized_bias(self, value: Value, scale: float, weight_scale: Array, bits: int) -> Array:
        """The integers of the model, if they are in the scale of the sum."""
        stored = self._stored(value)
        if stored is not None and stored.integers.dtype == np.int32 and not stored.zero_point.any():
            own = stored.scale.astype(np.float64).reshape(-1)
            if np.allclose(own, scale * weight_scale, rtol=_CLOSE, atol=0):
                return stored.integers if bits <= 32 else stored.integers.astype(np.int64)
        return super().quantized_bias(value, scale, weight_scale, bits)


def integer_types(graph: Graph) -> dict[str, QuantType]:
    """Name to type, for every quantized value of an integer network."""
    values = [value for op in graph.ops for value in op.results]
    return {value_name(value): kind for value in values if (kind := quant_of(value)) is not None}


__all__ = ["STORAGE", "Prequantized", "integer_types", "is_quantized"]
