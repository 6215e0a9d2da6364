"""Movements that local memory is too small for: from DRAM to DRAM, block by block.

A copy between strided views is cut into blocks. Each block comes in as the source has it, in runs that are as long as they
can be, is turned in local memory, and goes out as the destination wants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from npuc.arrays import ceil_div
from npuc.program.instruction import Address
from npuc.program.instructions import Copy
from npuc.schedule.layers import InstructionTemplate, Layer, Place, Tile

Axis = tuple[int, int, int]
"""Size, stride in the source, stride in the destination, in elements."""


@dataclass(frozen=True)
class Block:
    """What a transfer moves: sizes of up to three axes and a run of bytes, and strides in bytes."""

    size: tuple[int, int, int, int]
    far: tuple[int, int, int]
    near: tuple[int, int, int]


@dataclass(frozen=True)
class Move:
    """One block of a copy."""

    operand: int
    source: int
    """First byte in the operand."""
    target: int
    load: Block
    store: Block
    turn: InstructionTemplate | None
    """The copy in local memory from `in0` to `out0`; None if source and destination have the same order."""
    bytes: int


def copies_of(layer: Layer) -> list[Copy] | None:
    """The copies that a layer consists of, if it consists of nothing else."""
    tile = Tile(
        (0, layer.outputs[0].rows),
        (0, 0),
        tuple((0, t.storage.rows) for t in layer.inputs),
        (0, layer.outputs[0].rows),
    )
    if len(layer.outputs) != 1 or layer.scratch(tile.rows):
        return None
    copies = []
    for template in layer.templates(tile):
        instruction = template.instruction
        if (
            not isinstance(instruction, Copy)
            or not _slot(instruction.x).startswith("in")
            or _slot(instruction.y) != "out0"
        ):
            return None
        copies.append(instruction)
    return copies


def _slot(address: Address) -> str:
    return address.slot if isinstance(address, Place) else ""


def moves(copies: list[Copy], room: int) -> Iterator[Move]:
    """All blocks, each of at most `room` bytes."""
    for copy in copies:
        x, y, unit = copy.x, copy.y, copy.bytes
        assert isinstance(x, Place) and isinstance(y, Place)
        axes = [
            axis for axis in zip(copy.size, copy.x_stride, copy.y_stride, strict=True) if axis[0] > 1
        ] or [(1, 1, 1)]
        tiles = _tiles(axes, max(room // unit, 1))
        ranges = [range(0, size, tile) for (size, _, _), tile in zip(axes, tiles, strict=True)]
        for corner in product(*ranges):
            part = [
                (min(tile, size - at), a, b)
                for (size, a, b), tile, at in zip(axes, tiles, corner, strict=True)
            ]
            source = x.offset + unit * sum(at * a for at, (_, a, _) in zip(corner, axes, strict=True))
            target = y.offset + unit * sum(at * b for at, (_, _, b) in zip(corner, axes, strict=True))
            yield _move(int(x.slot[2:]), source, target, part, unit)


def _tiles(axes: list[Axis], most: int) -> list[int]:
    """Sizes of a block: whole axes as far as it goes, the innermost ones of both sides last to be cut."""
    tiles = [size for size, _, _ in axes]
    inner = {min(range(len(axes)), key=lambda i: abs(axes[i][k]) or 1 << 62) for k in (1, 2)}
    # At most three axes beside the runs can move at once, on either side.
    outer = sorted(
        (i for i in range(len(axes)) if i not in inner), key=lambda i: -max(abs(axes[i][1]), abs(axes[i][2]))
    )
    for i in outer[: max(len(axes) - 3, 0)]:
        tiles[i] = 1
    while prod(tiles) > most:
        loose = [i for i in outer if tiles[i] > 1]
        largest = max(loose or range(len(tiles)), key=lambda i: tiles[i])
        tiles[largest] = ceil_div(tiles[largest], 2)
    return tiles


def _move(operand: int, source: int, target: int, part: list[Axis], unit: int) -> Move:
    there = sorted((axis for axis in part if axis[0] > 1), key=lambda axis: -axis[1]) or [(1, 1, 1)]
    back = sorted((axis for axis in part if axis[0] > 1), key=lambda axis: -axis[2]) or [(1, 1, 1)]
    load, source_near = _block([(n, a) for n, a, _ in there], unit)
    store, target_near = _block([(n, b) for n, _, b in back], unit)
    count = prod(n for n, _, _ in there)
    turn = None
    if there != back:
        near = dict(zip(there, source_near, strict=True))
        axes = [(axis[0], near[axis], b) for axis, b in zip(back, target_near, strict=True)]
        axes = [(1, 0, 0)] * (6 - len(axes)) + axes
        copy = Copy(
            x=Place("in0"),
            y=Place("out0"),
            bytes=unit,
            size=tuple(a[0] for a in axes),
            x_stride=tuple(a[1] for a in axes),
            y_stride=tuple(a[2] for a in axes),
        )
        size = count * unit
        turn = InstructionTemplate(copy, (("in0", 0, size),), (("out0", 0, size),))
    return Move(operand, source, target, load, store, turn, count * unit)


def _block(axes: list[tuple[int, int]], unit: int) -> tuple[Block, list[int]]:
    """A transfer of axes, outermost first, dense in local memory; also the strides there, in elements."""
    near, step = [0] * len(axes), 1
    for i in reversed(range(len(axes))):
        near[i] = step
        step *= axes[i][0]
    outer = list(zip(axes, near, strict=True))
    run = unit
    if axes[-1][1] == 1:
        run = axes[-1][0] * unit
        outer = outer[:-1]
    assert len(outer) <= 3
    pad = 3 - len(outer)
    size = (1,) * pad + tuple(n for (n, _), _ in outer)
    far = (0,) * pad + tuple(stride * unit for (_, stride), _ in outer)
    close = (0,) * pad + tuple(stride * unit for _, stride in outer)
    return Block((*size, run), far, close), near  # type: ignore[arg-type]
