"""The inputs of a Keras model, as its description states them."""

from __future__ import annotations

from pathlib import Path

from npuc.errors import UnsupportedOpError
from npuc.frontend.keras.archive import open_archive
from npuc.frontend.keras.config import KerasLayer, read_network
from npuc.frontend.options import ImportOptions
from npuc.ir import DType, dtype_of

_TYPES = {
    "float32": "f32",
    "float16": "f32",
    "bfloat16": "f32",
    "float64": "f64",
    "int32": "i32",
    "int64": "i64",
    "int16": "i16",
    "int8": "i8",
    "uint8": "ui8",
    "bool": "i1",
}
"""Element types of inputs. Layers of halves are computed in float32, as their variables are kept."""


def declared_inputs(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The element types of the inputs by name, as the file states them."""
    network = read_network(open_archive(path).config)
    layers = [network.layers[ref.layer] for ref in network.inputs if ref.layer in network.layers]
    return {layer.name: input_type(layer) for layer in layers if layer.name not in options.constants}


def input_type(layer: KerasLayer) -> DType:
    """The element type of an input layer."""
    stated = layer.config.get("dtype")
    if isinstance(stated, dict):  # a policy
        inner = stated.get("config")
        stated = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(stated, str):
        stated = "float32"
    stated = {"mixed_float16": "float32", "mixed_bfloat16": "float32"}.get(stated, stated)
    if stated not in _TYPES:
        raise UnsupportedOpError(
            f"the input '{layer.name}' has the type {stated[:40]}, and a network takes numbers",
            fix="Begin behind what turns it into numbers, with --inputs",
        )
    return dtype_of(_TYPES[stated])


def declared_shape(layer: KerasLayer) -> tuple[int, ...] | None:
    """The shape of an input layer, -1 where a size is open; None if the file does not state one."""
    shape = layer.config.get("batch_shape") or layer.config.get("batch_input_shape")
    if (
        not isinstance(shape, list)
        or not all(n is None or isinstance(n, int) for n in shape)
        or len(shape) > 32
    ):
        return None
    return tuple(-1 if n is None else n for n in shape)
