"""The text of `ops.py`: one typed function an op of the `top` dialect, so that editors and type checkers know them."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterator
from typing import Any

from npuc.ir import top as _registered  # noqa: F401
from npuc.ir.definition import TOP_OPS

_LEFT_OUT = ("top.weight", "top.onnx")
"""`constant` and `custom` make these."""
_HEAD = '''"""The ops of the `top` dialect as functions. Written by `make docs`: do not edit, change the ops.

`strides`, `dilations`, `pads`, `kernel` and `output_padding` may be one number for all spatial axes; pads of one number
an axis serve both ends. What is left out has the value that is usual: strides of 1, no padding. `name` names the layer.
"""

# ruff: noqa: RUF100, D301, E501

from __future__ import annotations

from collections.abc import Sequence

from npuc.lang.apply import apply
from npuc.lang.tensor import Operand, Tensor
'''
_TYPES = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "tuple[int, ...]": "int | Sequence[int]",
    "tuple[float, ...]": "Sequence[float]",
    "tuple[str, ...]": "Sequence[str]",
}
_USUAL = ("strides", "pads", "dilations", "output_padding")


def ops_source() -> str:
    """The whole module."""
    names = sorted(name for name in TOP_OPS if name not in _LEFT_OUT)
    functions = [_function_name(name) for name in names]
    listed = "".join(f'    "{name}",\n' for name in sorted(functions))
    bodies = "\n\n".join("\n".join(_function(name)) for name in names)
    return f"{_HEAD}\n__all__ = [\n{listed}]\n\n\n{bodies}\n"


def _function_name(name: str) -> str:
    short = name.removeprefix("top.")
    return f"{short}_" if keyword.iskeyword(short) else short


def _function(name: str) -> Iterator[str]:
    op = TOP_OPS[name]
    definition = op.get_irdl_definition()
    operands = [(key, _arity(kind)) for key, kind in definition.operands]
    many = any(_arity(kind) == "many" for _, kind in definition.results)
    parameters = []
    for key, arity in operands:
        kind = {"one": "Operand", "optional": "Operand | None", "many": "Sequence[Operand]"}[arity]
        parameters.append(f"{key}: {kind}" + (" = None" if arity == "optional" else ""))
    required, defaulted = [], []
    windowed = {"strides", "pads"} <= set(definition.properties)
    keys = [key for key in definition.properties if key != "operandSegmentSizes"]
    for key in keys:
        kind = _TYPES[property_type(op, key)]
        if windowed and key in _USUAL:
            defaulted.append(f"{key}: {kind} | None = None")
        elif key in op.DEFAULTS:
            defaulted.append(f"{key}: {kind} = {_literal(op.DEFAULTS[key])}")
        else:
            required.append(f"{key}: {kind}")
    parameters += ["*", *required, *defaulted, 'name: str = ""']
    result = "tuple[Tensor, ...]" if many else "Tensor"
    yield f"def {_function_name(name)}("
    for parameter in parameters:
        yield f"    {parameter},"
    yield f") -> {result}:"
    doc = inspect.cleandoc(op.__doc__ or "").replace("\\", "\\\\")
    lines = doc.splitlines()
    if len(lines) == 1:
        yield f'    """{lines[0]}"""'
    else:
        yield f'    """{lines[0]}'
        yield from (f"    {line}" if line else "" for line in lines[1:])
        yield '    """'
    stated = ", ".join(f'"{key}": {key}' for key in keys)
    call = (
        f'apply("{name.removeprefix("top.")}", name, [{", ".join(key for key, _ in operands)}], {{{stated}}})'
    )
    yield f"    return {call}{'' if many else '[0]'}"


def _arity(kind: Any) -> str:
    name = type(kind).__name__
    return "optional" if name.startswith("Opt") else "many" if name.startswith("Var") else "one"


def property_type(op: type[Any], key: str) -> str:
    """The Python type of a property of an op, as its class states it."""
    for base in op.__mro__:
        kind = vars(base).get("__annotations__", {}).get(key)
        if kind is not None:
            return (
                kind.__name__ if isinstance(kind, type) and not getattr(kind, "__args__", None) else str(kind)
            )
    raise AssertionError(f"{op.name}.{key} has no type")


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return "()" if value in ((), []) else repr(value)
