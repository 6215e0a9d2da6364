"""How graph mode runs an op: `@handles(npu.Conv)` above a function that prepares a step.

A handler is called once an op, when the engine is built; what it returns is called once a run with the operands
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from npuc.arrays import Array
from npuc.ir import Graph
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import element_of, is_narrow_float, quant_of
from npuc.registries import add_once

Step = Callable[[list[Array]], list[Array]]
Handler = Callable[[Any, Graph, int], Step]

_HANDLERS: dict[type[TensorOp], Handler] = {}
_ONLY_INTEGER: set[type[TensorOp]] = set()
_FLOATS: dict[type[TensorOp], Callable[[Any], bool]] = {}
_RECORDABLE: set[type[TensorOp]] = set()
_IN_PLACE: set[type[TensorOp]] = set()


def handles(
    *ops: type[TensorOp],
    only_integer: bool = False,
    floats: Callable[[Any], bool] | None = None,
    recordable: bool = False,
    in_place: bool = False,
) -> Callable[[Handler], Handler]:
    """Register a handler.

    `only_integer` ones serve `top` ops on quantized tensors, and those of bf16 and f16 that `floats` is true for, and
    leave the rest to the CPU. The steps of `recordable`
    ones do nothing but what a tape can record (`npuc.kernels.tape`): they start faster. Those of
    `in_place` ones read their operand only as an argument of a call of the core, so that it may be the user's own array.
    """

    def register(function: Handler) -> Handler:
        add_once(_HANDLERS, ops, function, "what graph mode runs the op")
        for op in ops:
            if only_integer:
                _ONLY_INTEGER.add(op)
            if floats is not None:
                _FLOATS[op] = floats
            if recordable:
                _RECORDABLE.add(op)
            if in_place:
                _IN_PLACE.add(op)
        return function

    return register


@cache
def _load() -> None:
    for module in sorted(iter_modules(__path__), key=lambda m: m.name):
        import_module(f"{__name__}.{module.name}")


def find_handler(op: TensorOp) -> Handler | None:
    """The handler for an op, or None if ONNX Runtime has to run it."""
    _load()
    if type(op) in _ONLY_INTEGER and quant_of(op.operands[0]) is None:
        floats = _FLOATS.get(type(op))
        if floats is None or not is_narrow_float(element_of(op.operands[0])) or not floats(op):
            return None
    return _HANDLERS.get(type(op))


def always(op: Any) -> bool:
    """For handlers of `top` ops that serve bf16 and f16 as they do integers."""
    return True


def is_recordable(op: TensorOp) -> bool:
    """True if the op's step can be recorded on a tape."""
    _load()
    return type(op) in _RECORDABLE and find_handler(op) is not None


def reads_in_place(op: TensorOp) -> bool:
    """True if the op's recorded step can read an input of the program where it is."""
    return is_recordable(op) and type(op) in _IN_PLACE
