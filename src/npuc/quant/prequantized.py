"""Prequantized networks: their scales, zero points, integer weights and biases are kept.

A quantize op gives its operand its type, a dequantized constant is an integer weight, and the usual lowering rules build the
integer ops from these. Ops that the model computes in float, between a dequantize and a quantize, stay float.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS
from npuc.arithmetic.kinds import Kind, Scales, stated_kind
from npuc.arithmetic.tflite import joining_table
from npuc.arrays import Array
from npuc.errors import QuantizationError
from npuc.ir import Graph, Value, dtype_of, npu, shown_name, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType, mlir_type, quant_of
from npuc.quant.fixed import fixed_output
from npuc.quant.layer_schemes import LayerSchemes, SchemeOf
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, find_types
from npuc.quant.parameters import bias_fits
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.target_encoding import TargetEncoding
from npuc.quant.type_assignment import is_real
from npuc.transform import canonicalize
from npuc.transform.drop_quantization import (
    Collapsed,
    StoredConstant,
    collapse,
    dequantize_constants,
    parameters,
)

_MOVED = 0.5
"""By how many output steps rounding a bias may shift its result, if the target has fewer bias bits than the file."""
_CLOSE = 1e-6
"""The tolerance between the scale of a bias and that of its accumulator: the product of two float32 is rounded."""


def is_quantized(graph: Graph) -> bool:
    """Whether a network is prequantized."""
    ops = [op for op in graph.ops if isinstance(op, top.Quantize | top.Dequantize)]
    return any(parameters(graph, op) is not None for op in ops)


class Prequantized:
    """A prequantized network: `graph` is its float form, `lower` builds the integer network."""

    def __init__(self, graph: Graph) -> None:
        self.original: Graph = graph
        work = graph.copy()
        self.constants: dict[str, StoredConstant] = dequantize_constants(work)
        self.follows_tflite: bool = graph.arithmetic == "tflite"
        self.stated: tuple[Kind, int] | None = stated_kind(graph.arithmetic)
        """The kind that a QDQ file of npuc's own states."""
        # Passes do not fuse across the quantize and dequantize ops of activations. TFLite's operators are not rewritten,
        # because each has its own integer arithmetic.
        self.collapsed: Collapsed = collapse(
            work if self.follows_tflite else canonicalize(work), ACTIVATION_INTEGERS
        )
        self.graph: Graph = self.collapsed.graph

    def lower(
        self, scheme: Scheme | LayerSchemes | SchemeOf | None = None, encoding: TargetEncoding | None = None
    ) -> Graph:
        """The integer network. Only the requantization of a scheme is used; None keeps a layer float.

        With an `encoding`, types and weights that its target does not support are converted to those that it supports.
        """
        return _Lowering(self, LayerSchemes.of(self.graph, scheme), encoding).run()

    def types(self, encoding: TargetEncoding | None = None) -> dict[Value, QuantType]:
        """The activation types, as the file states them or as converted for a target."""
        stated = self.collapsed.types
        if encoding is None:
            return stated
        return {value: encoding.activation(kind) for value, kind in stated.items()}

    def layers(self) -> list[TopOp]:
        """The ops that compute with the file's integers."""
        types = self.collapsed.types
        return [
            op
            for op in self.graph.ops
            if isinstance(op, TopOp)
            and not isinstance(op, top.WeightOp | top.Quantize | top.Dequantize)
            and any(value in types for value in op.results)
        ]

    def linear_layers(self) -> set[str]:
        """The names of the results of layers whose weights are integers of the file."""
        return {value_name(op.results[0]) for op in self.layers() if self._weights_of(op) is not None}

    def rewritten(self, encoding: TargetEncoding) -> list[str]:
        """The names of the results of layers whose types or weights have to be converted for a target."""
        types, names = self.collapsed.types, []
        for op in self.layers():
            kinds = [types[value] for value in (*op.operands, *op.results) if value in types]
            stored = self._weights_of(op)
            moved = any(encoding.activation(kind) != kind for kind in kinds)
            if moved or (stored is not None and not encoding.weights_fit(stored)):
                names.append(value_name(op.results[0]))
        return names

    def input_type(self, name: str) -> QuantType | None:
        """The type that a float input is quantized to, if there is one."""
        return next(
            (self.collapsed.types.get(port.value) for port in self.graph.inputs if port.name == name), None
        )

    def _weights_of(self, op: TopOp) -> StoredConstant | None:
        if not isinstance(op, top.Conv | top.Deconv | top.MatMul):
            return None
        owner = op.operands[1].owner
        return self.constants.get(owner.ref) if isinstance(owner, top.WeightOp) else None


