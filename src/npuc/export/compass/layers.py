"""What rules write layers with: tensors in either order of axes, constants in the binary file, and the integers of a network.

Images are N x H x W x C in Compass IR, and N x C x H x W in Top IR. A tensor of rank 4 is turned where a layer wants the other
order, once, by a Transpose layer, so that a chain of convolutions is turned at its ends only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.compass.text import TYPES
from npuc.ir import Graph, Value, dtype_of, npu, shape_of, top, value_name
from npuc.ir.dtypes import QuantType, quant_of

SHORT_FLOATS = {"f16": "float16", "bf16": "bfloat16"}
"""Types of layers that compute in short floats, by npuc's names."""
_NAMES = {dtype: name for name, dtype in reversed(TYPES.items()) if name != "bool"}
TO_LAST = (0, 2, 3, 1)
TO_SECOND = (0, 3, 1, 2)


class NoCompassForm(Exception):
    """An op has no layer in Compass IR; the text says why."""


@dataclass
class LayerWriter:
    """Layers in their order, and the bytes of the binary file."""

    graph: Graph
    integers: Graph | None = None
    """The integer network of the same names, for the text of a quantized network."""
    layers: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    offset: int = 0
    tensors: dict[tuple[Value, bool], str] = field(default_factory=dict)
    """The name of a tensor by its value and whether channels are last."""
    taken: set[str] = field(default_factory=set)
    constants: dict[tuple[Value, bool], str] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """A name that no tensor or layer has yet."""
        candidate, number = name, 1
        while candidate in self.taken:
            candidate, number = f"{name}_{number}", number + 1
        self.taken.add(candidate)
        return candidate

    def named(self, value: Value) -> str:
        """The name that a value has in the network."""
        ports = {port.value: port.name for port in self.graph.inputs}
        return ports.get(value) or value_name(value) or "tensor"

    def last(self, value: Value) -> bool:
        """Whether a value is there with channels last, and in no other order."""
        return (value, True) in self.tensors and (value, False) not in self.tensors

    def operand(self, value: Value, last: bool) -> str:
        """The tensor of a value in an order; turned if it is not there, a Constant layer if it is one."""
        last = last and len(shape_of(value)) == 4
        key = value, last
        if key in self.tensors:
            return self.tensors[key]
        array = self.graph.constant(value)
        if array is not None:
            self.tensors[key] = self._constant_layer(value, array, last)
            return self.tensors[key]
        other = self.tensors[value, not last]
        name = self.unique(f"{other}_{'post_transpose' if not last else 'nhwc'}")
        perm = TO_LAST if last else TO_SECOND
        self.add("Transpose", name, [other], [name], [self.shape(value, last)], value, {"perm": perm})
        self.tensors[key] = name
        return name

    def _constant_layer(self, value: Value, array: Array, last: bool) -> str:
        name = self.unique(self.named(value))
        turned = array.transpose(TO_LAST) if last else array
        self.add("Constant", name, [], [name], [turned.shape], None, self.stored("weights", turned))
        return name

    def literal(self, array: Array, name: str) -> str:
        """A Constant layer of numbers that the rule made."""
        tensor = self.unique(name)
        self.add("Constant", tensor, [], [tensor], [array.shape], None, self.stored("weights", array))
        return tensor

    def shape(self, value: Value, last: bool) -> tuple[int, ...]:
        """The shape of a value in an order."""
        shape = shape_of(value)
        return tuple(shape[axis] for axis in TO_LAST) if last and len(shape) == 4 else tuple(shape)

    def stored(self, key: str, array: Array) -> dict[str, Any]:
        """The four lines of a constant, whose bytes go to the binary file."""
        array = np.require(array, requirements=["C"])
        if array.dtype not in _NAMES:
            array = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        place = self.offset
        self.chunks.append(data)
        self.offset += len(data)
        return {
            f"{key}_type": _NAMES[np.dtype(array.dtype.str.lstrip("<>=|"))],
            f"{key}_offset": place,
            f"{key}_size": len(data),
            f"{key}_shape": list(array.shape),
        }

    def quantization(self, value: Value | None) -> QuantType | None:
        """The integers that stand for a value in the quantized network; None if it is float there."""
        if value is None or self.integers is None:
            return None
        twin = self.integers.find(self.named(value))
        if twin is None:
            return None
        if quant_of(twin) is None:
            # An output is dequantized under its name, and an input quantized from it: its integers are beside it.
            owner = getattr(twin, "owner", None)
            if isinstance(owner, npu.Dequantize):
                twin = owner.operands[0]
            else:
                readers = [use.operation for use in twin.uses if isinstance(use.operation, npu.Quantize)]
                twin = readers[0].results[0] if readers else twin
        return quant_of(twin)

    def twin(self, value: Value) -> Any:
        """The op of the quantized network that makes a value; None if there is none."""
        if self.integers is None:
            return None
        counterpart = self.integers.find(self.named(value))
        owner = getattr(counterpart, "owner", None)
        return owner.operands[0].owner if isinstance(owner, npu.Dequantize) else owner

    def real_weights(self, op: Any) -> Array | None:
        """The weights that a layer of the quantized network multiplies in float, which may be integers times a scale."""
        twin = self.twin(op.results[0])
        if self.integers is None or len(getattr(twin, "operands", ())) < 2:
            return None
        value, factor = twin.operands[1], None
        product = value.owner
        if isinstance(product, top.Mul) and isinstance(inner := product.operands[0].owner, npu.Dequantize):
            value, factor = inner.operands[0], self.integers.constant(product.operands[1])
        array = self.integers.constant(value)
        real = None if array is None else array.astype(np.float32)
        return real if real is None or factor is None else real * factor.astype(np.float32)

    def kind_of(self, value: Value | None) -> str:
        """The element type of a tensor in the text."""
        quantized = self.quantization(value)
        if quantized is not None:
            return _NAMES[np.dtype(quantized.dtype.numpy)]
        twin = None if value is None or self.integers is None else self.integers.find(self.named(value))
        if twin is not None and dtype_of(twin.type).name in SHORT_FLOATS:
            return SHORT_FLOATS[dtype_of(twin.type).name]
        return "float32" if value is None else _NAMES.get(np.dtype(dtype_of(value.type).numpy), "float32")

    def add(
        self,
        kind: str,
        name: str,
        bottoms: Sequence[str],
        tops: Sequence[str],
        shapes: Sequence[Sequence[int]],
        value: Value | Sequence[Value] | None,
        attributes: Mapping[str, Any],
    ) -> None:
        """Append a layer; `value` is what its results are, for their types and scales."""
        values = list(value) if isinstance(value, Sequence) else [value] * len(tops)
        known = {top: layer for layer in self.layers for top in layer["layer_top"]}
        block: dict[str, Any] = {"layer_name": name, "layer_type": kind, "layer_bottom": list(bottoms)}
        block["layer_bottom_shape"] = [
            known[bottom]["layer_top_shape"][known[bottom]["layer_top"].index(bottom)] for bottom in bottoms
        ]
        block["layer_bottom_type"] = [
            known[bottom]["layer_top_type"][known[bottom]["layer_top"].index(bottom)] for bottom in bottoms
        ]
        block["layer_top"] = list(tops)
        block["layer_top_shape"] = [list(shape) for shape in shapes]
        block["layer_top_type"] = [self.kind_of(entry) for entry in values]
        if kind == "Constant":
            block["layer_top_type"] = [attributes["weights_type"]]
        scales = [self.quantization(entry) for entry in values]
        if any(scale is not None for scale in scales):
            block["layer_top_scale"] = [1.0 if scale is None else 1.0 / scale.scale for scale in scales]
            block["layer_top_zp"] = [0 if scale is None else -scale.zero_point for scale in scales]
        self.layers.append(block | dict(attributes))

    def layer(
        self, kind: str, bottoms: Sequence[str], results: Sequence[Value], last: bool, **attributes: Any
    ) -> None:
        """A layer that makes the results of an op."""
        tops = [self.unique(self.named(value)) for value in results]
        for value, name in zip(results, tops, strict=True):
            self.tensors[value, last and len(shape_of(value)) == 4] = name
        shapes = [self.shape(value, last) for value in results]
        self.add(kind, tops[0], bottoms, tops, shapes, results, attributes)
