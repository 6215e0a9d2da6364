"""Permutes that loads do: on several cores, each brings the rows that it needs of the turned tensor from the operand.

The heads of attention are turned between products. On one core that is a copy in local memory. Several cores have their tensors
in the shared memory between groups, and a transfer has strides: so a permute whose operand was made in an earlier group, and
whose result only its own group reads, is no work of an engine. The tile that reads some rows of the result loads them as blocks
of the operand, and no core turns what others need.

Example: six heads of 197 rows of 64 bytes, turned from 197 x 6 x 64 to 6 x 197 x 64. Rows 100 to 500 of the result are 97 rows of
head 0, all of head 1 and 106 of head 2. They are loaded in three blocks of runs of 64 bytes, each run 384 bytes behind the last:

    rows          head    of the operand, from byte        runs
    100 to 197    0       100 x 384                        97
    197 to 394    1       64                               197
    394 to 500    2       128                              106

A layer may read the result under a shape whose rows are several of its own, as behind the heads: 197 rows of 6 x 64 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from npuc.arrays import ceil_div
from npuc.schedule.layers import Layer, Rows, Tensor
from npuc.schedule.moves import Block, copies_of

_AXES = 3
"""Of a transfer, beside the runs."""
_LEAST_RUN = 32
"""Bytes: shorter runs are left to an engine."""


@dataclass(frozen=True)
class Turn:
    """A permute by rows: each row of the result is a run of the operand."""

    source: Tensor
    """The storage of the operand."""
    sizes: tuple[int, ...]
    """The axes that the rows of the result count through, the outermost first."""
    far: tuple[int, ...]
    """Bytes of the operand from one to the next along each."""
    run: int
    """Bytes of a row."""

    def blocks(self, rows: Rows) -> Iterator[tuple[int, int, Block]]:
        """The transfers that bring some rows: the byte of the operand, that from the first row on, and how it is spread."""
        near = [self.run * prod(self.sizes[at + 1 :]) for at in range(len(self.sizes))]
        for first, counts in _boxes(self.sizes, rows):
            at = sum(i * step for i, step in zip(first, self.far, strict=True))
            offset = sum(i * step for i, step in zip(first, near, strict=True)) - rows[0] * self.run
            pad = _AXES - len(self.sizes)
            size = (*(1,) * pad, *counts, self.run)
            strides = ((0,) * pad + tuple(steps) for steps in (self.far, near))
            yield at, offset, Block(size, *strides)  # type: ignore[arg-type]


def turn_of(layer: Layer) -> Turn | None:
    """A permute as loads can do it; None of another layer, and of one that moves single elements."""
    if layer.by_rows or layer.channels or len(layer.inputs) != 1 or len(layer.outputs) != 1:
        return None
    copies = copies_of(layer) if not layer.constant_size((0, 0)) else None
    if copies is None or len(copies) != 1:
        return None
    (x,), (y,), copy = layer.inputs, layer.outputs, copies[0]
    axes = [axis for axis in zip(copy.size, copy.x_stride, copy.y_stride, strict=True) if axis[0] > 1]
    axes.sort(key=lambda axis: -axis[2])
    row = y.row_size // y.itemsize
    inner = [axis[0] for axis in axes]
    if x.size != y.size or any(step != prod(inner[at + 1 :]) for at, (_, _, step) in enumerate(axes)):
        return None
    if not axes or axes[-1][1] != 1 or axes[-1][0] % row or row * y.itemsize < _LEAST_RUN:
        return None
    (run, _, _), outer = axes[-1], axes[:-1]
    if run > row:
        outer.append((run // row, row, row))
    if not 1 < len(outer) <= _AXES or any(step <= 0 for _, step, _ in outer):
        return None
    return Turn(
        x.storage,
        tuple(size for size, _, _ in outer),
        tuple(step * y.itemsize for _, step, _ in outer),
        y.row_size,
    )


def rows_in_one(view: Tensor) -> int:
    """How many rows of its storage a row of a view is; 0 if it is not some of them."""
    whole, rest = divmod(view.row_size, view.storage.row_size)
    return 0 if rest else whole


def _boxes(sizes: tuple[int, ...], rows: Rows) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """A range of rows that are counted through some axes, as boxes: where each begins along the axes, and its sizes."""
    low, high = rows
    if len(sizes) == 1:
        yield (low,), (high - low,)
        return
    inner = prod(sizes[1:])
    first, last = ceil_div(low, inner), high // inner
    if first > last:  # inside one of the outermost
        for begin, counts in _boxes(sizes[1:], (low - last * inner, high - last * inner)):
            yield (last, *begin), (1, *counts)
        return
    if low < first * inner:
        for begin, counts in _boxes(sizes[1:], (low - (first - 1) * inner, inner)):
            yield (first - 1, *begin), (1, *counts)
    if first < last:
        yield (first, *(0,) * (len(sizes) - 1)), (last - first, *sizes[1:])
    if last * inner < high:
        for begin, counts in _boxes(sizes[1:], (0, high - last * inner)):
            yield (last, *begin), (1, *counts)
