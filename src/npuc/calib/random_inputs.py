"""Seeded random inputs with values that are valid for the network.

Floats are uniform in [0, 1), so that logarithms and square roots are defined; an input with preprocessing gets an image of
random pixels. Integers that index a table in the graph stay within it, other integers are 0 or 1; masks are all ones.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import DynamicShapeError, ResourceLimitError, UnsupportedTypeError
from npuc.images.loading import apply_arithmetic
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, Port, dtype_of, is_static, shape_of
from npuc.ir.top import Cast, Gather, Reshape

_MAX_ELEMENTS = 1 << 31


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """One sample for every input of a graph."""
    return {
        port.name: _random(port, np.random.default_rng([seed, index]))
        for index, port in enumerate(graph.inputs)
    }


def _random(port: Port, rng: np.random.Generator) -> Array:
    if not is_static(port.value):
        raise DynamicShapeError(
            f"input '{port.name}' has type {port.type}", fix="Give it an --input-shape at import"
        )
    shape, dtype = shape_of(port.value), dtype_of(port.type).numpy
    if prod(shape) > _MAX_ELEMENTS:
        raise ResourceLimitError(
            f"input '{port.name}' of {'x'.join(map(str, shape))} elements is too large for random data",
            fix="Give it a smaller --input-shape at import",
        )
    if port.preprocess:
        preprocess = Preprocess.from_dict(port.preprocess)
        if len(shape) in (3, 4) and not preprocess.yuv:
            return _image(shape, preprocess, dtype, rng)
    kind = dtype.kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if kind in "iu":
        if "mask" in port.name.lower():
            return np.ones(shape, dtype)
        limit = 256 if dtype == np.uint8 else min(_table_size(port), 2**31, np.iinfo(dtype).max)
        return rng.integers(0, max(1, limit), shape).astype(dtype)
    if kind == "O":
        raise UnsupportedTypeError(f"input '{port.name}' holds text, for which there is no random value")
    if kind == "c":
        return (rng.random(shape) + 1j * rng.random(shape)).astype(dtype)
    return rng.random(shape).astype(dtype)


def _image(
    shape: tuple[int, ...], preprocess: Preprocess, dtype: np.dtype[Any], rng: np.random.Generator
) -> Array:
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    if preprocess.layout == "nhwc":
        return apply_arithmetic(pixels, preprocess, dtype)
    return np.ascontiguousarray(
        np.moveaxis(apply_arithmetic(np.moveaxis(pixels, -3, -1), preprocess, dtype), -1, -3)
    )


def _table_size(port: Port) -> int:
    """The smallest table that an input of integers indexes; 2 if there is none."""
    sizes: list[int] = []
    visited = set()
    stack = [port.value]
    while stack:
        value = stack.pop()
        if value in visited:
            continue
        visited.add(value)
        for use in value.uses:
            op = use.operation
            if isinstance(op, Gather) and op.operands[0] is not value:
                sizes.append(shape_of(op.operands[0])[op.axis])
            elif isinstance(op, Cast | Reshape):
                stack.append(op.results[0])
    return min(sizes, default=2)
