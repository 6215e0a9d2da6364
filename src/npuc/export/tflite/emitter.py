"""What an export rule writes TFLite operators with.

A value of the program is held by one or more tensors, each in an order of axes (`layout`). `emit.tensor(value, order)`
gives one in the order that an operator needs, moving elements only if no tensor has it so; `emit.result(value, order)`
makes the tensor that an operator writes. Constants are rearranged offline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.onnx.emitter import Names
from npuc.export.tflite.layout import (
    Order,
    arranged,
    between,
    channels_last,
    moves_nothing,
    natural,
)
from npuc.export.tflite.model import TYPES, TFLiteModel, TFLiteOperator, TFLiteQuantization, TFLiteTensor
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm
from npuc.export.tflite.versions import version
from npuc.ir import Graph, Value, dtype_of, shape_of, value_name
from npuc.ir.dtypes import QuantType, quant_of

_SHARED_BYTES = 1024
"""Constants of at most so many bytes are stored once if they are equal."""


def quantization(kind: QuantType) -> TFLiteQuantization:
    """A quantized type as TFLite's parameters."""
    if float(np.float32(kind.scale)) != kind.scale:
        raise NoTFLiteForm(f"its scale {kind.scale!r} is no float32", SCHEME)
    return TFLiteQuantization((kind.scale,), (kind.zero_point,))


