"""Ops on integers as ONNX nodes that give the same bits: how the CPU runs what the NPU cannot.

    @on_host(npu.Requant)
    def requant(op: npu.Requant, emit: Emitter) -> None: ...

A rule lives in a module of this package and is found by the class of its op. It raises `NoHostForm` with the reason where
nodes of ONNX Runtime would not be exact. Ops on plain numbers have the export rules of `npuc.export.onnx`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuc.ir import Graph, dtype_of, npu
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import quant_of
from npuc.registries import Registry

if TYPE_CHECKING:
    from npuc.export.onnx.emitter import Emitter

# onnx is loaded with the first rule, where something is left to the CPU.
Rule = Callable[[Any, "Emitter"], None]
Objection = Callable[[Any, Graph], str | None]


@dataclass(frozen=True)
class Entry:
    """How the CPU runs ops of a class."""

    rule: Rule | None
    """None if the export rule serves integers as it does reals."""
    objection: Objection = lambda op, graph: None


RULES: Registry[type[TensorOp], Entry] = Registry("a rule for the CPU of the op", provider=__name__)
"""By the class of op."""


def on_host(
    *ops: type[TensorOp], objection: Objection = lambda op, graph: None, replace: bool = False
) -> Callable[[Rule], Rule]:
    """Register a rule; `objection` gives the reason why an op of the class has no exact form, or None."""

    def register(rule: Rule) -> Rule:
        RULES.add(ops, Entry(rule, objection), replace=replace)
        return rule

    return register


def same_on_host(*ops: type[TensorOp]) -> None:
    """State that the export rules of some `top` ops serve integers as they do reals."""
    RULES.add(ops, Entry(None))


def host_rule(op: TensorOp) -> Rule | None:
    """The rule of an op on integers or short floats; None if its export rule serves."""
    if isinstance(op, TopOp) and quant_of(op.operands[0] if op.operands else op.results[0]) is None:
        return None
    entry = RULES.get(type(op))
    return None if entry is None else entry.rule


def reason_against_host(op: TensorOp, graph: Graph) -> str | None:
    """Why ONNX Runtime cannot run an op to the bit; None if it can."""
    values = (*op.operands, *op.results)
    if any(dtype_of(value.type).name == "bf16" for value in values):
        return "ONNX Runtime neither takes nor gives arrays of bf16"
    plain = not any(quant_of(value) is not None for value in values)
    if isinstance(op, TopOp) and plain:
        return None
    if isinstance(op, npu.Quantize | npu.Dequantize):
        return None
    entry = RULES.get(type(op))
    if entry is None:
        exact = "order of sums" if isinstance(op, npu.FloatOp) else "integer algorithm"
        return f"its {exact} has no exact form in ONNX"
    return entry.objection(op, graph)
