"""What rules of host operators share: the node that they are given, the table they are in, and how they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from npuc.arrays import Array
from npuc.codegen.host_ops.builder import Builder, HostTensor
from npuc.registries import Registry


class NoHostOperator(Exception):
    """C has no operator for a node; the text says why."""


@dataclass
class Node:
    """A node of an ONNX model with its tensors."""

    proto: NodeProto
    inputs: list[HostTensor | None]
    types: list[tuple[str, tuple[int, ...] | None]]
    """Element type and shape of each result, as far as they are known: no shape if it depends on data."""
    build: Builder
    results: dict[int, HostTensor]
    """What rules have bound results to."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        for attribute in self.proto.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                if isinstance(value, bytes):
                    return value.decode()
                return numpy_helper.to_array(value) if hasattr(value, "raw_data") else value
        return default

    def given(self, index: int) -> HostTensor | None:
        """An input that may be left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> HostTensor:
        """An input that has to be there."""
        x = self.given(index)
        if x is None:
            raise NoHostOperator(f"its input {index} is missing")
        return x

    def static(self, index: int) -> HostTensor:
        """An input whose shape does not depend on data."""
        x = self.input(index)
        if x.rows is not None:
            raise NoHostOperator("the shape of its input depends on the data")
        return x

    def constant(self, index: int) -> Array:
        """The value of an input that has to be known when the network is compiled."""
        x = self.input(index)
        if x.array is None:
            raise NoHostOperator(f"its input {index} is not a constant")
        return x.array

    def constant_or(self, index: int, default: Any = None) -> Any:
        """The value of an input that may be left out."""
        return default if self.given(index) is None else self.constant(index)

    def integers(self, name: str, index: int) -> tuple[int, ...] | None:
        """Integers that are an attribute, or, since a later operator set, an input; None if they are left out."""
        value = self.attribute(name)
        if value is None and self.given(index) is not None:
            value = self.constant(index)
        return None if value is None else tuple(int(v) for v in np.asarray(value).reshape(-1))

    def wants(self, index: int) -> bool:
        """Whether anybody reads a result."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of a result."""
        shape = self.types[index][1]
        if shape is None:
            raise NoHostOperator("the shape of its result depends on the data")
        return shape

    def dtype(self, index: int = 0) -> str:
        """The element type of a result."""
        return self.types[index][0]

    def output(self, index: int = 0) -> HostTensor:
        """A new tensor for a result, of the type and shape that it has to have."""
        return self.bind(self.build.tensor(self.dtype(index), self.shape(index)), index)

    def output_like(self, x: HostTensor) -> HostTensor:
        """A new tensor for the first result, of the shape of an input."""
        return self.bind(self.build.like(x, self.dtype()))

    def bind(self, y: HostTensor, index: int = 0) -> HostTensor:
        """A tensor is a result."""
        self.results[index] = y
        return y

    def bind_view(self, x: HostTensor, shape: Sequence[int]) -> None:
        """The first result has the elements of a tensor in another shape."""
        self.bind(self.build.view(x, shape))


Rule = Callable[[Node, Builder], None]
RULES: Registry[str, Rule] = Registry("a host operator for the ONNX op", provider=__name__)
"""By the type of node."""


def host_rule(*op_types: str) -> Callable[[Rule], Rule]:
    """Register a rule for nodes of some types."""

    def register(rule: Rule) -> Rule:
        RULES.add(op_types, rule)
        return rule

    return register


def axis_of(axis: int, rank: int) -> int:
    """An axis that may be counted from the last.

    >>> axis_of(-1, 4)
    3
    """
    return axis + rank if axis < 0 else axis
