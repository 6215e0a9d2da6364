"""The text of Compass IR: a header, and a block for each layer, all of lines `key=value`.

    model_name=net                     layer_id=1
    layer_number=2                     layer_name=conv1
    input_tensors=[x_0]                layer_type=Convolution
    output_tensors=[conv1_0]           layer_bottom=[x_0]
                                       ...
                                       weights_type=float32
                                       weights_offset=0

Values are words, numbers, and lists in brackets, which nest. A constant is four lines: its type, its shape, and the place and the
number of its bytes in the binary file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError

TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("f4"),
    "float16": np.dtype("f2"),
    "float64": np.dtype("f8"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "int16": np.dtype("i2"),
    "uint16": np.dtype("u2"),
    "int32": np.dtype("i4"),
    "uint32": np.dtype("u4"),
    "int64": np.dtype("i8"),
    "uint64": np.dtype("u8"),
    "bool": np.dtype("u1"),
}
"""Element types by the names of the format."""
_MAX_DEPTH = 8

Nested = str | list["Nested"]
"""A value: a word, or a list of values."""


DOMAIN = "npuc.compass"
"""The domain of layers that have no form in npuc."""

OPTIMIZED = "optimized"
"""The line of the header that says that a network was quantized, so far as it was asked for: it may be float all the same."""

STRUCTURE = {"layer_id", "layer_name", "layer_type"} | {
    f"layer_{side}{what}" for side in ("bottom", "top") for what in ("", "_shape", "_type", "_scale", "_zp")
}
"""Lines of a layer that say where it is in the network; all others are its own."""


@dataclass
class CompassLayer:
    """A block: its keys in the order of the file."""

    values: dict[str, str]
    line: int = 0

    @property
    def name(self) -> str:
        """What the layer is called."""
        return self.values.get("layer_name", f"layer {self.values.get('layer_id', '?')}")

    @property
    def kind(self) -> str:
        """The type of the layer."""
        return self.values.get("layer_type", "")

    def names(self, key: str) -> list[str]:
        """A list of words, such as that of the tensors that the layer reads."""
        parsed = self.nested(key)
        words = [parsed] if isinstance(parsed, str) and parsed else parsed
        if any(not isinstance(word, str) for word in words):
            raise InvalidModelError(f"line {self.line}: {key} of '{self.name}' is no list of words")
        return [str(word) for word in words]

    def nested(self, key: str) -> Nested:
        """A value as it is nested; an empty list if it is not there."""
        return parse_value(self.values.get(key, "[]"), f"{key} of '{self.name}'")

    def constants(self) -> list[str]:
        """The names of the constants that the block describes, in the order of the file."""
        return [
            key.removesuffix("_offset")
            for key in self.values
            if key.endswith("_offset")
            and all(
                f"{key.removesuffix('_offset')}_{part}" in self.values for part in ("type", "shape", "size")
            )
        ]


@dataclass
class CompassText:
    """A whole text."""

    header: dict[str, str] = field(default_factory=dict)
    layers: list[CompassLayer] = field(default_factory=list)

    def names(self, key: str) -> list[str]:
        """A list of names of the header."""
        return CompassLayer(self.header).names(key)


def parse_text(text: str) -> CompassText:
    """The header and the blocks of a text; what does not look like it is refused with its line."""
    whole, block, start = CompassText(), dict[str, str](), 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip():
            key, separator, value = line.partition("=")
            if not separator or not key.strip():
                raise InvalidModelError(f"line {number} is not KEY=VALUE: '{line.strip()[:60]}'")
            start = start if block else number
            block[key.strip()] = value.strip()
            continue
        if "subgraph_name" in block:
            raise InvalidModelError(f"line {start}: subgraphs, which control flow needs, are not read")
        if "layer_type" in block:
            whole.layers.append(CompassLayer(block, start))
        elif block and whole.layers:
            raise InvalidModelError(f"line {start}: a block without layer_type")
        elif block:
            whole.header |= block
        block = {}
    if not whole.layers:
        raise InvalidModelError("it has no layers")
    stated = whole.header.get("layer_number", str(len(whole.layers)))
    if stated != str(len(whole.layers)):
        raise InvalidModelError(
            f"layer_number says {stated[:20]}, and there are {len(whole.layers)} layers: it is not whole"
        )
    return whole


def parse_value(text: str, what: str) -> Nested:
    """A word, or a list of values in brackets.

    >>> parse_value("[[1,2],[a]]", "x")
    [['1', '2'], ['a']]
    """
    text = text.strip()
    if not text.startswith("["):
        return text
    stack: list[list[Nested]] = [[]]
    word = ""
    for sign in text:
        if sign in "[],":
            if word.strip():
                stack[-1].append(word.strip().strip("'\""))
            word = ""
        if sign == "[":
            stack.append([])
            if len(stack) > _MAX_DEPTH:
                raise InvalidModelError(f"{what} nests too deep")
        elif sign == "]":
            if len(stack) < 2:
                raise InvalidModelError(f"{what} has a bracket too many")
            closed = stack.pop()
            stack[-1].append(closed)
        elif sign != ",":
            word += sign
    if len(stack) != 1 or word.strip() or len(stack[0]) != 1:
        raise InvalidModelError(f"{what} is no list: '{text[:60]}'")
    return stack[0][0]


def integers_in(value: Nested, what: str) -> list[int]:
    """A flat list of integers."""
    try:
        return [int(str(word)) for word in ([value] if isinstance(value, str) else value)]
    except ValueError as error:
        raise InvalidModelError(f"{what} is no list of integers") from error


def read_constants(layer: CompassLayer, data: Array, path: Path | str) -> dict[str, Array]:
    """The constants of a layer out of the bytes of the binary file."""
    return {key: _constant(layer, key, data, path) for key in layer.constants()}


def _constant(layer: CompassLayer, key: str, data: Array, path: Path | str) -> Array:
    what = f"{key} of '{layer.name}'"
    kind = TYPES.get(layer.values[f"{key}_type"].lower())
    if kind is None:
        raise InvalidModelError(
            f"{what} has the type '{layer.values[f'{key}_type'][:30]}', which is not read"
        )
    shape = integers_in(layer.nested(f"{key}_shape"), f"the shape of {what}")
    offset, size = (integers_in(layer.values[f"{key}_{part}"], what)[0] for part in ("offset", "size"))
    count = 1
    for side in shape:
        count *= side
    if min(shape, default=0) < 0 or size != count * kind.itemsize:
        raise InvalidModelError(f"{what} has {size} bytes for the shape {shape}")
    if offset < 0 or offset + size > data.size:
        raise InvalidModelError(f"{what} lies beyond the end of {path}: it is not whole")
    return np.frombuffer(data[offset : offset + size].tobytes(), kind.newbyteorder("<")).reshape(shape)


def format_value(value: object) -> str:
    """A value as the format writes it: `true`, `1.5`, `[1,2]`.

    >>> format_value([[1, 2], ["a"]]), format_value(True)
    ('[[1,2],[a]]', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, Iterable):
        return f"[{','.join(format_value(part) for part in value)}]"
    return str(value)


def format_text(header: Mapping[str, object], layers: Iterable[Mapping[str, object]]) -> str:
    """The text of a header and of layers, numbered in their order."""
    blocks = [header, *({"layer_id": number, **layer} for number, layer in enumerate(layers))]
    return "\n".join(
        "".join(f"{key}={format_value(value)}\n" for key, value in block.items()) for block in blocks
    )
