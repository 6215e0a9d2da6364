"""Tensors of rows in local memory, seen whole, by columns, or with one column for all; and rows reduced to one column."""

from __future__ import annotations

from dataclasses import dataclass

from npuc.arrays import ceil_div
from npuc.schedule.bm1684x.layout import LocalTensor, Shape
from npuc.schedule.bm1684x.work import ADD, COPY_FROM_OPERAND, MAXIMUM, Builder, Operand

_BYTES = {"i8": 1, "i16": 2, "i32": 4}


@dataclass(frozen=True)
class Plane:
    """A tensor (1, c, rows, columns) of the aligned layout."""

    address: int
    shape: Shape
    dtype: str

    @property
    def tensor(self) -> LocalTensor:
        """Without the type."""
        return LocalTensor(self.address, self.shape, _BYTES[self.dtype])

    @property
    def whole(self) -> Operand:
        """All of it."""
        return Operand(self.address, self.dtype, size=self.tensor.size)

    def columns(self, low: int, high: int) -> Operand:
        """Some columns."""
        size, (_, _, rows, width) = _BYTES[self.dtype], self.shape
        last = self._row_pitch * (self.tensor.lane_rows - 1) + (rows - 1) * width + high - low
        return Operand(
            self.address + low * size, self.dtype, (0, self._row_pitch, width, 1), size=last * size
        )

    @property
    def spread(self) -> Operand:
        """Its only column, for every column."""
        assert self.shape[3] == 1
        return Operand(self.address, self.dtype, (0, self._row_pitch, 1, 0), size=self.tensor.size)

    @property
    def _row_pitch(self) -> int:
        """Elements from one row of channels to the next."""
        tensor = self.tensor
        return tensor.pitch // tensor.itemsize if tensor.lane_rows > 1 else 0

    def of_width(self, address: int, width: int) -> Plane:
        """One of the same rows, elsewhere."""
        return Plane(address, (*self.shape[:3], width), self.dtype)


def halves(shape: Shape, dtype: str) -> tuple[int, int]:
    """Bytes of a lane of the two buffers that a reduction of rows goes to and fro between."""
    first, second = (
        LocalTensor(0, (*shape[:3], ceil_div(shape[3], part)), _BYTES[dtype]).size for part in (2, 4)
    )
    return first, second


def greatest(build: Builder, x: Plane, buffers: tuple[int, int]) -> Plane:
    """The greatest of each row: the greater of its two halves, again and again; halves of an odd number overlap."""
    turn = 0
    while (width := x.shape[3]) > 1:
        half = ceil_div(width, 2)
        y = x.of_width(buffers[turn], half)
        build.elementwise(MAXIMUM, y.shape, y.whole, x.columns(0, half), x.columns(width - half, width))
        x, turn = y, 1 - turn
    return x


def total(build: Builder, x: Plane, buffers: tuple[int, int], to: Plane) -> None:
    """The sum of each row: that of its two halves, again and again; what an odd number leaves over is copied."""
    turn = 0
    while (width := x.shape[3]) > 2:
        half = width // 2
        y = x.of_width(buffers[turn], width - half)
        front, back = x.columns(0, half), x.columns(half, 2 * half)
        build.elementwise(ADD, (*y.shape[:3], half), y.columns(0, half), front, back)
        if width % 2:
            rest, column = x.columns(width - 1, width), (*y.shape[:3], 1)
            build.elementwise(COPY_FROM_OPERAND, column, y.columns(half, half + 1), rest)
        x, turn = y, 1 - turn
    if width == 1:
        build.elementwise(COPY_FROM_OPERAND, to.shape, to.whole, x.whole)
    else:
        build.elementwise(ADD, to.shape, to.whole, x.columns(0, 1), x.columns(1, 2))
