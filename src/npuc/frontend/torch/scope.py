"""What a rule sees: its node with the arguments by name, the values of its operands, and how to emit ops.

A node means a value, a real tensor where it is constant, or a tuple of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.builder import Builder, LayerBuilder
from npuc.frontend.torch.convert import dtype_from, shape_from, to_array, to_weight, type_from
from npuc.frontend.torch.registry import NoTopForm
from npuc.ir import DYNAMIC, DType, Graph, Value, dtype_of, is_static, shape_of, top
from npuc.registries import renamed


class TorchScope(Builder):
    """What nodes mean; `graph` is where ops are appended."""

    def __init__(self, graph: Graph, tensor_names: dict[Any, str], weight_names: dict[int, str]) -> None:
        super().__init__(graph)
        self.tensor_names = tensor_names
        self.weight_names = weight_names
        """The path of a parameter or buffer by the identity of its tensor."""
        self.meanings: dict[Any, Any] = {}
        self.masked: set[Any] = set()
        """Nodes whose infinities became numbers (see `masks`)."""

    def constant(self, tensor: Any, name: str) -> Value:
        """A real tensor as a value: tied weights are stored once."""
        value = self.stored(tensor)
        if value is None:
            name = self.weight_names.get(id(tensor), name)
            value = self.store_for(tensor, to_weight(tensor), name)
        return value


class TorchContext(LayerBuilder):
    """One node on its way into the graph."""

    scope: TorchScope

    def __init__(self, node: Any, scope: TorchScope) -> None:
        self.node = node
        self.name = scope.tensor_names.get(node, node.name)
        super().__init__(scope, self.name, layer=self.name)
        packet = getattr(node.target, "overloadpacket", None)
        self.op = str(packet) if packet is not None else str(getattr(node.target, "__name__", node.target))
        self.label = f"the layer '{self.name}' ({self.op})"
        self.args: dict[str, Any] = dict(self._bound())

    def _bound(self) -> Iterator[tuple[str, Any]]:
        """The arguments by the names of the op's schema, defaults filled in."""
        schema = getattr(self.node.target, "_schema", None)
        if schema is None:
            yield from ((str(index), value) for index, value in enumerate(self.node.args))
            yield from self.node.kwargs.items()
            return
        for index, argument in enumerate(schema.arguments):
            if index < len(self.node.args):
                yield argument.name, self.node.args[index]
            elif argument.name in self.node.kwargs:
                yield argument.name, self.node.kwargs[argument.name]
            else:
                yield argument.name, argument.default_value

    # Arguments

    def has(self, name: str) -> bool:
        """True if an argument is given and not None."""
        return self.args.get(name) is not None

    def meaning(self, item: Any) -> Any:
        """What an argument means: a node's meaning, or the Python value itself."""
        item = self.args[item] if isinstance(item, str) and item in self.args else item
        if isinstance(item, torch.fx.Node):
            if item not in self.scope.meanings:
                raise InvalidModelError(f"{self.label}: its operand '{item.name}' is not defined before it")
            return self.scope.meanings[item]
        return item

    def value(self, name: Any, dtype: DType | None = None) -> Value:
        """An operand as a value, a number as a constant of rank 0; cast to `dtype` if that is given."""
        meaning = self.meaning(name)
        if isinstance(meaning, bool | int | float):
            kind = dtype or dtype_of("f32" if isinstance(meaning, float) else "i64")
            return self.literal(np.array(meaning, kind.numpy), "constant")
        if isinstance(meaning, torch.Tensor):
            if dtype is not None and dtype_from(meaning.dtype) != dtype:
                return self.literal(to_array(meaning).astype(dtype.numpy), "constant")
            return self.scope.constant(meaning, self._name_of(name))
        if not isinstance(meaning, Value):
            raise NoTopForm(f"its operand is {type(meaning).__name__}, not a tensor")
        if not is_static(meaning):
            raise NoTopForm("the shape of its operand depends on data")
        return self.cast(meaning, dtype) if dtype is not None else meaning

    def _name_of(self, item: Any) -> str:
        node = self.args.get(item) if isinstance(item, str) else item
        return self.scope.tensor_names.get(node, f"{self.name}/constant")

    def optional(self, name: str, dtype: DType | None = None) -> Value | None:
        """An operand, or None if it is left out."""
        return self.value(name, dtype) if self.has(name) else None

    def values(self, name: str, dtype: DType | None = None) -> list[Value]:
        """A list of tensors."""
        return [self.value(item, dtype) for item in self.args[name]]

    def known(self, name: Any, what: str = "operand") -> Array:
        """The values of an operand that must be constant."""
        meaning = self.meaning(name)
        if isinstance(meaning, torch.Tensor):
            return to_array(meaning)
        if isinstance(meaning, bool | int | float):
            return np.array(meaning)
        raise NoTopForm(f"its {what} is computed at run time")

    def is_constant(self, name: Any) -> bool:
        """True if an operand is known now."""
        return isinstance(self.meaning(name), torch.Tensor | bool | int | float)

    def shape(self, name: Any) -> tuple[int, ...]:
        """The shape of an operand."""
        meaning = self.meaning(name)
        if isinstance(meaning, bool | int | float):
            return ()
        shape = shape_of(meaning) if isinstance(meaning, Value) else shape_from(meaning)
        if DYNAMIC in shape:
            raise NoTopForm("the shape of its operand depends on data")
        return shape

    def rank(self, name: Any) -> int:
        """The number of axes of an operand."""
        return len(self.shape(name))

    def dtype(self, name: Any) -> DType:
        """The element type of an operand."""
        meaning = self.meaning(name)
        if isinstance(meaning, Value):
            return dtype_of(meaning.type)
        if isinstance(meaning, torch.Tensor):
            dtype = dtype_from(meaning.dtype)
            if dtype is None:
                raise NoTopForm(f"its operand is of the type {meaning.dtype}")
            return dtype
        return dtype_of("i1" if isinstance(meaning, bool) else "i64" if isinstance(meaning, int) else "f32")

    def integer(self, name: str) -> int:
        """An argument as an integer."""
        argument = self.meaning(name)
        if not isinstance(argument, int):
            raise NoTopForm(f"its argument '{name}' is computed at run time")
        return int(argument)

    def number(self, name: str) -> float:
        """An argument as a float."""
        argument = self.meaning(name)
        if isinstance(argument, torch.Tensor) and argument.numel() == 1:
            argument = argument.item()
        if not isinstance(argument, int | float):
            raise NoTopForm(f"its argument '{name}' is computed at run time")
        return float(argument)

    def flag(self, name: str) -> bool:
        """An argument as a bool."""
        return bool(self.args.get(name))

    def text(self, name: str) -> str:
        """An argument as text."""
        return str(self.args[name])

    def ints(self, name: str, count: int | None = None) -> tuple[int, ...]:
        """An argument as integers; one stands for `count` of them."""
        argument = self.args[name]
        several = [argument] if isinstance(argument, int) else [self.meaning(item) for item in argument or ()]
        if not all(isinstance(item, int) for item in several):
            raise NoTopForm(f"its argument '{name}' is computed at run time")
        if count is not None and len(several) == 1:
            several *= count
        return tuple(int(item) for item in several)

    def axis(self, name: str, rank: int) -> int:
        """An axis, not negative."""
        return self.integer(name) % rank if rank else 0

    # Results

    @property
    def result(self) -> Any:
        """The fake tensor, or the tuple of them, that torch says the node gives."""
        return self.node.meta["val"]

    @property
    def result_dtype(self) -> DType:
        """The element type of the (first) result."""
        first = self.result[0] if isinstance(self.result, tuple | list) else self.result
        dtype = dtype_from(first.dtype)
        if dtype is None:
            raise NoTopForm(f"its result is of the type {first.dtype}")
        return dtype

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of the (first) result."""
        first = self.result[0] if isinstance(self.result, tuple | list) else self.result
        shape = shape_from(first)
        if DYNAMIC in shape:
            raise NoTopForm("the shape of its result depends on data")
        return shape

    @property
    def result_types(self) -> list[Any]:
        """The IR types of all results."""
        several = self.result if isinstance(self.result, tuple | list) else [self.result]
        return [type_from(item, self.label) for item in several if isinstance(item, torch.Tensor)]

    def cast(self, value: Value, dtype: DType) -> Value:
        """A value in another type."""
        if dtype_of(value.type) == dtype:
            return value
        return self.emit(top.Cast, value, to=dtype.name).y

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """A value under another shape."""
        if shape_of(value) == tuple(shape):
            return value
        return self.emit(top.Reshape, value, shape=tuple(shape)).y

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        """A value with its axes reordered."""
        if list(order) == list(range(len(order))):
            return value
        return self.emit(top.Permute, value, order=tuple(order)).y

    def named(self, results: Sequence[Any]) -> None:
        """Give every emitted op its names: the node's to what the rule returned, made-up ones to the rest."""
        names: dict[Value, str] = {}
        for index, value in enumerate(results):
            if isinstance(value, Value):
                names.setdefault(value, self.name if index == 0 else f"{self.name}.{index}")
        self.finish(names)

    def _layer_of(self, names: Sequence[str]) -> str | None:
        return self.name if names[0] != self.name else None


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Context": TorchContext})


__all__ = ["TorchContext", "TorchScope"]
