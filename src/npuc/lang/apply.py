"""Make an op of the `top` dialect of tensors and plain values, with its shape inferred and its rules checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npuc.errors import NetworkError
from npuc.ir import dtype_of, tensor_type
from npuc.ir.definition import TOP_OPS, ShapeError
from npuc.ir.top import Onnx
from npuc.lang.tensor import NetworkNode, Operand, Tensor, constant

ShapeFunction = Callable[..., Sequence[tuple[Sequence[int], str]]]
"""From the tensors that a custom op takes to the shape and type of each of its results."""

_ONE_PER_AXIS = {"strides": 1, "dilations": 1, "kernel": None, "output_padding": 0}
"""Properties of windows that a single number may state for all axes, and their defaults."""


def apply(kind: str, name: str, operands: Sequence[Any], properties: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The results of an op. An operand is a tensor, something that becomes a constant, None, or a list of operands."""
    cls = TOP_OPS[f"top.{kind}"]
    dtype = _common_type(operands)
    given = [_operand(value, dtype, cls, index) for index, value in enumerate(operands)]
    stated = {key: value for key, value in properties.items() if value is not None}
    where = f"lang.{kind}" + (f" '{name}'" if name else "")
    try:
        op = cls.make(
            *(_values(value) for value in given), name=name, **_window(cls, given, stated, properties)
        )
        op.check()
    except (ShapeError, TypeError, ValueError, AttributeError, KeyError) as error:
        raise NetworkError(f"{error}", where=where, fix=_fix(given)) from error
    node = NetworkNode("op", name, op=op, operands=tuple(_flat(given)))
    return tuple(Tensor(value, node, index) for index, value in enumerate(op.results))


def custom(
    op_type: str,
    inputs: Sequence[Operand],
    results: Sequence[tuple[Sequence[int], str]] | ShapeFunction,
    *,
    domain: str = "npuc.custom",
    attributes: Mapping[str, Any] | None = None,
    name: str = "",
) -> tuple[Tensor, ...]:
    """An op that npuc does not know. `results` are the shape and type of each result, or a function that tells them.

    It runs where somebody provides it: see docs/plugins.md. With `domain=""` it is the ONNX operator of that name.

    >>> from npuc.lang import input
    >>> x = input("x", (1, 8))
    >>> custom("Twice", [x], lambda x: [(x.shape, x.dtype)])
    (<Tensor f32 [1, 8]>,)
    """
    tensors = [value if isinstance(value, Tensor) else constant(value) for value in inputs]
    try:
        stated = list(results(*tensors) if callable(results) else results)
        types = [tensor_type(tuple(int(size) for size in shape), dtype_of(kind)) for shape, kind in stated]
    except (TypeError, ValueError) as error:
        raise NetworkError(
            f"its results are not stated as shapes and types: {error}", where=f"custom op '{op_type}'"
        ) from error
    op = Onnx.create(
        operands=[tensor.value for tensor in tensors],
        result_types=types,
        properties={
            key: Onnx.attribute_of(key, value)
            for key, value in {
                "op_type": op_type,
                "domain": domain,
                "version": 1 if domain else _OPSET,
                "onnx_attributes": dict(attributes or {}),
                "arguments": list(range(len(tensors))),
                "captures": [],
                "outputs_used": list(range(len(types))),
                "reason": "a custom op",
            }.items()
        },
    )
    node = NetworkNode("op", name, op=op, operands=tuple(tensors))
    return tuple(Tensor(value, node, index) for index, value in enumerate(op.results))


_OPSET = 21
"""The version of ONNX's operators that `custom` means."""


def _common_type(operands: Sequence[Any]) -> str | None:
    """The type of the first tensor that holds numbers: a number beside it becomes a constant of the same type."""
    for value in _flat(operands):
        if isinstance(value, Tensor) and value.dtype != "i1":
            return value.dtype
    return None


def _operand(value: Any, dtype: str | None, cls: Any, index: int) -> Any:
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, (np.ndarray, np.number)):
        return constant(value)
    if isinstance(value, Sequence) and any(isinstance(item, (Tensor, np.ndarray)) for item in value):
        return [_operand(item, dtype, cls, index) for item in value]
    fraction = np.asarray(value).dtype.kind == "f" and (dtype or "").startswith(("i", "ui"))
    return constant(value, dtype=None if fraction else dtype)


def _flat(values: Sequence[Any]) -> list[Any]:
    operands: list[Any] = []
    for value in values:
        operands += _flat(value) if isinstance(value, list | tuple) else [] if value is None else [value]
    return operands


def _values(value: Any) -> Any:
    if isinstance(value, list):
        return [tensor.value for tensor in value]
    return None if value is None else value.value


def _window(
    cls: Any, given: Sequence[Any], stated: dict[str, Any], all_properties: Mapping[str, Any]
) -> dict[str, Any]:
    """One number for all spatial axes, pads that are alike before and after, and what is usual if left out."""
    if "strides" not in all_properties or "pads" not in all_properties:
        return stated
    rank = len(given[0].shape) - 2
    complete = dict(stated)
    for key, usual in _ONE_PER_AXIS.items():
        if key in all_properties:
            value = complete.get(key, usual)
            complete[key] = (value,) * rank if isinstance(value, int) else value
    pads = complete.get("pads", 0)
    pads = (pads,) * rank if isinstance(pads, int) else tuple(pads)
    complete["pads"] = pads * 2 if len(pads) == rank else pads
    return complete


def _fix(given: Sequence[Any]) -> str:
    shapes = ", ".join(f"{tensor.dtype} {list(tensor.shape)}" for tensor in _flat(given))
    return f"It was given {shapes or 'no tensors'}"
