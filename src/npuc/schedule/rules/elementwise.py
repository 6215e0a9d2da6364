"""Elementwise arithmetic, tables and pools: the vector engine."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.ir import Graph, npu, top
from npuc.schedule.layers import Draft, Layer, Piece, Place, Rows, Tensor, layout
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import (
    DTYPES,
    KINDS,
    LIMITS,
    batch_rows,
    pictures_of,
    result,
    source,
    stage,
    stage_constants,
    window_rows,
)

Array = np.ndarray[Any, Any]


@layers_as(npu.Add, npu.Sub, npu.Mul, top.Max, top.Min)
def binary(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Operands are broadcast by strides; a constant operand lies among the constants."""
    y = tensor(op.y)
    constants: dict[str, Array] = {}
    operands: list[tuple[str, Tensor]] = []
    inputs: list[Tensor] = []
    for letter, value in (("a", op.a), ("b", op.b)):
        one = tensor(value)
        array = graph.constant(value)
        if array is None:
            operands.append((f"in{len(inputs)}", one))
            inputs.append(one)
        else:
            order = one.order
            constants[letter] = np.ascontiguousarray(array.transpose(order))
            operands.append((letter, one))
    name = "mul" if isinstance(op, npu.Mul) else "minmax" if isinstance(op, top.Max | top.Min) else "add"
    if name == "mul":
        constants.update(stage_constants(op))
    places, size = layout(constants)
    views = [_view(one, y) for _, one in operands]
    shape = y.memory_shape
    groups = _collapsed(shape, [strides for strides in views])
    if len(groups) > 4:
        raise NotHere("its operands are broadcast along too many axes")
    cuts = y.rows > 1 and all(_moves(one, y) or _repeats(one, y) for _, one in operands)

    def at_row(one: Tensor, row: int, base: int) -> int:
        return (row - base) * one.row_size if one.rows > 1 and _moves(one, y) else 0

    def need(rows: Rows) -> tuple[Rows, ...]:
        return tuple(rows if _moves(one, y) else (0, one.rows) for one in inputs)

    def draft(piece: Piece) -> list[Draft]:
        (r0, r1) = piece.rows if cuts else (0, 1)
        offset = (r0 - piece.output[0]) * y.row_size if cuts else 0
        if cuts and not y.channels_last:
            part: tuple[int, ...] = (r1 - r0, shape[-1])
            sizes, strides = _merged(part, [_two(one, y) for _, one in operands])
        else:
            # Rows of a batch lie one behind the other; an axis of one element has no stride.
            rows_of = (1, r1 - r0) if shape[1] > 1 else (r1 - r0, 1)
            part = (*rows_of, *shape[2:]) if cuts else shape
            sizes, strides = _merged(part, views)
        fields: dict[str, Any] = {"size": _four(sizes, 1)}
        reads: list[tuple[str, int, int]] = [("const", 0, size)] if size else []
        for letter, (slot, one), merged in zip("ab", operands, strides, strict=True):
            if slot in ("a", "b"):
                rows_in = r0 if cuts and _moves(one, y) else 0
                place = Place("const", places[slot] + rows_in * (one.row_size if one.rows > 1 else 0))
            else:
                index = int(slot[2:])
                start = at_row(one, r0, piece.inputs[index][0]) if cuts else 0
                place = Place(slot, start)
                whole = not (cuts and one.rows > 1 and _moves(one, y))
                reads.append((slot, start, one.size if whole else start + (r1 - r0) * one.row_size))
            key = "x" if letter == "a" else "b"
            fields |= {key: place, f"{key}_dtype": DTYPES[one.dtype], f"{key}_zero_point": one.zero_point}
            fields[f"{letter}_stride"] = _four(merged, 0)
        fields |= result(y, offset)
        if name == "minmax":
            del fields["b_dtype"], fields["b_zero_point"]
            low, high = LIMITS[y.dtype]
            fields |= {"larger": int(isinstance(op, top.Max)), "lo": low, "hi": high}
        elif name == "mul":
            fields |= stage(op, places, 1)
        else:
            left, m_a, s_a, m_b, s_b, m, s = op.parameters
            scales = np.array(op.factors or (0.0, 0.0), "<f4").view("<i4").tolist()
            float_kind = op.kind == "float"
            fields |= {
                "kind": KINDS[op.kind], "subtract": int(isinstance(op, npu.Sub)), "left": left,
                "multiplier": (*scales, 0) if float_kind else (m_a, m_b, m), "shift": (s_a, s_b, s),
                "zero_point": op.to.zero_point, "lo": op.lo, "hi": op.hi,
            }  # fmt: skip
        length = prod(part) * y.itemsize
        return [Draft(name, "vector", fields, tuple(reads), (("out0", offset, offset + length),))]

    alike = tuple(
        index for index, one in enumerate(inputs) if one.memory_shape == shape and one.itemsize == y.itemsize
    )
    return Layer(
        name=y.name, kind=op.name.split(".")[1], inputs=tuple(inputs), outputs=(y,), draft=draft,
        need=need if cuts else None, constants=lambda channels: constants, constant_size=lambda channels: size,
        in_place=alike, source=op,
    )  # fmt: skip


