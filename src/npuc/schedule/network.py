"""A part of an Npu program as the scheduler wants it: layers in order, with what is fused fused and views seen through."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from npuc.arrays import Array
from npuc.ir import Graph, Value, dtype_of, npu, shape_of, top, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import quant_of
from npuc.program.instructions import Conv
from npuc.schedule.compression import StoredConstants
from npuc.schedule.layers import InstructionTemplate, Layer, Place, Rows, Tensor, Tile, layout
from npuc.schedule.matrices import batches_of_matrices
from npuc.schedule.rules import NotHere, find_rule
from npuc.schedule.rules.common import DTYPES
from npuc.schedule.views import views_of

_TILES = 1024
"""Tiles of a layer whose instructions and operands are remembered."""


@dataclass(frozen=True)
class Network:
    """Layers in the order in which they run."""

    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tensors: Mapping[Value, Tensor] = field(default_factory=dict)
    """Of all values of the program that are met here."""

    @cached_property
    def stored(self) -> StoredConstants:
        """The constants as a machine with a weight decoder keeps them."""
        return StoredConstants()


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
    tensors = {value: tensor_of(value) for value in (*op.operands, *op.results)}
    try:
        layer = rule(op, graph, tensors.__getitem__)
    except NotHere as error:
        return str(error)
    if any(tensors[value] in layer.inputs and graph.constant(value) is not None for value in op.operands):
        return "an operand is a constant, and its instruction takes activations"
    return None if layer.inputs else "all of its operands are constants"


def _plain_result(op: TensorOp) -> bool:
    return isinstance(op, top.ArgReduce | npu.Reinterpret)


def build_network(
    graph: Graph,
    ops: Iterable[TensorOp],
    inputs: Iterable[Value],
    outputs: Iterable[Value],
    by_inputs: Collection[str] = (),
) -> Network:
    """The layers of some ops of a program, in their order; those named in `by_inputs` are cut by input channels."""
    tensors: dict[Value, Tensor] = {}
    wanted = list(outputs)

    ops, given = list(ops), list(inputs)
    matrices = batches_of_matrices(ops, graph, {*given, *wanted})

    def fresh(value: Value) -> Tensor:
        one = tensor_of(value)
        return replace(one, matrices=True) if value in matrices else one

    def tensor(value: Value) -> Tensor:
        if value not in tensors:
            tensors[value] = fresh(value)
        return tensors[value]

    inside = set(ops)
    layers: list[Layer] = []
    made: dict[Value, int] = {}
    kept = set(wanted)
    for op in ops:
        if all(value in tensors for value in op.results):
            continue  # a view, with the op before
        if views := views_of(op, inside, given, kept, tensor, fresh):
            tensors.update(views)
            continue
        rule = find_rule(op)
        assert rule is not None
        layer = rule(op, graph, tensor)
        if layer.name in by_inputs:
            layer = layer.by_inputs or layer
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
    # A search asks for the same tiles over and over.
    remembered = lru_cache(_TILES)
    layers = [
        replace(layer, templates=remembered(layer.templates), need=layer.need and remembered(layer.need))
        for layer in layers
    ]
    return Network(tuple(layers), tuple(map(tensor, given)), tuple(map(tensor, wanted)), tensors)


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

    def templates(tile: Tile) -> list[InstructionTemplate]:
        places, size = layout(constants(tile.channels))
        return [through(one, places["table"], size) for one in layer.templates(tile)]

    def through(one: InstructionTemplate, place: int, size: int) -> InstructionTemplate:
        conv = one.instruction
        if not isinstance(conv, Conv):  # a copy that brings operands or results into order
            return one
        result = replace(conv.result, y_dtype=DTYPES[y.dtype])
        conv = replace(conv, table=Place("const", place), result=result)
        reads = tuple(("const", 0, size) if slot == "const" else (slot, a, b) for slot, a, b in one.reads)
        return InstructionTemplate(conv, reads, one.writes)

    return replace(
        layer,
        name=y.name,
        outputs=(y,),
        templates=templates,
        constants=constants,
        constant_size=lambda channels: layout(constants(channels))[1],
    )
