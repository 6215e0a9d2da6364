"""Ops that only move elements: the DMA does them, between any places of DDR and local memory.

Each is a list of blocks: which elements of an operand (from where, by which steps) go to which elements of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from npuc.ir import Graph, Value, shape_of, top
from npuc.ir.dtypes import quant_of
from npuc.registries import Registry
from npuc.schedule.bm1684x.chip_ops import operand
from npuc.schedule.bm1684x.layout import LARGEST, Shape, canonical, own_axes
from npuc.schedule.rules import NotHere

MOST_STEP = 128
"""Bytes between neighbours along the innermost axis of a DMA command."""


@dataclass(frozen=True)
class Block:
    """Elements of an operand that go to the result."""

    value: Value
    shape: Shape
    start: Shape
    """The first element of the operand."""
    steps: Shape
    target: Shape
    """The first element of the result."""
    target_steps: Shape
    views: tuple[Shape, Shape] | None = None
    """Shapes of operand and result, if the axes above are theirs in DDR only: several rows of three axes share a lane."""


@dataclass(frozen=True)
class Moves:
    """An op that moves elements of operands to a result."""

    result: Value
    blocks: tuple[Block, ...]
    fill: int | None = None
    """What the rest of the result holds."""


@dataclass(frozen=True)
class Turn:
    """A result whose axes have another order in DDR than those of its operand."""

    value: Value
    result: Value
    commands: tuple[tuple[int, int, Shape, Shape, Shape], ...]
    """Of each command: bytes of the operand and of the result, sizes, and strides of both."""
    swap: tuple[int, int] | None = None
    """Sizes of the operand's two axes, if it is a matrix that is transposed, which the TIU can do."""


Movement = Moves | Turn
MOVES: Registry[type, Callable[[Any, Graph], list[Movement]]] = Registry("moves of the BM1684X for the op")
"""Op class to its rule."""
moves = MOVES.register
"""Register the rule of op classes."""
ONES: Shape = (1, 1, 1, 1)
ZEROS: Shape = (0, 0, 0, 0)


def _moves(result: Value, blocks: Sequence[Block], fill: int | None = None) -> Moves:
    """Blocks that the commands can move, or the reason why not."""
    for block in blocks:
        operand(block.value)
        if min(block.steps) < 1:
            raise NotHere("it takes elements backwards")
        if max(block.steps[3], block.target_steps[3]) > MOST_STEP:
            raise NotHere(
                f"a DMA command of the BM1684X takes elements that are up to {MOST_STEP} bytes apart"
            )
        if max(block.shape) > LARGEST:
            raise NotHere(f"an axis is longer than {LARGEST}, the largest of a command of the BM1684X")
    return Moves(result, tuple(_in_lanes(block, result) for block in blocks), fill)


def _in_lanes(block: Block, result: Value) -> Block:
    """A block as the lanes have it: rows of three axes may share them, and the second axis then has no place of its own."""
    shapes = _images(block.value), _images(result)
    held = canonical(shape_of(block.value)), canonical(shape_of(result))
    if shapes == held:
        return block
    rows = {shape[1] for shape in (*shapes, block.shape)}
    if len(rows) > 1 or held[0][1:3] != held[1][1:3]:
        return replace(block, views=shapes)
    n, _, _, w = block.shape
    return replace(block, shape=(n, *held[0][1:3], w))


def _images(value: Value) -> Shape:
    """A shape of which every axis has its own place among the four."""
    shape = shape_of(value)
    if len(shape) > 4:
        raise NotHere(f"npuc moves tensors of up to four axes on the BM1684X, and this has {len(shape)}")
    return own_axes(shape)


def axis_place(axis: int, rank: int) -> int:
    """Where an axis of a shape is among the four."""
    return {1: (1,), 2: (0, 1), 3: (0, 1, 3), 4: (0, 1, 2, 3)}[rank][axis]


def _at(axis: int, index: int) -> Shape:
    n, c, h, w = (index if axis == place else 0 for place in range(4))
    return n, c, h, w


@moves(top.Concat)
def concat(op: Any, graph: Graph) -> list[Movement]:
    """A block for each operand."""
    rank = len(shape_of(op.y))
    _images(op.y)
    axis = axis_place(op.axis % rank, rank)
    blocks, at = [], 0
    for value in op.inputs:
        shape = _images(value)
        blocks.append(Block(value, shape, ZEROS, ONES, _at(axis, at), ONES))
        at += shape[axis]
    return [_moves(op.y, blocks)]


def _spread(numbers: Sequence[int], rank: int, other: int) -> Shape:
    full = [other] * 4
    for axis, number in enumerate(numbers):
        full[axis_place(axis, rank)] = number
    return full[0], full[1], full[2], full[3]