def _moves(one: Tensor, y: Tensor) -> bool:
    """Whether an operand has the rows of the result, rather than one for all."""
    if not y.channels_last:
        return one.shape == y.shape
    return len(one.shape) == 4 and one.shape[0::2] == y.shape[0::2] and y.rows > 1


def _repeats(one: Tensor, y: Tensor) -> bool:
    """Whether an operand is the same for every row."""
    if not y.channels_last:
        return prod(one.shape[:-1]) == 1
    return len(one.shape) < 2 or (one.shape[-2] == 1 and (len(one.shape) < 4 or one.shape[0] == 1))


def _two(one: Tensor, y: Tensor) -> list[int]:
    """The strides of an operand along rows and elements of a row."""
    inner = 1 if one.shape and one.shape[-1] > 1 else 0
    return [y.shape[-1] if one.shape == y.shape else 0, inner]


def _view(one: Tensor, y: Tensor) -> list[int]:
    """The strides of an operand along the axes of the result in memory order, in elements."""
    rank = len(y.shape)
    dense: dict[int, int] = {}
    step = 1
    for axis in reversed(one.order):
        dense[axis + rank - len(one.shape)] = step if one.shape[axis] > 1 else 0
        step *= one.shape[axis]
    return [dense.get(axis, 0) for axis in y.order]


