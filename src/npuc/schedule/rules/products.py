"""Products of two activations, or of one and a constant: the matrix engine."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, npu, shape_of
from npuc.program.instructions import Matmul, Stage
from npuc.schedule.layers import InstructionTemplate, Layer, Place, Rows, Tensor, Tile, aligned, layout
from npuc.schedule.rules import NotHere, Tensors
from npuc.schedule.rules.common import LIMITS, is_natural, result, second, source, stage, turned
from npuc.schedule.rules.weights import Linear


def matrices(op: npu.MatMul, graph: Graph, tensor: Tensors) -> Layer:
    """Two activations, or one and a constant, which lies among the constants; those whose matrices do not lie in natural
    order are brought into it in scratch memory."""
    x, b, y = tensor(op.x), tensor(op.weight), tensor(op.y)
    if op.bias is not None:
        raise NotHere("it is a product of two activations with a bias")
    batch = prod(y.shape[:-2])
    steps = []
    for one in (x, b):
        own = prod(one.shape[:-2])
        if own not in (1, batch):
            raise NotHere("its batch axes are broadcast in a way that one step cannot say")
        steps.append(0 if own == 1 and batch > 1 else one.shape[-1] * one.shape[-2])
    constants, count = _stage_of(op, graph)
    left, right = graph.constant(op.x), graph.constant(op.weight)
    inputs = tuple(one for one, array in ((x, left), (b, right)) if array is None)
    if left is not None:
        constants["x"] = np.ascontiguousarray(left.transpose(x.order))
    if right is not None:  # always read whole, so it is in natural order from the start
        constants["b"] = np.ascontiguousarray(right)
    places, size = layout(constants)
    from_x = ("in0", 0) if left is None else ("const", places["x"])
    from_b = (f"in{len(inputs) - 1}", 0) if right is None else ("const", places["b"])
    wide = x.shape[-1] * _largest(x) * _largest(b) >= 2**31
    x_natural, b_natural, y_natural = is_natural(x), right is not None or is_natural(b), is_natural(y)
    # Some rows of the matrices at a time: those of a picture, or of the only matrix.
    picture = x.is_picture and y.is_picture
    cuts = x.rows == y.rows == x.shape[-2] > 1 and (picture or (batch == 1 and not y.channels_last))
    all_natural = x_natural and b_natural and y_natural
    if all_natural and left is None and x.rows == y.rows == batch * y.shape[-2] > y.shape[-2]:
        return _by_matrix(op, (x, b, y), inputs, constants, stage(op, places, count), wide)
    natural = (0, 1, 2, 3)

    def need(rows: Rows) -> tuple[Rows, ...]:
        wanted = ((rows, left), ((0, b.rows), right))
        return tuple(one for one, array in wanted if array is None)

    def sizes(part: int) -> tuple[int, int]:
        """Bytes of the first operand and of the result."""
        return (part * x.row_size, part * y.row_size) if cuts else (x.size, y.size)

    def places_in_scratch(part: int) -> tuple[int, int, int]:
        """Where the second operand and the result are, and the end of both; the first is at 0."""
        x_size, y_size = sizes(part)
        at_b = 0 if x_natural else aligned(x_size)
        at_y = at_b + (0 if b_natural else aligned(b.size))
        return at_b, at_y, at_y + (0 if y_natural else aligned(y_size))

    def templates(tile: Tile) -> list[InstructionTemplate]:
        (r0, r1), i0 = tile.rows, tile.inputs[0][0] if left is None else 0
        part = r1 - r0
        rows = part if cuts else None
        offset = (r0 - tile.output[0]) * y.row_size
        given = from_x[0], from_x[1] + (r0 - i0) * x.row_size
        at_b, at_y, _ = places_in_scratch(part)
        a = given if x_natural else ("scratch", 0)
        from_second = from_b if b_natural else ("scratch", at_b)
        out = ("out0", offset) if y_natural else ("scratch", at_y)
        m = part if cuts else x.shape[-2]
        found = []
        if not x_natural:
            found.append(turned(x, natural, Place(*given), Place(*a), rows))
        if not b_natural:
            found.append(turned(b, natural, Place(*from_b), Place(*from_second)))
        product = Matmul(
            source=source(x, *a),
            second=second(b, Place(*from_second)),
            batch=batch,
            m=m,
            k=x.shape[-1],
            cols=y.shape[-1],
            a_step=steps[0] // x.shape[-2] * m,
            b_step=steps[1],
            transposed_b=int(op.transpose_b),
            wide=int(wide),
            result=result(y, out[1], out[0]),
            stage=stage(op, places, count),
        )
        x_size, y_size = sizes(part)
        operands = ((a[0], a[1], a[1] + x_size), (from_second[0], from_second[1], from_second[1] + b.size))
        reads = (*(span for span in operands if span[0] != "const"), ("const", 0, size))
        found.append(InstructionTemplate(product, reads, ((out[0], out[1], out[1] + y_size),)))
        if not y_natural:
            found.append(turned(y, natural, Place(*out), Place("out0", offset), rows, back=True))
        return found

    return Layer(
        name=y.name,
        kind="product",
        inputs=inputs,
        outputs=(y,),
        templates=templates,
        need=need if cuts else None,
        constants=lambda channels: constants,
        constant_size=lambda channels: size,
        scratch=lambda rows: places_in_scratch(rows[1] - rows[0])[2],
        source=op,
    )


def _by_matrix(
    op: npu.MatMul,
    tensors: tuple[Tensor, Tensor, Tensor],
    inputs: tuple[Tensor, ...],
    constants: dict[str, Array],
    finish: Stage,
    wide: bool,
) -> Layer:
    """A batch of products whose matrices lie one behind the other: some of them at a time."""
    x, b, y = tensors
    places, size = layout(constants)
    height, each = y.shape[-2], b.shape[-1] * b.shape[-2]
    step = each if b.size > each * b.itemsize else 0
    behind, rest = divmod(b.rows * height, y.rows)  # rows of a second operand
    apart = step > 0 and not rest

    def need(rows: Rows) -> tuple[Rows, ...]:
        first, last = rows[0] // height, rows[1] // height
        return (rows, (first * behind, last * behind) if apart else (0, b.rows))[: len(inputs)]

    def templates(tile: Tile) -> list[InstructionTemplate]:
        r0, r1 = tile.rows
        start, offset = (r0 - tile.inputs[0][0]) * x.row_size, (r0 - tile.output[0]) * y.row_size
        count, at = (r1 - r0) // height, r0 // height * step * b.itemsize
        slot = "in1" if len(inputs) > 1 else "const"
        at += -tile.inputs[1][0] * b.row_size if len(inputs) > 1 else places["b"]
        product = Matmul(
            source=source(x, "in0", start),
            second=second(b, Place(slot, at)),
            batch=count,
            m=height,
            k=x.shape[-1],
            cols=y.shape[-1],
            a_step=height * x.shape[-1],
            b_step=step,
            transposed_b=int(op.transpose_b),
            wide=int(wide),
            result=result(y, offset),
            stage=finish,
        )
        reads = [("in0", start, start + (r1 - r0) * x.row_size), ("const", 0, size)]
        if len(inputs) > 1:
            reads.insert(1, (slot, at, at + (count if step else 1) * each * b.itemsize))
        made = ("out0", offset, offset + (r1 - r0) * y.row_size)
        return [InstructionTemplate(product, tuple(reads), (made,))]

    return Layer(
        name=y.name, kind="product", inputs=inputs, outputs=(y,), templates=templates, need=need, granule=height,
        constants=lambda channels: constants, constant_size=lambda channels: size, source=op,
    )  # fmt: skip


def _largest(tensor: Any) -> int:
    low, high = LIMITS[tensor.dtype]
    return int(max(high - tensor.zero_point, tensor.zero_point - low))


def _stage_of(op: Any, graph: Graph) -> tuple[dict[str, Array], int]:
    """The parameters of an output stage as constants, and how many entries each has."""
    constants = Linear(op, graph, None).constants((0, shape_of(op.y)[-1]))
    return constants, max(array.size for array in constants.values())
