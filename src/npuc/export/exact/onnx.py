"""The exact arithmetic as ONNX nodes: the integer form of a quantized network.

Convolutions are ConvInteger and products MatMulInteger, both of uint8 operands, which no processor saturates; 16-bit
operands are split into bytes. What follows them (multipliers, shifts, roundings, tables) is int64 arithmetic, or float32 where
the kind `float_scale` says so. Every integer is the same whatever the runtime optimizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.exact.algebra import Algebra, Integers, T, Window
from npuc.export.exact.registry import Exact, exact_results
from npuc.export.exact.rounding import NoExactForm
from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.model import ExportedModel, to_onnx
from npuc.export.onnx.opset import use_lowest_opset
from npuc.export.onnx.registry import rule_for
from npuc.ir import Graph, dtype_of, npu, shape_of, tensor_type, top
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import quant_of

_NODES = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "minimum": "Min",
    "maximum": "Max",
    "less": "Less",
    "equal": "Equal",
    "where": "Where",
    "round_even": "Round",
    "floor": "Floor",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "is_nan": "IsNaN",
}
_MOVED_AS_THEY_ARE = (top.Reshape, top.Permute, top.Concat, top.Split, top.Slice, top.Gather)
"""Ops that runtimes have for every integer type."""


class OnnxAlgebra(Algebra):
    """Nodes of a model; a tensor is the name of a value, a value of the program or an array."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit

    def constant(self, array: Array) -> T:
        """An initializer."""
        return self.emit.constant(np.ascontiguousarray(array) if array.ndim else array)

    def cast(self, x: T, dtype: str) -> T:
        """Cast."""
        return self.emit.cast(x, dtype_of(dtype))

    def apply(self, name: str, *operands: T) -> T:
        """A node; ONNX divides integers towards zero, so that the remainder goes off first."""
        values = [np.asarray(x) if isinstance(x, int | np.generic) else x for x in operands]
        if name == "floor_div":
            x, y = values
            return self.emit("Div", self.emit("Sub", x, self.emit("Mod", x, y)), y)
        return self.emit(_NODES[name], *values)

    def take(self, x: T, index: T, axis: int = 0) -> T:
        """Gather."""
        return self.emit("Gather", x, index, axis=axis)

    def reshape(self, x: T, shape: Sequence[int]) -> T:
        """Reshape."""
        return self.emit("Reshape", x, self.emit.ints(*shape))

    def transpose(self, x: T, order: Sequence[int]) -> T:
        """Transpose."""
        return self.emit("Transpose", x, perm=tuple(order))

    def pad(self, x: T, before: Sequence[int], after: Sequence[int], value: int) -> T:
        """Pad."""
        if not any((*before, *after)):
            return x
        return self.emit("Pad", x, self.emit.ints(*before, *after), np.asarray(value, np.int64))

    def concat(self, parts: Sequence[T], axis: int) -> T:
        """Concat."""
        return parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=axis)

    def reduce(self, name: str, x: T, axes: Sequence[int]) -> T:
        """ReduceSum or ReduceMax."""
        node = {"sum": "ReduceSum", "max": "ReduceMax"}[name]
        return self.emit(node, x, self.emit.ints(*axes), keepdims=1)

    def conv(self, x: Integers, weight: Array, window: Window) -> T:
        """ConvInteger of bytes, one for each byte of the operands."""
        attributes = {
            "kernel_shape": weight.shape[2:],
            "strides": window.strides,
            "pads": window.pads,
            "dilations": window.dilations,
            "group": window.group,
        }
        parts = []
        for part, place, zero in self._bytes(x):
            for kernel, up, kernel_zero in _weight_bytes(weight):
                if np.prod(weight.shape[1:]) * 255 * 255 >= 1 << 31:
                    raise NoExactForm("its sums of products of bytes do not fit 32 bits")
                sums = self.emit("ConvInteger", part, kernel, zero, kernel_zero, **attributes)
                parts.append(self._shifted(self.cast(sums, "i64"), place + up))
        return self._total(parts)

    def matmul(self, a: Integers, b: Integers) -> T:
        """MatMulInteger of bytes; wider operands are multiplied in int64."""
        if max(a.high - a.low, b.high - b.low) > 255:
            left, right = (self._centred(x) for x in (a, b))
            return self.emit("MatMul", left, right)
        (left, _, left_zero), (right, _, right_zero) = self._bytes(a)[0], self._bytes(b)[0]
        return self.cast(self.emit("MatMulInteger", left, right, left_zero, right_zero), "i64")

    def _centred(self, x: Integers) -> T:
        return x.tensor if x.zero == 0 else self.sub(x.tensor, np.asarray(x.zero, np.int64))

    def _bytes(self, x: Integers) -> list[tuple[T, int, Array]]:
        """Integers as bytes: each with the place of its lowest bit, and the byte that stands for zero."""
        zero = x.zero - x.low
        if isinstance(x.tensor, np.ndarray):
            raised: Any = x.tensor - x.low
            assert x.high - x.low <= 255
            return [(raised.astype(np.uint8), 0, np.asarray(zero, np.uint8))]
        raised = x.tensor if x.low == 0 else self.sub(x.tensor, np.asarray(x.low, np.int64))
        if x.high - x.low <= 255:
            return [(self.cast(raised, "ui8"), 0, np.asarray(zero, np.uint8))]
        upper = self.floor_div(raised, np.asarray(256, np.int64))
        lower = self.sub(raised, self.mul(upper, np.asarray(256, np.int64)))
        return [
            (self.cast(lower, "ui8"), 0, np.asarray(zero % 256, np.uint8)),
            (self.cast(upper, "ui8"), 8, np.asarray(zero // 256, np.uint8)),
        ]

    def _shifted(self, x: T, bits: int) -> T:
        return x if bits == 0 else self.mul(x, np.asarray(1 << bits, np.int64))

    def _total(self, parts: list[T]) -> T:
        total = parts[0]
        for part in parts[1:]:
            total = self.add(total, part)
        return total


def _weight_bytes(weight: Array) -> list[tuple[Array, int, Array]]:
    """Weights as bytes; the zero of a signed byte is 128."""
    low, high = int(weight.min(initial=0)), int(weight.max(initial=0))
    if high - low <= 255:
        return [((weight - low).astype(np.uint8), 0, np.asarray(-low, np.uint8))]
    upper = weight >> 8
    if upper.min() < -128 or upper.max() > 127:
        raise NoExactForm("its weights have more than 16 bits")
    return [
        ((weight & 255).astype(np.uint8), 0, np.asarray(0, np.uint8)),
        ((upper + 128).astype(np.uint8), 8, np.asarray(128, np.uint8)),
    ]


def to_integer_onnx(graph: Graph) -> ExportedModel:
    """A quantized network as an ONNX model in integer form."""
    exported = to_onnx(graph, special=lambda op: _rule(op, graph))
    use_lowest_opset(exported.proto)
    return exported


def _rule(op: Any, graph: Graph) -> Any:
    if isinstance(op, npu.NpuOp):
        return lambda op, emit: _exact(op, emit, graph)
    if not isinstance(op, _MOVED_AS_THEY_ARE) and any(quant_of(value) for value in op.operands):
        return _on_floats
    return None


def _exact(op: Any, emit: Emitter, graph: Graph) -> None:
    def load(value: Any) -> Any:
        return value

    results = exact_results(op, Exact(graph, OnnxAlgebra(emit), load), "integer form in ONNX")
    for value, result in zip(op.results, results, strict=True):
        emit("Identity", result, to=value)


def _on_floats(op: TopOp, emit: Emitter) -> None:
    """An op that moves or compares integers does so to float32 that hold them: runtimes lack it for some integer types."""
    wide = dtype_of("f32")

    def widened(value: Any) -> Any:
        return tensor_type(shape_of(value), wide) if quant_of(value) else value.type

    scratch = Graph.empty([(f"operand{i}", widened(value)) for i, value in enumerate(op.operands)])
    for value, copy in zip(op.operands, scratch.block.args, strict=True):
        emit.bind(copy, emit.cast(value, wide) if quant_of(value) else emit.name(value))
    properties = dict(op.properties)
    kind = quant_of(op.operands[0])
    if isinstance(op, top.Pad) and kind is not None:
        properties["value"] = type(op).attribute_of("value", pad_code(op.value, kind))
    clone = type(op).create(
        operands=list(scratch.block.args),
        result_types=[widened(value) for value in op.results],
        properties=properties,
        location=op.location,
    )
    scratch.block.add_op(clone)
    for value, result in zip(op.results, clone.results, strict=True):
        emit.bind(result, emit.derived("wide") if quant_of(value) else emit.name(value))
    rule_for(clone)(clone, emit)
    for value, result in zip(op.results, clone.results, strict=True):
        if (held := quant_of(value)) is not None:
            emit.cast(emit.name(result), held.dtype.carrier, to=value)


def pad_code(value: float, kind: Any) -> float:
    """The integer that stands for the value of a pad."""
    least, most = kind.dtype.limits
    return float(np.clip(np.rint(value / kind.scale) + kind.zero_point, least, most))
