"""A part of an Npu program as the scheduler wants it: layers in order, with what is fused fused and views seen through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npuc.ir import Graph, Value, dtype_of, npu, shape_of, top, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import quant_of
from npuc.schedule.layers import Draft, Layer, Piece, Place, Rows, Tensor, layout
from npuc.schedule.rules import NotHere, find_rule
from npuc.schedule.rules.common import DTYPES
from npuc.schedule.rules.movement import is_view

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Network:
    """Layers in the order in which they run."""

    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def tensor_of(value: Value) -> Tensor:
    """The tensor of a value."""
    kind = quant_of(value)
    dtype = dtype_of(value.type)
    scale, zero = (kind.scale, kind.zero_point) if kind is not None else (0.0, 0)
    return Tensor(value_name(value), shape_of(value), dtype.name, dtype.itemsize, scale, zero)


def reason_against(op: TensorOp, graph: Graph) -> str | None:
    """Why an op cannot run on the machine that the instruction set drives; None if it can."""
    rule = find_rule(op)
    if rule is None:
        return "there is no instruction for it"
    if any(quant_of(value) is None and not _plain_result(op) for value in op.results):
        return "it computes with real numbers"
    try:
        rule(op, graph, tensor_of)
    except NotHere as error:
        return str(error)
    return None


def _plain_result(op: TensorOp) -> bool:
    return isinstance(op, top.ArgReduce | npu.Reinterpret)


def build_network(
    graph: Graph, ops: Iterable[TensorOp], inputs: Iterable[Value], outputs: Iterable[Value]
) -> Network:
    """The layers of some ops of a program, in their order."""
    tensors: dict[Value, Tensor] = {}
    wanted = list(outputs)

    def tensor(value: Value) -> Tensor:
        if value not in tensors:
            tensors[value] = tensor_of(value)
        return tensors[value]

    ops = list(ops)
    inside = set(ops)
    layers: list[Layer] = []
    made: dict[Value, int] = {}
    kept = set(wanted)
    for op in ops:
        if isinstance(op, top.Reshape | npu.Reinterpret) and op.results[0] not in kept:
            source, target = tensor(op.operands[0]), tensor_of(op.results[0])
            if isinstance(op, npu.Reinterpret) or is_view(source, target):
                tensors[op.results[0]] = replace(target, view_of=source)
                continue
        rule = find_rule(op)
        assert rule is not None
        layer = rule(op, graph, tensor)
        if isinstance(op, npu.Table) and (at := made.get(op.x)) is not None and op.x not in kept:
            before = layers[at]
            only = all(use.operation is op for use in op.x.uses)
            if only and before.kind in ("conv", "deconv", "matmul") and _fits_table(before, op):
                layers[at] = _with_table(before, layer, graph.constant(op.table))
                made[op.y] = at
                continue
        made.update(dict.fromkeys(op.results, len(layers)))
        layers.append(layer)
    assert inside
    return Network(tuple(layers), tuple(map(tensor, inputs)), tuple(map(tensor, wanted)))


def _fits_table(layer: Layer, op: npu.Table) -> bool:
    conv = layer.source
    return (
        isinstance(conv, npu.Conv | npu.Deconv | npu.MatMul)
        and op.x is conv.y  # not one that goes through a table already
        and dtype_of(op.y.type).itemsize == dtype_of(op.x.type).itemsize
    )


def _with_table(layer: Layer, table: Layer, entries: Array | None) -> Layer:
    """A layer of the matrix engine whose outputs go through a table."""
    assert entries is not None
    y = table.outputs[0]

    def constants(channels: Rows) -> Mapping[str, Array]:
        return {**layer.constants(channels), "table": entries}

    def draft(piece: Piece) -> list[Draft]:
        places, size = layout(constants(piece.channels))
        return [through(one, places["table"], size) for one in layer.draft(piece)]

    def through(one: Draft, place: int, size: int) -> Draft:
        if one.opcode != "conv":  # a copy that brings operands or results into order
            return one
        fields = {**one.fields, "table": Place("const", place), "y_dtype": DTYPES[y.dtype]}
        reads = tuple(("const", 0, size) if slot == "const" else (slot, a, b) for slot, a, b in one.reads)
        return replace(one, fields=fields, reads=reads)

    return replace(
        layer,
        name=y.name,
        outputs=(y,),
        draft=draft,
        constants=constants,
        constant_size=lambda channels: layout(constants(channels))[1],
    )
