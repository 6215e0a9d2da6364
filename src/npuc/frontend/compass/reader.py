"""Reading the two files of Compass IR: the text, and the binary file with its constants beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileMissingError, InvalidModelError
from npuc.export.compass.text import CompassLayer, CompassText, integers_in, parse_text
from npuc.files import existing_file
from npuc.frontend.options import ImportOptions
from npuc.ir import DType, dtype_of

INTEGERS = {"int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16"}
"""npuc's types by the words of the text, of the integers that stand for real numbers or are them."""
_MAX_TEXT = 256 << 20


@dataclass(frozen=True)
class CompassSource:
    """A network as its files hold it."""

    text: CompassText
    data: Array
    """The bytes of the binary file, mapped."""
    path: Path
    """The binary file."""


def read(path: Path, options: ImportOptions) -> CompassSource:
    """Read the text, and map the binary file: that of `--weights`, the one the header names, or the one beside it."""
    text = read_text(path)
    binary = options.weights or _beside(path, text)
    constants = any(layer.constants() for layer in text.layers)
    if not binary.is_file() and constants:
        raise FileMissingError(
            "does not exist, and the network has constants in it",
            where=str(binary),
            fix="Put the .bin file beside the .txt file, or name it with --weights",
        )
    size = binary.stat().st_size if binary.is_file() else 0
    data: Array = np.memmap(binary, np.uint8, "r") if size else np.zeros(0, np.uint8)
    return CompassSource(text, data, binary)


def read_text(path: Path) -> CompassText:
    """Read the text alone."""
    path = existing_file(path)
    if path.stat().st_size > _MAX_TEXT:
        raise InvalidModelError("is too large for the text of a network", where=str(path))
    try:
        return parse_text(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidModelError("is not a text file", where=str(path)) from error
    except InvalidModelError as error:
        error.where = error.where or str(path)
        raise


def _beside(path: Path, text: CompassText) -> Path:
    own = path.with_suffix(".bin")
    stated = os.path.basename(text.header.get("model_bin", ""))
    return path.with_name(stated) if stated and not own.is_file() else own


def inputs_of(text: CompassText) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs, in the order that the header states."""
    shapes = {
        name: shape
        for layer in text.layers
        if layer.kind == "Input"
        for name, shape in zip(layer.names("layer_top"), _shapes(layer), strict=False)
    }
    order = [name for name in text.names("input_tensors") if name in shapes]
    return {name: shapes[name] for name in (*order, *(name for name in shapes if name not in order))}


def _shapes(layer: CompassLayer) -> list[tuple[int, ...]]:
    nested = layer.nested("layer_top_shape")
    rows = [nested] if isinstance(nested, str) else nested
    return [tuple(integers_in(row, f"layer_top_shape of '{layer.name}'")) for row in rows]


def stated_shapes(layer: CompassLayer) -> list[tuple[int, ...]]:
    """The shapes of the results, as the text states them."""
    return _shapes(layer)


def plain_inputs(text: CompassText) -> dict[str, str]:
    """The element types of inputs that take integers as they are: those of an integer type without a scale."""
    return {
        name: INTEGERS[kind]
        for layer in text.layers
        if layer.kind == "Input" and not layer.names("layer_top_scale")
        for name, kind in zip(layer.names("layer_top"), layer.names("layer_top_type"), strict=False)
        if kind in INTEGERS
    }


def declared_inputs(path: Path | str, options: ImportOptions) -> dict[str, DType]:
    """The inputs by name; most networks here take real numbers."""
    text = read_text(Path(path))
    plain = plain_inputs(text)
    return {name: dtype_of(plain.get(name, "f32")) for name in inputs_of(text)}