class _Lowering(LoweringContext):
    def __init__(
        self, network: Prequantized, scheme_of: LayerSchemes, encoding: TargetEncoding | None = None
    ) -> None:
        super().__init__(network.graph, {}, scheme_of)
        self.encoding = encoding
        self._result_type: QuantType | None = None
        """The type of the result of the op that is being lowered."""
        as_onnx = not network.follows_tflite and (network.stated is None or network.stated[0].has_scale)
        self.rounding = "half_even" if as_onnx else "half_away"
        self.network = network
        self._read: dict[Value, Value] = {}

    def _assign_types(self) -> None:
        _require_integers(self.source, self.scheme_of)
        self._types.update(self.network.types(self.encoding))
        for op in self.source.ops:
            if isinstance(op, top.WeightOp) or not isinstance(op, TopOp):
                continue
            if op in self.network.collapsed.casts:
                self._scheme[op] = self.scheme_of(op) or SCHEMES["int8"]
                continue
            if isinstance(op, top.Quantize | top.Dequantize) and self._is_boundary(op):
                self._scheme[op] = SCHEMES["int8"]
                continue
            if not self._may_lower(op):
                continue
            scheme = self.scheme_of(op)
            open_ends = [v for v in (*op.results, *op.operands) if is_real(v) and not self._typed(v)]
            if scheme is not None and open_ends:
                self.reasons[value_name(op.results[0])] = _why_float(open_ends)
            elif scheme is not None:
                kind = self._types.get(op.operands[0])
                self._scheme[op] = replace(scheme, activation=kind.dtype.name) if kind else scheme
                self._scheme[op] = self._without_fixed_output(op, self._scheme[op])
                self._type_booleans(op)
                if self._is_wide(op):
                    self._scheme[op] = replace(
                        scheme, activation="i16", weight="i16", weight_scales=Scales.SYMMETRIC
                    )

    def _type_booleans(self, op: TopOp) -> None:
        """The file states no types of booleans: they are those of the op's own rule."""
        types = find_types(op)
        if types is not None and dtype_of(op.results[0].type).name == "i1":
            given = zip(op.results, types(op, self), strict=True)
            self._types.update({value: kind for value, kind in given if kind is not None})

    def _without_fixed_output(self, op: TopOp, scheme: Scheme | None) -> Scheme | None:
        """The scheme of an op whose output scale TFLite fixes (softmax): another requantization kind if the target has
        another output scale."""
        if self.encoding is None or scheme is None or scheme.requant is not Kind.DOUBLE_ROUNDING:
            return scheme
        fixed = fixed_output(op, scheme)
        has_other = Kind.SINGLE_ROUNDING in self.encoding.target.arithmetic.requantization.kinds
        moved = fixed is not None and fixed != self._types[op.results[0]]
        return replace(scheme, requant=Kind.SINGLE_ROUNDING) if moved and has_other else scheme

    def _typed(self, value: Value) -> bool:
        return value in self._types or self.constant(value) is not None

    def _is_boundary(self, op: top.Quantize | top.Dequantize) -> bool:
        """Whether an op only reinterprets plain integers as quantized ones, or the reverse."""
        kind = self.network.collapsed.types.get(op.x if isinstance(op, top.Quantize) else op.y)
        return kind is not None and kind == parameters(self.source, op)

    def _cross(self, op: top.Quantize | top.Dequantize) -> bool:
        """Lower a boundary op: the integers of the interface are reinterpreted, and requantized if the target's type differs."""
        stated = parameters(self.source, op)
        assert stated is not None
        self._current = self._border
        if isinstance(op, top.Dequantize):
            to = self._types[op.y]
            if to == stated:
                converted = self.emit(npu.Reinterpret, self.real(op.x), to=to, loc=op.location).y
            else:
                name = self.derived(op.y, "stated")
                converted = self.emit(npu.Reinterpret, self.real(op.x), to=stated, name=name).y
                converted = self.requantized(converted, to, value_name(op.y))
            self._integer[op.y, to] = converted
        else:
            plain, converted = mlir_type(dtype_of(op.y.type)), self.integer(op.x)
            if self._types[op.x] != stated:
                converted = self.requantized(converted, stated, self.derived(op.y, "stated"))
            self._real[op.y] = self.emit(npu.Reinterpret, converted, to=plain, loc=op.location).y
        return True

    @property
    def _border(self) -> Scheme:
        """The scheme of requantization at the boundary, which runs on the host."""
        return SCHEMES["int8"]

    def _lower(self, op: TopOp, scheme: Scheme) -> bool:
        if op not in self.network.collapsed.casts:
            if isinstance(op, top.Quantize | top.Dequantize):
                return self._cross(op)
            self._result_type = self._types.get(op.results[0])
            return super()._lower(op, scheme)
        if isinstance(op, top.Quantize):
            return True  # the other half of the pair does both
        self._current = scheme
        to = self._types[op.results[0]]
        quantize = op.operands[0].owner
        assert isinstance(quantize, top.Quantize)
        source = quantize.x
        integer = None
        if source in self._types:
            try:
                integer = self.requantized(self.integer(source), to, value_name(op.results[0]))
            except NoIntegerForm as error:
                self.remarks.append(f"{value_name(op.results[0])} is requantized through reals: {error}")
        if integer is None:
            real = self.real(source)
            integer = self.emit(npu.Quantize, real, to=to, rounding=self.rounding, loc=op.location).y
        self._integer[op.results[0], to] = integer
        return True

    def _is_wide(self, op: TopOp) -> bool:
        return self.encoding is not None and value_name(op.results[0]) in self.encoding.wide

    def _casts(self, op: TopOp, scheme: Scheme) -> dict[Value, QuantType]:
        if self.encoding is None or not self._is_wide(op):
            return {}
        return {op.operands[0]: self.encoding.wide_activation(self._types[op.operands[0]])}

    def _exact(self, value: Value) -> Value:
        return super().real(value)

    def real(self, value: Value) -> Value:
        """A value that the model quantizes is read as its dequantized integers, even if it was computed in float."""
        if value not in self._types or self.constant(value) is not None or not is_real(value):
            return super().real(value)
        if value not in self._read:
            name = f"{value_name(value)}/real"
            dequantized = self.emit(npu.Dequantize, self.integer(value), to=mlir_type("f32"), name=name).y
            self._read[value] = dequantized
        return self._read[value]

    def _own_type(self, value: Value) -> Any:
        if value not in self._types:
            stored = self._stored(value)
            if (
                stored is not None
                and stored.type is not None
                and stored.type.dtype.name in ACTIVATION_INTEGERS
            ):
                kind = stored.type
                self._types[value] = self.encoding.activation(kind) if self.encoding else kind
        return super()._own_type(value)

    def _stored(self, value: Value | None) -> StoredConstant | None:
        owner = value.owner if value is not None else None
        return self.network.constants.get(owner.ref) if isinstance(owner, top.WeightOp) else None

    def own_integers(self, value: Value) -> tuple[Array, float] | None:
        """The integers and the scale that the file states."""
        stored = self._stored(value)
        if stored is None or stored.type is None:
            return None
        return stored.integers.astype(np.int64) - stored.type.zero_point, stored.type.scale

    def joined(self, value: Value, to: QuantType) -> Value:
        """TFLite rescales the uint8 operands of a concat in float32; a table per operand reproduces that."""
        own = self._types.get(value)
        follows = self.network.follows_tflite and to.dtype.name == "ui8" and self.constant(value) is None
        if not follows or own is None or own == to or (value, to) in self._integer:
            return super().joined(value, to)
        name = self.derived(value, "rescaled")
        entries = self.weight(f"{name}/table", joining_table(own, to))
        rescaled: Value = self.emit(npu.Table, self.integer(value), entries, to=to, name=name).y
        return rescaled

    def quantized_weight(
        self, value: Value, axis: int, scheme: Scheme, bias: Value | None, scale: float, least: float = 0.0
    ) -> tuple[Array, Array, int]:
        """The integer weights of the model, if it has them."""
        weights = self._own_weight(value, axis, scheme, bias, scale, least)
        real = self.constant(bias)
        if self.encoding is None or real is None or self._result_type is None:
            return weights
        return self.encoding.levelled(weights, axis, scheme, real, scale, self._result_type.scale)

    def _own_weight(
        self, value: Value, axis: int, scheme: Scheme, bias: Value | None, scale: float, least: float
    ) -> tuple[Array, Array, int]:
        stored = self._stored(value)
        if stored is None:
            return super().quantized_weight(value, axis, scheme, bias, scale, least)
        if stored.integers.dtype.name == "uint4":
            stored = replace(stored, integers=stored.integers.astype(np.uint8))
        known = stored.integers.dtype.name in ("int8", "uint8", "int16", "int4")
        must_rewrite = self.encoding is not None and (
            scheme.weight == "i16" or not self.encoding.weights_fit(stored)
        )
        if self.encoding is not None and known and must_rewrite and stored.integers.dtype.itemsize == 1:
            return self.encoding.weights(stored, axis, scheme, self.constant(bias), scale, least)
        if stored.scale.size > 1 and stored.axis != axis:
            raise NoIntegerForm(f"its weights have scales along axis {stored.axis}, not {axis}")
        zeros = sorted({int(zero) for zero in stored.zero_point.flat})
        if len(zeros) > 1:
            raise NoIntegerForm("its weights have zero points that differ between channels")
        if stored.integers.dtype.name not in ("int8", "uint8", "int16", "int4"):
            raise NoIntegerForm(f"its weights are {stored.integers.dtype.name}")
        return stored.integers, stored.scale.astype(np.float64).reshape(-1), int(zeros[0])

    def quantized_bias(self, value: Value, scale: float, weight_scale: Array, scheme: Scheme) -> Array:
        """The integer biases of the model, if they are in the scale of the accumulator."""
        stored = self._stored(value)
        if stored is not None and stored.integers.dtype == np.int32 and not stored.zero_point.any():
            own = stored.scale.astype(np.float64).reshape(-1)
            alike = (own.size == 1 or weight_scale.size in (1, own.size)) and np.allclose(
                own, scale * weight_scale, rtol=_CLOSE, atol=0
            )
            fits = self.encoding is None or bias_fits(stored.integers, scheme)
            if alike and fits:
                return stored.integers.astype(np.int64 if scheme.wide else np.int32)
        rounded = super().quantized_bias(value, scale, weight_scale, scheme)
        real = self.constant(value)
        if self.encoding is not None and self._result_type is not None and real is not None:
            away = np.abs(rounded * (scale * weight_scale) - real).max(initial=0.0) / self._result_type.scale
            if away > _MOVED:
                raise NoIntegerForm(f"the bits of a bias would move its result by {away:.3g} steps")
        return rounded


def _why_float(values: list[Value]) -> str:
    """Why a layer with these operands or results stays float."""
    for value in values:
        for op in (value.owner, *(use.operation for use in value.uses)):
            if isinstance(op, top.Quantize | top.Dequantize):
                name = dtype_of(op.y.type if isinstance(op, top.Quantize) else op.x.type).name
                if name not in ACTIVATION_INTEGERS:
                    return f"the model gives it {name} activations, and there are no kernels for them"
    return "the model keeps it float"


def _require_integers(graph: Graph, scheme_of: LayerSchemes) -> None:
    for op in graph.ops:
        scheme = scheme_of(op) if isinstance(op, TopOp) else None
        if scheme is not None and not scheme.needs_ranges:
            raise QuantizationError(
                f"layer '{shown_name(op)}' cannot be {scheme.activation}: the model brings its own integers",
                fix="Add --force-float to drop them and quantize anew",
            )


def integer_types(graph: Graph) -> dict[str, QuantType]:
    """Name to type, for every quantized value of an integer network."""
    values = [value for op in graph.ops for value in op.results]
    return {value_name(value): kind for value in values if (kind := quant_of(value)) is not None}


__all__ = ["Prequantized", "integer_types", "is_quantized"]
