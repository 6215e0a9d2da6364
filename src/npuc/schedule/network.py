"""A part of an Npu program as the scheduler wants it: layers in order, with what is fused fused and views seen through."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from npuc.ir import Graph, Value, dtype_of, npu, shape_of, top, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import element_of, is_narrow_float, quant_of
from npuc.program.instructions import Conv
from npuc.schedule.compression import StoredConstants
from npuc.schedule.constants import Constants
from npuc.schedule.joins import joined_outputs
from npuc.schedule.layer_order import heads_early
from npuc.schedule.layers import InstructionTemplate, Layer, LayerOp, Place, Region, Rows, Tensor, Tile
from npuc.schedule.matrices import batches_of_matrices
from npuc.schedule.rules import NotHere, find_rule
from npuc.schedule.rules.common import DTYPES
from npuc.schedule.rules.elementwise import TableOp
from npuc.schedule.rules.movement import turned_concat
from npuc.schedule.sparsity import with_sparse_weights
from npuc.schedule.views import turned_concats, views_of
from npuc.target import Target


@dataclass(frozen=True)
class Network:
    """Layers in the order in which they run."""

    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tensors: Mapping[Value, Tensor] = field(default_factory=dict)
    """Of all values of the program that are met here."""
    joined: Mapping[Tensor, tuple[Tensor, ...]] = field(default_factory=dict)
    """Outputs that no layer makes: results of layers are their parts, in DRAM one behind the other (`joins.py`)."""

    turned: Mapping[Value, tuple[int, ...]] = field(default_factory=dict)
    """Values whose tensors have other axes than the program says: for each axis of the tensor that of the value."""

    @cached_property
    def stored_results(self) -> Mapping[Tensor, tuple[Tensor, int]]:
        """What layers make of the outputs: each by its storage, with the output that it is in and the byte of that where it
        begins."""
        places: dict[Tensor, tuple[Tensor, int]] = {}
        for output in self.outputs:
            at = 0
            for part in self.joined.get(output, (output,)):
                places[part.storage] = output, at
                at += part.size
        return places

    @cached_property
    def stored(self) -> StoredConstants:
        """The constants as a machine with a weight decoder keeps them."""
        return StoredConstants()


def tensor_of(value: Value) -> Tensor:
    """The tensor of a value."""
    kind = quant_of(value)
    dtype = dtype_of(value.type)
    scale, zero = (kind.scale, kind.zero_point) if kind is not None else (0.0, 0)
    return Tensor(value_name(value), shape_of(value), dtype.carrier.name, dtype.itemsize, scale, zero)


def reason_against(op: TensorOp, graph: Graph) -> str | None:
    """Why an op cannot run on the machine that the instruction set drives; None if it can."""
    rule = find_rule(op)
    if rule is None:
        return "there is no instruction for it"
    plain = _plain_result(op) or npu.is_f32_on_npu(op) or npu.is_block_op(op)
    if any(not _computable(value) and not plain for value in op.results):
        return "it computes with real numbers"
    tensors = {value: tensor_of(value) for value in (*op.operands, *op.results)}
    try:
        layer = rule(op, graph, tensors.__getitem__)
    except NotHere as error:
        return str(error)
    if any(tensors[value] in layer.inputs and graph.constant(value) is not None for value in op.operands):
        return "an operand is a constant, and its instruction takes activations"
    return None if layer.inputs else "all of its operands are constants"


def _computable(value: Value) -> bool:
    """Whether a value is of integers with a scale, or of bf16 or f16."""
    return quant_of(value) is not None or is_narrow_float(element_of(value))


def _plain_result(op: TensorOp) -> bool:
    return isinstance(op, top.ArgReduce | top.TopK | npu.Reinterpret | npu.Cast | npu.Dequantize)


def build_network(
    graph: Graph,
    ops: Iterable[TensorOp],
    inputs: Iterable[Value],
    outputs: Iterable[Value],
    by_inputs: Collection[str] = (),
    target: Target | None = None,
) -> Network:
    """The layers of some ops of a program, in their order; those named in `by_inputs` are cut by input channels. Weights are
    sparse where that is faster on the target."""
    tensors: dict[Value, Tensor] = {}
    results = list(outputs)

    ops, given = list(ops), list(inputs)
    matrices = batches_of_matrices(ops, graph, {*given, *results})

    def fresh(value: Value) -> Tensor:
        plain = tensor_of(value)
        return replace(plain, matrices=True) if value in matrices else plain

    def tensor(value: Value) -> Tensor:
        if value not in tensors:
            tensors[value] = fresh(value)
        return tensors[value]

    inside = set(ops)
    layers: list[Layer] = []
    producers: dict[Value, int] = {}
    kept = set(results)
    turned = turned_concats(ops, inside, kept, graph, fresh)
    parts = {op: part for concat in turned for op, part in concat.parts.items()}
    by_permute = {concat.permute: concat for concat in turned}
    by_concat = {concat.concat for concat in turned}
    for op in ops:
        if op in by_concat or all(value in tensors for value in op.results):
            continue  # with the permute behind, or a view, with the op before
        if op in parts:
            tensors[op.results[0]] = parts[op]
            if isinstance(op, top.Reshape):
                tensors[op.y] = replace(parts[op], view_of=tensor(op.x))
                continue
        if views := views_of(op, inside, given, kept, tensor, fresh):
            tensors.update(views)
            continue
        if isinstance(op, top.Permute) and op in by_permute:
            layer = turned_concat(by_permute[op].concat, tensor(op.y), by_permute[op].axis, tensor)
        else:
            rule = find_rule(op)
            assert rule is not None
            layer = rule(op, graph, tensor)
        if target is not None:
            layer = with_sparse_weights(layer, target)
        if layer.name in by_inputs:
            layer = layer.by_inputs or layer
        if isinstance(op, npu.Table) and (at := producers.get(op.x)) is not None and op.x not in kept:
            before = layers[at]
            only = all(use.operation is op for use in op.x.uses)
            if only and before.kind in ("conv", "deconv", "matmul") and _fits_table(before, op):
                layers[at] = _with_table(before, layer)
                producers[op.y] = at
                continue
        producers.update(dict.fromkeys(op.results, len(layers)))
        layers.append(layer)
    assert inside
    network = Network(tuple(layers), tuple(map(tensor, given)), tuple(map(tensor, results)), tensors)
    joined = joined_outputs(network.layers, network.inputs, network.outputs)
    rest = heads_early([layer for layer in layers if layer.outputs[0] not in joined])
    orders = {op.results[0]: tuple(concat.permute.order) for concat in turned for op in concat.parts}
    return replace(network, layers=rest, joined=joined, turned=orders)


def _fits_table(layer: Layer, op: npu.Table) -> bool:
    conv = layer.source
    return (
        isinstance(conv, npu.Conv | npu.Deconv | npu.MatMul)
        and op.x is conv.y  # not one that goes through a table already
        and dtype_of(op.y.type).itemsize == dtype_of(op.x.type).itemsize
        and shape_of(op.table) in ((256,), (513,))
    )


@dataclass(frozen=True)
class WithTableOp(LayerOp):
    """A layer of the matrix engine whose outputs go through a table."""

    computed: LayerOp
    y: Tensor
    table: Constants
    """`table`, which lies behind the constants of the layer."""

    @property
    def by_rows(self) -> bool:
        """As without the table."""
        return self.computed.by_rows

    @property
    def ascending(self) -> bool:
        """As without the table."""
        return self.computed.ascending

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """As without the table."""
        return self.computed.operand_rows(rows)

    def scratch(self, rows: Rows) -> int:
        """As without the table."""
        return self.computed.scratch(rows)

    def constants(self, channels: Rows) -> Constants:
        """Those of the layer, then the table."""
        return Constants({**self.computed.constants(channels), **self.table})

    def constant_size(self, channels: Rows) -> int:
        """Bytes of them."""
        return self.computed.constant_size(channels) + self.table.size

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """As without the table."""
        return self.computed.operand_regions(region)

    def part(self, region: Region) -> WithTableOp:
        """The part of the layer, with the same table."""
        return replace(self, computed=self.computed.part(region), y=self.y.part(region))

    def constant_channels(self, channels: Rows) -> Rows:
        """As without the table."""
        return self.computed.constant_channels(channels)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """Those of the layer, with the table in each convolution."""
        place = self.computed.constant_size(tile.channels)
        return [self._through(template, place) for template in self.computed.templates(tile)]

    def _through(self, template: InstructionTemplate, place: int) -> InstructionTemplate:
        conv = template.instruction
        if not isinstance(conv, Conv):  # a copy that brings operands or results into order
            return template
        result = replace(conv.result, y_dtype=DTYPES[self.y.dtype])
        conv = replace(conv, table=Place("const", place), result=result)
        block = ("const", 0, place + self.table.size)
        reads = tuple(block if span[0] == "const" else span for span in template.reads)
        return InstructionTemplate(conv, reads, template.writes)


def _with_table(layer: Layer, table: Layer) -> Layer:
    """A layer of the matrix engine whose outputs go through the table of the next."""
    assert isinstance(table.op, TableOp)
    y = table.op.y
    return replace(layer, name=y.name, outputs=(y,), op=WithTableOp(layer.op, y, table.op.table))
