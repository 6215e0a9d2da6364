"""What a rule sees of its layer: operands with their shapes, and how to emit ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.builder import Builder, LayerBuilder
from npuc.frontend.layered.network import NetworkLayer, Shape
from npuc.ir import Graph, Value, is_static, shape_of, top
from npuc.ir.definition import TopOp

_OpT = TypeVar("_OpT", bound=TopOp)


class NoForm(Exception):
    """This layer has no form in `top` or ONNX; the text says why. It becomes a custom op."""


class LayerScope(Builder):
    """Tensors and what they mean; `graph` is where ops are appended."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.values: dict[str, Value] = {}


class LayerContext:
    """A layer, its operands, and the ops that its rule emits."""

    def __init__(self, layer: NetworkLayer, scope: LayerScope) -> None:
        self.layer = layer
        self.scope = scope
        self.builder = LayerBuilder(
            scope, layer.outputs[0] if layer.outputs else layer.name, layer=layer.name
        )

    @property
    def count(self) -> int:
        """The number of inputs."""
        return len(self.layer.inputs)

    def invalid(self, why: str) -> InvalidModelError:
        """The error for a layer that makes no sense."""
        return InvalidModelError(f"{self.layer.label}: {why}")

    def value(self, index: int = 0) -> Value:
        """Input `index`."""
        if index >= self.count:
            raise self.invalid(f"input {index} is missing")
        name = self.layer.inputs[index]
        value = self.scope.values.get(name)
        if value is None:
            raise self.invalid(f"its input '{name}' is not made before it")
        if not is_static(value):
            raise NoForm(f"the shape of its input '{name}' is not known")
        return value

    def values(self) -> list[Value]:
        """All inputs."""
        return [self.value(index) for index in range(self.count)]

    def shape(self, index: int = 0) -> Shape:
        """The shape of input `index`."""
        return shape_of(self.value(index))

    def axis(self, axis: int, index: int = 0, *, end: bool = False) -> int:
        """An axis of input `index` that counts from the front; with `end`, the place behind the last is one, too."""
        rank = len(self.shape(index))
        if not -rank <= axis < rank + end:
            raise self.invalid(f"there is no axis {axis} in a tensor of rank {rank}")
        return axis % rank if axis < rank else axis

    def emit(self, op_class: type[_OpT], /, *operands: Any, **properties: Any) -> Value:
        """Append an op of one result; it gets its name when the rule returns."""
        value: Value = self.emit_op(op_class, *operands, **properties).results[0]
        return value

    def emit_op(self, op_class: type[_OpT], /, *operands: Any, **properties: Any) -> _OpT:
        """Append an op of several results."""
        return self.builder.emit(op_class, *operands, **properties)

    def literal(self, array: Array, name: str = "constant") -> Value:
        """A constant; rank and type are those of the array."""
        return self.scope.store(np.require(array, requirements=["A", "C"]), f"{self.layer.name}/{name}")

    def number(self, value: float) -> Value:
        """A float32 scalar."""
        return self.literal(np.array(value, np.float32))

    def integers(self, *values: int) -> Value:
        """A list of int64."""
        return self.literal(np.array(values, np.int64))

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """The value under another shape; the value itself if it has that shape."""
        return value if shape_of(value) == tuple(shape) else self.emit(top.Reshape, value, shape=tuple(shape))

    def part(self, value: Value, axis: int, begin: int, size: int) -> Value:
        """Entries begin .. begin + size of an axis."""
        shape = list(shape_of(value))
        offset = [0] * len(shape)
        offset[axis], shape[axis] = begin, size
        if shape[axis] < 1 or begin < 0 or begin + size > shape_of(value)[axis]:
            raise self.invalid(f"entries {begin} to {begin + size} of an axis of {shape_of(value)[axis]}")
        return self.emit(top.Slice, value, offset=offset, steps=[1] * len(shape), shape=shape)

    def onnx(
        self,
        op_type: str,
        operands: Sequence[Value],
        types: Sequence[Any],
        reason: str,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """An op of ONNX, or of another domain, that runs on the CPU; its results may leave dimensions open."""
        # Shapes as the set of operators has them that the others here are of.
        version = 15 if op_type == "Shape" and not domain else None
        return self.builder.onnx(op_type, operands, types, reason, attributes, domain=domain, version=version)

    def named(self, results: Sequence[Value]) -> None:
        """Give every emitted op the names of the tensors that its results are."""
        self.builder.finish(dict(zip(results, self.layer.outputs, strict=False)))