def _merged(shape: tuple[int, ...], views: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Axes that lie one in the other for all operands become one."""
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for axis, size in enumerate(shape):
        if size == 1 and sizes:
            continue
        fits = sizes and all(
            list_[-1] == view[axis] * size if size > 1 else True
            for list_, view in zip(strides, views, strict=True)
        )
        if fits:
            sizes[-1] *= size
            for list_, view in zip(strides, views, strict=True):
                list_[-1] = view[axis]
        else:
            sizes.append(size)
            for list_, view in zip(strides, views, strict=True):
                list_.append(view[axis])
    return sizes, strides


def _collapsed(shape: tuple[int, ...], views: list[list[int]]) -> list[int]:
    return _merged(shape, views)[0]


def _four(values: list[int], fill: int) -> tuple[int, ...]:
    return (*(fill,) * (4 - len(values)), *values)


def _unary(
    op: Any,
    graph: Graph,
    tensor: Tensors,
    name: str,
    constants: dict[str, Array],
    fields: Any,
    by_row: bool = True,
) -> Layer:
    """A layer that works on dense elements, any rows of them at a time unless `by_row` is false."""
    x, y = tensor(op.x), tensor(op.y)
    places, size = layout(constants)
    cuts = by_row and x.rows > 1 and x.shape == y.shape

    def draft(piece: Piece) -> list[Draft]:
        r0, r1 = piece.rows if cuts else (0, 1)
        start = (r0 - piece.inputs[0][0]) * x.row_size if cuts else 0
        offset = (r0 - piece.output[0]) * y.row_size if cuts else 0
        elements = (r1 - r0) * (x.row_size if cuts else x.size) // x.itemsize
        made = {**source(x, offset=start), **result(y, offset), **fields(places, elements)}
        reads = (("in0", start, start + elements * x.itemsize), *((("const", 0, size),) if size else ()))
        return [Draft(name, "vector", made, reads, (("out0", offset, offset + elements * y.itemsize),))]

    return Layer(
        name=y.name, kind=op.name.removeprefix("npu."), inputs=(x,), outputs=(y,), draft=draft,
        need=(lambda rows: (rows,)) if cuts else None,
        constants=lambda channels: constants, constant_size=lambda channels: size,
        in_place=(0,) if x.itemsize == y.itemsize else (), source=op,
    )  # fmt: skip


@layers_as(npu.Requant)
def requant(op: npu.Requant, graph: Graph, tensor: Tensors) -> Layer:
    """Another scale or type."""
    constants = stage_constants(op)
    return _unary(
        op, graph, tensor, "requant", constants, lambda places, n: {"elements": n, **stage(op, places, 1)}
    )


@layers_as(npu.Table)
def table(op: npu.Table, graph: Graph, tensor: Tensors) -> Layer:
    """One table."""
    entries = graph.constant(op.table)
    assert entries is not None
    return _unary(
        op, graph, tensor, "table", {"table": entries},
        lambda places, n: {"outer": n, "channels": 1, "inner": 1, "table": Place("const", places["table"])},
    )  # fmt: skip


@layers_as(npu.ChannelTable)
def channel_table(op: npu.ChannelTable, graph: Graph, tensor: Tensors) -> Layer:
    """A table for each channel, which is innermost in memory for rank 4."""
    entries = graph.constant(op.table)
    assert entries is not None
    x = tensor(op.x)
    inner = 1 if len(x.shape) == 4 else prod(x.shape[2:])
    return _unary(
        op, graph, tensor, "table", {"table": entries},
        lambda places, n: {
            "outer": n // (x.shape[1] * inner), "channels": x.shape[1], "inner": inner,
            "table": Place("const", places["table"]),
        },
        by_row=len(x.shape) != 3 and len(x.shape) < 5,  # of those ranks a row has a channel of its own
    )  # fmt: skip


@layers_as(npu.Reinterpret)
def reinterpret(op: npu.Reinterpret, graph: Graph, tensor: Tensors) -> Layer:
    """The same bytes: a copy."""
    x = tensor(op.x)
    return copied(op, x, tensor(op.y))


def copied(op: Any, x: Tensor, y: Tensor) -> Layer:
    """The bytes of x as they are."""
    elements = x.size // x.itemsize

    def draft(piece: Piece) -> list[Draft]:
        fields = {
            "x": Place("in0"), "y": Place("out0"), "bytes": x.itemsize, "size": (1, 1, 1, 1, 1, elements),
            "x_stride": (0, 0, 0, 0, 0, 1), "y_stride": (0, 0, 0, 0, 0, 1),
        }  # fmt: skip
        return [Draft("copy", "vector", fields, (("in0", 0, x.size),), (("out0", 0, y.size),))]

    return Layer(name=y.name, kind="copy", inputs=(x,), outputs=(y,), draft=draft, in_place=(), source=op)


@layers_as(npu.AvgPool, top.MaxPool)
def pool(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Windows over rows and columns."""
    x, y = tensor(op.x), tensor(op.y)
    if len(x.shape) != 4:
        raise NotHere("it is not a pool over pictures")
    average = isinstance(op, npu.AvgPool)
    kernel, strides, pads = op.kernel, op.strides, op.pads
    dilations = (1, 1) if average else tuple(op.dilations)
    constants = stage_constants(op) if average else {}
    places, size = layout(constants)
    channels, height, width, out_h = *x.shape[1:], y.shape[2]
    count = max((array.size for array in constants.values()), default=0)

    def of_picture(rows: Rows) -> Rows:
        return window_rows(rows, height, kernel[0], strides[0], dilations[0], pads[0])

    def need(rows: Rows) -> tuple[Rows, ...]:
        return (batch_rows(rows, out_h, height, of_picture),)

    def draft(piece: Piece) -> list[Draft]:
        return [one(piece, *part) for part in pictures_of(piece.rows, out_h)]

    def one(piece: Piece, picture: int, n: int, rows: Rows) -> Draft:
        r0, r1 = rows
        a0, a1 = (0, height) if n > 1 else of_picture(rows)
        start = (picture * height + a0 - piece.inputs[0][0]) * x.row_size
        offset = (picture * out_h + r0 - piece.output[0]) * y.row_size
        wrote = n * (r1 - r0) * y.row_size
        fields = {
            **source(x, offset=start),
            "n": n, "h": a1 - a0, "w": width, "c": channels, "out_h": r1 - r0, "out_w": y.shape[3],
            "kernel": tuple(kernel), "stride": tuple(strides), "dilation": dilations,
            "pad": (pads[0] + a0 - r0 * strides[0], pads[1]),
            **result(y, offset),
        }  # fmt: skip
        if average:
            fields |= {"include_pad": int(op.count_include_pad), **stage(op, places, count)}
        read = start + n * (a1 - a0) * x.row_size
        reads = (("in0", start, read), *((("const", 0, size),) if size else ()))
        name = "avg_pool" if average else "max_pool"
        return Draft(name, "vector", fields, reads, (("out0", offset, offset + wrote),))

    # With padding that counts, what is padding depends on where the picture ends.
    counted = average and op.count_include_pad and any(pads)
    cut = need if x.rows > 1 and y.rows > 1 and not counted else None
    return Layer(
        name=y.name, kind="avg_pool" if average else "max_pool", inputs=(x,), outputs=(y,), draft=draft, need=cut,
        constants=lambda channels: constants, constant_size=lambda channels: size, source=op,
    )  # fmt: skip
