"""What an export rule writes ONNX nodes with.

`emit("Sqrt", x)` adds a node and gives the name of its output; `to=` says that the output is a value of the program,
whose name is the user's. Arguments may be values of the program, names that `emit` gave, NumPy arrays (which become
initializers) or None for an input that is left out. New names derive from those of the op: the same every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, numpy_helper

from npuc.arrays import Array
from npuc.ir import DType, Graph, Value, Weight, dtype_of, layer_name, shape_of, value_name
from npuc.ir.onnx_attributes import decode_attribute

Input = Value | str | Array | None
INLINE_BYTES = 1024
"""A weight of at most so many bytes is written into the model itself."""


class Names:
    """Names that are used once: `name`, then `name.1`, `name.2`, ..."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, name: str) -> str:
        """The name, or the next free variant of it, which is then taken."""
        chosen = name
        while chosen in self._taken:
            number = self._next.get(name, 1)
            self._next[name] = number + 1
            chosen = f"{name}.{number}"
        self._taken.add(chosen)
        return chosen


class Emitter:
    """Collects the nodes and initializers of one model."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self.graph = graph
        self.opset = opset
        self.names = Names()
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.external: dict[str, Weight] = {}
        self._values: dict[Value, str] = {}
        self._weights: dict[tuple[str, tuple[int, ...]], str] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._node_names = Names()
        self._op: Any = None

    # Names

    def bind(self, value: Value, name: str) -> None:
        """State the exported name of a value."""
        self._values[value] = name

    def bound(self, value: Value) -> bool:
        """True if the value has its exported name."""
        return value in self._values

    def name(self, value: Value) -> str:
        """The exported name of a value; the user's name where that is free."""
        exported = self._values.get(value)
        if exported is None:
            exported = self._values[value] = self.names.take(value_name(value) or "value")
        return exported

    def derived(self, what: str) -> str:
        """A new name for an intermediate value of the current op."""
        results = () if self._op is None else self._op.results
        base = next((value_name(result) for result in results if value_name(result)), "")
        return self.names.take(f"{base}/{what}" if base else what)

    # Nodes

    def begin(self, op: Any) -> None:
        """The nodes that follow belong to `op`."""
        self._op = op

    def node(
        self,
        op_type: str,
        inputs: Sequence[Input],
        outputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        helper: bool = False,
    ) -> None:
        """Add a node. Attributes that are None are left out; `helper` marks one beside the op's main node."""
        arguments = [self.argument(value) for value in inputs]
        while arguments and not arguments[-1]:
            arguments.pop()
        layer = layer_name(self._op) if self._op is not None else ""
        if helper and layer:
            layer = f"{layer}/{op_type}"
        proto = NodeProto(
            op_type=op_type,
            input=arguments,
            output=outputs,
            name=self._node_names.take(layer or op_type),
            domain=domain,
        )
        for key, value in (attributes or {}).items():
            if isinstance(value, AttributeProto):
                proto.attribute.append(value)
            elif value is not None:
                proto.attribute.append(decode_attribute(key, value))
        self.nodes.append(proto)

    def __call__(self, op_type: str, *inputs: Input, to: Value | str | None = None, **attributes: Any) -> str:
        """Add a node with one output: the value `to`, or a new intermediate one. Returns the output's name."""
        output = self._output(op_type, to)
        self.node(op_type, inputs, [output], attributes, helper=to is None)
        return output

    def cast(self, x: Input, dtype: DType, to: Value | None = None) -> str:
        """Add a Cast (whose own attribute `to` a call cannot spell)."""
        output = self._output("Cast", to)
        self.node("Cast", [x], [output], {"to": dtype.onnx}, helper=to is None)
        return output

    def _output(self, op_type: str, to: Value | str | None) -> str:
        if to is None:
            return self.derived(op_type.lower())
        return to if isinstance(to, str) else self.name(to)

    def argument(self, value: Input) -> str:
        """The name by which a node refers to an input."""
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, np.ndarray):
            return self.constant(value)
        return self.name(value)

    # Constants

    def constant(self, array: Array, what: str = "constant") -> str:
        """An initializer with these values; equal ones are shared."""
        dtype = dtype_of(array.dtype)
        key = (
            dtype.name,
            array.shape,
            array.tobytes() if array.dtype != np.object_ else repr(array).encode(),
        )
        initializer = self._constants.get(key)
        if initializer is None:
            initializer = self._constants[key] = self.derived(what)
            self._initializer(initializer, Weight(dtype, array.shape, array))
        return initializer

    def ints(self, *values: int) -> Array:
        """A vector of 64-bit integers, as shapes and axes are."""
        return np.array(values, np.int64)

    def scalar(self, number: float, like: Value | DType) -> Array:
        """A number in the element type of a value."""
        dtype = like if isinstance(like, DType) else dtype_of(like.type)
        return np.asarray(number).astype(dtype.numpy)

    def weight(self, ref: str, shape: tuple[int, ...] | None = None) -> str:
        """The initializer of a stored weight, under another shape if one is given."""
        stored = self.graph.weights[ref]
        shape = stored.shape if shape is None else shape
        key = (ref, shape)
        initializer = self._weights.get(key)
        if initializer is None:
            initializer = self._weights[key] = self.names.take(ref)
            data = stored.data.reshape(shape) if isinstance(stored.data, np.ndarray) else stored.data
            self._initializer(initializer, Weight(stored.dtype, shape, data))
        return initializer

    def shaped(self, value: Value, shape: Sequence[int]) -> str:
        """A value under another shape: an initializer if it is constant, else through a Reshape."""
        shape = tuple(shape)
        if shape_of(value) == shape:
            return self.name(value)
        if self.graph.constant(value) is not None:
            return self.weight(value.op.ref, shape)  # type: ignore[attr-defined]
        return self("Reshape", value, self.ints(*shape), allowzero=1 if 0 in shape else None)

    def _initializer(self, name: str, weight: Weight) -> None:
        if weight.nbytes <= INLINE_BYTES or not storable(weight.dtype):
            self.initializers.append(tensor_proto(name, weight))
            return
        proto = TensorProto(
            name=name, dims=weight.shape, data_type=weight.dtype.onnx, data_location=TensorProto.EXTERNAL
        )
        for key, text in (("location", "weights"), ("offset", "0"), ("length", str(weight.nbytes))):
            proto.external_data.add(key=key, value=text)
        self.initializers.append(proto)
        self.external[name] = weight


def storable(dtype: DType) -> bool:
    """True if the bytes of a weight are those that ONNX has for it: no packed type, no strings."""
    return dtype.numpy != np.object_ and dtype.name not in ("i4", "ui4", "f4E2M1FN", "i2", "ui2")


def tensor_proto(name: str, weight: Weight) -> TensorProto:
    """A weight as an initializer that holds its bytes."""
    if not storable(weight.dtype):
        return numpy_helper.from_array(weight.array(), name)
    return TensorProto(
        name=name,
        dims=weight.shape,
        data_type=weight.dtype.onnx,
        raw_data=np.ascontiguousarray(weight.array()).tobytes(),
    )