class TFLiteEmitter:
    """Collects the tensors and operators of one model."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.model = TFLiteModel()
        self.names = Names()
        self._held: dict[Value, dict[Order, TFLiteTensor]] = {}
        self._later: dict[Value, Callable[[], None]] = {}
        self._shared: dict[Any, TFLiteTensor] = {}
        self._base = ""

    # Tensors

    def begin(self, name: str) -> None:
        """The tensors that follow are named after this layer's result."""
        self._base = name

    def new(
        self,
        shape: Sequence[int],
        dtype: str,
        quantized: TFLiteQuantization | None = None,
        *,
        name: str | None = None,
        what: str = "value",
        data: Array | None = None,
    ) -> TFLiteTensor:
        """A new tensor; without a `name` it gets one derived from the current layer."""
        if dtype not in TYPES:
            raise NoTFLiteForm(f"TFLite has no elements of type {dtype}")
        chosen = self.names.take(name or (f"{self._base}/{what}" if self._base else what))
        tensor = TFLiteTensor(chosen, tuple(map(int, shape)), dtype, quantized, data)
        self.model.tensors.append(tensor)
        return tensor

    def like(self, value: Value, shape: Sequence[int], what: str) -> TFLiteTensor:
        """An intermediate tensor of a value's element type."""
        kind = quant_of(value)
        return self.new(
            shape, dtype_of(value.type).name, None if kind is None else quantization(kind), what=what
        )

    def result(self, value: Value, order: Order | None = None) -> TFLiteTensor:
        """The tensor that an operator writes a value to, in an order (the program's own unless stated)."""
        order = natural(len(shape_of(value))) if order is None else order
        kind = quant_of(value)
        tensor = self.new(
            arranged(shape_of(value), order),
            dtype_of(value.type).name,
            None if kind is None else quantization(kind),
            name=value_name(value) or None,
        )
        self.hold(value, tensor, order)
        return tensor

    def hold(self, value: Value, tensor: TFLiteTensor, order: Order) -> None:
        """State that a tensor has a value's elements."""
        self._held.setdefault(value, {})[order] = tensor

    def later(self, value: Value, make: Callable[[], None]) -> None:
        """Hold a value only when somebody needs it."""
        self._later[value] = make

    def is_pending(self, value: Value) -> bool:
        """True if nobody has needed a value that is held later."""
        return value in self._later

    def orders(self, value: Value) -> list[Order]:
        """The orders in which a value is held."""
        self._ready(value)
        return list(self._held.get(value, ()))

    def _ready(self, value: Value) -> None:
        make = self._later.pop(value, None)
        if make is not None:
            base, self._base = self._base, value_name(value)
            make()
            self._base = base

    def common_order(self, *values: Value) -> Order:
        """The order that suits an operator that takes any: the one that most operands have."""
        rank = max((len(shape_of(value)) for value in values), default=0)
        votes: dict[Order, int] = {}
        for value in values:
            if self.array(value) is None and len(shape_of(value)) == rank:
                for order in self.orders(value):
                    votes[order] = votes.get(order, 0) + 1
        if not votes:
            return natural(rank)
        last = channels_last(rank)
        return max(votes, key=lambda order: (votes[order], rank >= 4 and order == last))

    def tensor(self, value: Value, order: Order | None = None) -> TFLiteTensor:
        """A tensor with a value's elements in an order (the program's own unless stated)."""
        order = natural(len(shape_of(value))) if order is None else order
        array = self.array(value)
        if array is not None:
            return self._constant_value(value, array, order)
        self._ready(value)
        held = self._held[value]
        if order not in held:
            have, source = next(iter(held.items()))
            transposed = self.like(value, arranged(shape_of(value), order), "transposed")
            if moves_nothing(shape_of(value), have, order):
                self.reshape(source, transposed)
            else:
                permutation = self.integers(between(have, order))
                self.operator("TRANSPOSE", [source, permutation], [transposed], "TransposeOptions")
            held[order] = transposed
        return held[order]

    def broadcast(self, value: Value, order: Order) -> TFLiteTensor:
        """A tensor for an operand that is broadcast to the rank of `order`, in that order."""
        shape = shape_of(value)
        missing = len(order) - len(shape)
        if missing == 0:
            return self.tensor(value, order)
        full = (1,) * missing + shape
        array = self.array(value)
        if array is not None:
            if len(shape) == 0:
                return self._constant_value(value, array, ())
            moved = array.reshape(full).transpose(order)
            kind = quant_of(value)
            return self.constant(moved, None if kind is None else quantization(kind))
        expanded = self.like(value, arranged(full, order), "expanded")
        source = self.tensor(value)
        if moves_nothing(full, natural(len(full)), order):
            return self.reshape(source, expanded)
        unordered = self.reshape(source, self.like(value, full, "expanded"))
        self.operator("TRANSPOSE", [unordered, self.integers(order)], [expanded], "TransposeOptions")
        return expanded

    def reshape(self, source: TFLiteTensor, out: TFLiteTensor) -> TFLiteTensor:
        """The same elements under another shape."""
        self.operator(
            "RESHAPE", [source, self.integers(out.shape)], [out], "ReshapeOptions", NewShape=out.shape
        )
        return out

    # Constants

    def array(self, value: Value | None) -> Array | None:
        """The elements of a constant, unpacked if they are narrower than a byte; None if it is computed."""
        array = self.graph.constant(value)
        if array is not None and array.dtype.name in ("int4", "uint4"):
            return array.astype(np.int8 if array.dtype.name == "int4" else np.uint8)
        return array

    def _constant_value(self, value: Value, array: Array, order: Order) -> TFLiteTensor:
        key = (value, order)
        if key not in self._shared:
            kind = quant_of(value)
            self._shared[key] = self.constant(
                array.transpose(order), None if kind is None else quantization(kind), name=value_name(value)
            )
        return self._shared[key]

    def constant(
        self,
        array: Array,
        quantized: TFLiteQuantization | None = None,
        what: str = "constant",
        name: str | None = None,
    ) -> TFLiteTensor:
        """A constant tensor; small ones that are equal are one."""
        dtype = dtype_of(array.dtype).name
        if array.nbytes > _SHARED_BYTES:
            return self.new(array.shape, dtype, quantized, what=what, data=array, name=name)
        key = (dtype, array.shape, quantized, array.tobytes())
        if key not in self._shared:
            self._shared[key] = self.new(array.shape, dtype, quantized, what=what, data=array, name=name)
        return self._shared[key]

    def integers(self, values: Any) -> TFLiteTensor:
        """A constant of 32-bit integers, as shapes and axes are."""
        return self.constant(np.asarray(values, np.int32))

    # Operators

    def operator(
        self,
        code: str,
        inputs: Sequence[TFLiteTensor | None],
        outputs: Sequence[TFLiteTensor],
        table: str = "",
        **options: Any,
    ) -> None:
        """Append an operator; `options` are the fields of the schema's table."""
        first = inputs[2] if code == "TRANSPOSE_CONV" else inputs[1] if code == "SPLIT" else inputs[0]
        assert first is not None
        self.model.operators.append(
            TFLiteOperator(code, version(code, first.dtype), inputs, outputs, table, options)
        )
