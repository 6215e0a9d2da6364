"""How graph mode runs an op: `@handles(npu.Conv)` above a function that prepares a step.

A handler is called once an op, when the engine is built; what it returns is called once a run with the operands
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuc.arrays import Array
from npuc.ir import Graph
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import element_of, is_narrow_float, quant_of
from npuc.registries import Registry

Step = Callable[[list[Array]], list[Array]]
Handler = Callable[[Any, Graph, int], Step]


@dataclass(frozen=True)
class Entry:
    """A handler, and what its steps are like."""

    handler: Handler
    only_integer: bool = False
    floats: Callable[[Any], bool] | None = None
    recordable: bool = False
    in_place: bool = False


HANDLERS: Registry[type[TensorOp], Entry] = Registry("what graph mode runs the op", provider=__name__)
"""By the class of op."""


def handles(
    *ops: type[TensorOp],
    only_integer: bool = False,
    floats: Callable[[Any], bool] | None = None,
    recordable: bool = False,
    in_place: bool = False,
    replace: bool = False,
) -> Callable[[Handler], Handler]:
    """Register a handler.

    `only_integer` ones serve `top` ops on quantized tensors, and those of bf16 and f16 that `floats` is true for, and
    leave the rest to the CPU. The steps of `recordable`
    ones do nothing but what a tape can record (`npuc.kernels.tape`): they start faster. Those of
    `in_place` ones read their operand only as an argument of a call of the core, so that it may be the user's own array.
    """

    def register(function: Handler) -> Handler:
        HANDLERS.add(ops, Entry(function, only_integer, floats, recordable, in_place), replace=replace)
        return function

    return register


def find_handler(op: TensorOp) -> Handler | None:
    """The handler for an op, or None if ONNX Runtime has to run it."""
    entry = _entry(op)
    return None if entry is None else entry.handler


def _entry(op: TensorOp) -> Entry | None:
    entry = HANDLERS.get(type(op))
    if entry is None or not entry.only_integer or quant_of(op.operands[0]) is not None:
        return entry
    served = entry.floats is not None and is_narrow_float(element_of(op.operands[0])) and entry.floats(op)
    return entry if served else None


def always(op: Any) -> bool:
    """For handlers of `top` ops that serve bf16 and f16 as they do integers."""
    return True


def is_recordable(op: TensorOp) -> bool:
    """True if the op's step can be recorded on a tape."""
    entry = _entry(op)
    return entry is not None and entry.recordable


def reads_in_place(op: TensorOp) -> bool:
    """True if the op's recorded step can read an input of the program where it is."""
    entry = _entry(op)
    return entry is not None and entry.recordable and entry.in_place
