"""Float ops at the ends of a network: pre- and post-processing that a model brings along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from npuc.ir import Graph, npu, result_names, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import quant_of

Side = Literal["before", "after"]

_SHOWN = 5
"""Kinds of ops that are named."""


def sides(graph: Graph, ops: Sequence[TensorOp]) -> dict[str, Side]:
    """The float ops that no integer op precedes (`before`) or follows (`after`), by the name of their first result.

    A network without any integer op has no ends.
    """
    whole = [op for op in ops if _integer(op)]
    if not whole:
        return {}
    behind: set[Any] = set()
    for op in ops:
        if _integer(op) or any(value.owner in behind for value in op.operands):
            behind.add(op)
    ahead: set[Any] = set()
    for op in reversed(ops):
        if _integer(op) or any(use.operation in ahead for value in op.results for use in value.uses):
            ahead.add(op)
    side_of: dict[str, Side] = {}
    for op in ops:
        if _integer(op) or isinstance(op, npu.Quantize | npu.Dequantize):
            continue
        if op not in behind and op in ahead:
            side_of[result_names(op)[0]] = "before"
        elif op in behind and op not in ahead:
            side_of[result_names(op)[0]] = "after"
    return side_of


def words_for(ops: Iterable[TensorOp]) -> str:
    """Ops at an end by their kinds: what they are for is not known.

    >>> words_for([])
    ''
    """
    kinds = Counter(op.op_type if isinstance(op, top.Onnx) else op.name.split(".", 1)[1] for op in ops)
    shown = [f"{number} {kind}" for kind, number in kinds.most_common(_SHOWN)]
    others = sum(kinds.values()) - sum(number for _, number in kinds.most_common(_SHOWN))
    return ", ".join(shown + ([f"{others} more"] if others else []))


def _integer(op: TensorOp) -> bool:
    if isinstance(op, npu.Quantize | npu.Dequantize):
        return False
    return any(quant_of(value) is not None for value in (*op.operands, *op.results))
