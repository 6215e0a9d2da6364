"""What a program is given: the right names, shapes and element types, or an error that says what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.ir import DYNAMIC, DType, Graph, dtype_of, is_ranked, shape_of
from npuc.program.model import named_inputs

Shape = tuple[int, ...] | None
Expected = Mapping[str, tuple[DType, Shape]]
"""Name to element type and shape; a shape of None is of unknown rank."""


def expected_inputs(graph: Graph) -> dict[str, tuple[DType, Shape]]:
    """What a program wants, in order."""
    return {
        port.name: (dtype_of(port.type), shape_of(port.value) if is_ranked(port.value) else None)
        for port in graph.inputs
    }


def checked_inputs(inputs: Any, expected: Expected) -> dict[str, Array]:
    """The arrays in the element types that are expected, in order; `InputDataError` where they cannot be.

    `inputs` is a mapping by name, a list or tuple in the order of several inputs, or the array of the only one.
    """
    inputs = named_inputs(inputs, expected)
    check_names(inputs, expected)
    feed = {}
    for name, (dtype, shape) in expected.items():
        array = np.asarray(inputs[name])
        fits = shape is None or (
            len(array.shape) == len(shape)
            and all(want in (have, DYNAMIC) for have, want in zip(array.shape, shape, strict=True))
        )
        if not fits:
            raise InputDataError(
                f"input '{name}' has shape {shape_text(array.shape)}",
                fix=f"The network expects {expectation(name, expected)}",
            )
        if array.dtype != dtype.numpy:
            if not _convertible(array.dtype, dtype):
                raise InputDataError(
                    f"input '{name}' has type {array.dtype.name}, which does not convert safely",
                    fix=f"The network expects {expectation(name, expected)}",
                )
            array = array.astype(dtype.numpy)
        feed[name] = array
    return feed


def check_names(inputs: Mapping[str, Any], expected: Expected) -> None:
    """No name too many, and none missing."""
    for name in inputs:
        if name not in expected:
            near = get_close_matches(name, expected, n=1)
            fix = f"Did you mean '{near[0]}'?" if near else f"The inputs are: {', '.join(expected) or 'none'}"
            raise InputDataError(f"the network has no input '{name}'", fix=fix)
    for name in expected:
        if name not in inputs:
            raise InputDataError(
                f"input '{name}' is missing", fix=f"It has to be {expectation(name, expected)}"
            )


def expectation(name: str, expected: Expected) -> str:
    """What an input should be, in words."""
    dtype, shape = expected[name]
    what = "any shape" if shape is None else f"shape {shape_text(shape)}"
    return f"'{name}': {dtype.numpy.name} of {what}"


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape for people.

    >>> shape_text((1, 3))
    '1×3'
    """
    return "×".join("?" if size == DYNAMIC else str(size) for size in shape) or "() (a scalar)"


def _convertible(have: np.dtype[Any], want: DType) -> bool:
    """Between floats of any width, from integers to floats, and to wider integers."""
    if want.is_float:
        return have.kind in "fiub" or have.name in ("bfloat16",)
    return bool(np.can_cast(have, want.numpy, "safe"))
