"""Ops on integers as ONNX nodes that give the same bits: how the CPU runs what the NPU cannot.

    @on_host(npu.Requant)
    def requant(op: npu.Requant, emit: Emitter) -> None: ...

A rule lives in a module of this package and is found by the class of its op. It raises `NoHostForm` with the reason where
nodes of ONNX Runtime would not be exact. Ops on plain numbers have the export rules of `npuc.export.onnx`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from npuc.export.onnx.emitter import Emitter
from npuc.ir import Graph, npu
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import quant_of
from npuc.registries import add_once

Rule = Callable[[Any, Emitter], None]
Objection = Callable[[Any, Graph], str | None]

_RULES: dict[type[TensorOp], tuple[Rule, Objection]] = {}
_AS_EXPORTED: set[type[TensorOp]] = set()


def on_host(*ops: type[TensorOp], objection: Objection = lambda op, graph: None) -> Callable[[Rule], Rule]:
    """Register a rule; `objection` gives the reason why an op of the class has no exact form, or None."""

    def register(rule: Rule) -> Rule:
        add_once(_RULES, ops, (rule, objection), "a rule for the CPU of the op")
        return rule

    return register


def same_on_host(*ops: type[TensorOp]) -> None:
    """State that the export rules of some `top` ops serve integers as they do reals."""
    _AS_EXPORTED.update(ops)


@cache
def _load() -> None:
    for module in sorted(iter_modules(__path__), key=lambda m: m.name):
        import_module(f"{__name__}.{module.name}")


def host_rule(op: TensorOp) -> Rule | None:
    """The rule of an op on integers or short floats; None if its export rule serves."""
    _load()
    if isinstance(op, TopOp) and quant_of(op.operands[0] if op.operands else op.results[0]) is None:
        return None
    found = _RULES.get(type(op))
    return None if found is None else found[0]


def reason_against_host(op: TensorOp, graph: Graph) -> str | None:
    """Why ONNX Runtime cannot run an op to the bit; None if it can."""
    _load()
    plain = not any(quant_of(value) is not None for value in (*op.operands, *op.results))
    if isinstance(op, TopOp) and plain:
        return None
    if isinstance(op, npu.Quantize | npu.Dequantize) or type(op) in _AS_EXPORTED:
        return None
    found = _RULES.get(type(op))
    if found is None:
        return "its integer algorithm has no exact form in ONNX"
    return found[1](op, graph)