@moves(top.Slice)
def slice_(op: Any, graph: Graph) -> list[Movement]:
    """One block."""
    shape, rank = _images(op.y), len(shape_of(op.x))
    start, steps = _spread(op.offset, rank, 0), _spread(op.steps, rank, 1)
    block = Block(op.x, shape, start, steps, ZEROS, ONES)
    return [_moves(op.y, [block])]


@moves(top.Split)
def split(op: Any, graph: Graph) -> list[Movement]:
    """A slice for each result."""
    rank = len(shape_of(op.x))
    axis = axis_place(op.axis % rank, rank)
    movements: list[Movement] = []
    at = 0
    for value in op.parts:
        shape = _images(value)
        block = Block(
            value=op.x, shape=shape, start=_at(axis, at), steps=ONES, target=ZEROS, target_steps=ONES
        )
        at += shape[axis]
        movements.append(_moves(value, [block]))
    return movements


@moves(top.Pad)
def pad(op: Any, graph: Graph) -> list[Movement]:
    """A constant, and the operand inside."""
    if op.mode != "constant" or min(op.pads) < 0:
        raise NotHere(f"npuc has no commands of the BM1684X for a pad of mode {op.mode} by {list(op.pads)}")
    rank = len(shape_of(op.x))
    block = Block(op.x, _images(op.x), ZEROS, ONES, _spread(op.pads[:rank], rank, 0), ONES)
    _images(op.y)
    kind = quant_of(op.x)
    assert kind is not None
    least, most = kind.dtype.limits
    value = min(max(round(op.value / kind.scale) + kind.zero_point, least), most)
    return [_moves(op.y, [block], value)]


@moves(top.SpaceToDepth)
def space_to_depth(op: Any, graph: Graph) -> list[Movement]:
    """A block for each position in a block of pixels."""
    n, c, h, w = _images(op.x)
    b = op.block
    blocks = [
        Block(op.x, (n, c, h // b, w // b), (0, 0, i, j), (1, 1, b, b), (0, (i * b + j) * c, 0, 0), ONES)
        for i in range(b)
        for j in range(b)
    ]
    return [_moves(op.y, blocks)]


@moves(top.DepthToSpace)
def depth_to_space(op: Any, graph: Graph) -> list[Movement]:
    """The same the other way round."""
    n, c, h, w = _images(op.x)
    b = op.block
    depth = c // b**2
    first = op.mode == "DCR"
    blocks = [
        Block(
            op.x, (n, depth, h, w), (0, (i * b + j) * (depth if first else 1), 0, 0), (1, 1 if first else b * b, 1, 1),
            (0, 0, i, j), (1, 1, b, b),
        )
        for i in range(b)
        for j in range(b)
    ]  # fmt: skip
    return [_moves(op.y, blocks)]


@moves(top.Permute)
def permute(op: Any, graph: Graph) -> list[Movement]:
    """From DDR to DDR, where any axis may be any other."""
    operand(op.x)
    shape = shape_of(op.x)
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    sizes = [shape[axis] for axis in op.order]
    own = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    axes = [
        (size, strides[axis], mine) for size, axis, mine in zip(sizes, op.order, own, strict=True) if size > 1
    ]
    merged = _merged(axes)
    swap = None
    if len(merged) == 2 and max(size for size, _, _ in merged) <= LARGEST:
        swap = merged[1][0], merged[0][0]
    return [Turn(op.x, op.y, tuple(_turn_commands(merged)), swap)]


def _merged(axes: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Axes that lie one in the other on both sides become one."""
    merged: list[tuple[int, int, int]] = []
    for size, source, target in axes:
        if merged and merged[-1][1] == size * source and merged[-1][2] == size * target:
            size *= merged.pop()[0]
        merged.append((size, source, target))
    return merged


def _turn_commands(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, Shape, Shape, Shape]]:
    inner = [axis for axis in axes if max(axis[1:]) <= MOST_STEP and axis[0] <= LARGEST]
    last = max(inner, key=lambda axis: (axis[1] == 1) + (axis[2] == 1), default=None)
    outer = [axis for axis in axes if axis is not last]
    cuts = [_cut(axis) for axis in outer]
    if len(outer) > 3 or any(len(cut) > 1 for cut in cuts):
        raise NotHere("its axes are turned in a way that no DMA command of the BM1684X has")
    rows = [(1, 1, 1)] * (3 - len(outer)) + outer + [last or (1, 1, 1)]
    (n, c, h, w) = rows
    sizes, source, target = zip(n, c, h, w, strict=True)
    return [(0, 0, sizes, source, target)]


def _cut(axis: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    return [axis] if axis[0] <= LARGEST else [axis, axis]
