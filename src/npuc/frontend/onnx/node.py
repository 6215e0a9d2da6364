"""A node of the ONNX graph, with attributes that are checked when they are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import onnx
from onnx import AttributeProto

from npuc.errors import InvalidModelError

_KINDS: dict[int, str] = {
    AttributeProto.INT: "an integer",
    AttributeProto.FLOAT: "a float",
    AttributeProto.STRING: "a string",
    AttributeProto.INTS: "a list of integers",
    AttributeProto.FLOATS: "a list of floats",
    AttributeProto.STRINGS: "a list of strings",
    AttributeProto.TENSOR: "a tensor",
    AttributeProto.GRAPH: "a graph",
}
_MISSING: Any = object()


class NoTopForm(Exception):
    """This node has no `top` form; the text says why. It becomes `top.onnx`."""


@dataclass
class OnnxNode:
    """One ONNX node: what it computes, from what, under which names."""

    proto: onnx.NodeProto
    opset: int
    """The operator-set version that its domain is read under."""
    label: str
    """How messages speak of it."""
    attributes: dict[str, AttributeProto] = field(default_factory=dict)

    @staticmethod
    def of(proto: onnx.NodeProto, opset: int) -> OnnxNode:
        """Wrap a message."""
        name = proto.name or next((o for o in proto.output if o), "")
        attributes = {attribute.name: attribute for attribute in proto.attribute}
        return OnnxNode(proto, opset, f"{proto.op_type} node '{name}'", attributes)

    @property
    def op_type(self) -> str:
        """The operator."""
        return self.proto.op_type

    @property
    def domain(self) -> str:
        """The operator's domain; empty for ONNX's own."""
        return "" if self.proto.domain == "ai.onnx" else self.proto.domain

    @cached_property
    def inputs(self) -> list[str]:
        """Input names; an empty one is left out."""
        return list(self.proto.input)

    @cached_property
    def outputs(self) -> list[str]:
        """Output names; an empty one is not wanted."""
        return list(self.proto.output)

    def has(self, name: str) -> bool:
        """True if the attribute is given."""
        return name in self.attributes

    def _get(self, name: str, kind: int, default: Any) -> Any:
        attribute = self.attributes.get(name)
        if attribute is None:
            if default is _MISSING:
                raise InvalidModelError(f"{self.label}: the attribute '{name}' is missing")
            return default
        if attribute.type != kind:
            raise InvalidModelError(f"{self.label}: the attribute '{name}' is not {_KINDS[kind]}")
        if attribute.ref_attr_name:
            raise InvalidModelError(
                f"{self.label}: the attribute '{name}' is that of a function, but there is none"
            )
        return onnx.helper.get_attribute_value(attribute)

    def int(self, name: str, default: Any = _MISSING) -> Any:
        """An integer attribute."""
        return self._get(name, AttributeProto.INT, default)

    def flag(self, name: str, default: bool = False) -> bool:
        """An integer attribute that means yes or no."""
        return bool(self._get(name, AttributeProto.INT, default))

    def float(self, name: str, default: Any = _MISSING) -> Any:
        """A float attribute."""
        return self._get(name, AttributeProto.FLOAT, default)

    def string(self, name: str, default: Any = _MISSING) -> Any:
        """A string attribute."""
        value = self._get(name, AttributeProto.STRING, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def ints(self, name: str, default: Any = _MISSING) -> Any:
        """A list of integers, as a tuple."""
        value = self._get(name, AttributeProto.INTS, default)
        return tuple(value) if value is not None else None

    def floats(self, name: str, default: Any = _MISSING) -> Any:
        """A list of floats, as a tuple."""
        value = self._get(name, AttributeProto.FLOATS, default)
        return tuple(value) if value is not None else None

    def strings(self, name: str, default: Any = _MISSING) -> Any:
        """A list of strings, as a tuple."""
        value = self._get(name, AttributeProto.STRINGS, default)
        return tuple(v.decode(errors="replace") if isinstance(v, bytes) else v for v in value)

    def tensor(self, name: str) -> onnx.TensorProto:
        """A tensor attribute."""
        value: onnx.TensorProto = self._get(name, AttributeProto.TENSOR, _MISSING)
        return value

    def graph(self, name: str) -> onnx.GraphProto:
        """A graph attribute."""
        value: onnx.GraphProto = self._get(name, AttributeProto.GRAPH, _MISSING)
        return value
