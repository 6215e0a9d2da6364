"""Tensors as the chip has them: four axes, channels on lanes, each lane's rows at multiples of 64 bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.program.bm1684x.commands import EU_BYTES, LANES

Shape = tuple[int, int, int, int]
"""n, c, h, w."""
Rows = tuple[int, int]
"""A range, the end excluded."""
LARGEST = 65535
"""Of an axis in a command."""


def aligned(size: int) -> int:
    """Bytes in whole vectors of a lane."""
    return ceil_div(size, EU_BYTES) * EU_BYTES


def rows_in_lanes(count: int) -> tuple[int, int]:
    """Rows as lanes and rows of a lane: neighbours in one lane, so that the DMA moves them at once, if lanes come out even.

    >>> rows_in_lanes(10), rows_in_lanes(4420), rows_in_lanes(197)
    ((10, 1), (52, 85), (197, 1))
    """
    if count <= LANES:
        return count, 1
    lanes_ = next((each for each in range(LANES, LANES // 2 - 1, -1) if count % each == 0), None)
    return (count, 1) if lanes_ is None else (lanes_, count // lanes_)


def canonical(shape: Sequence[int]) -> Shape:
    """Any shape as four axes: features are channels, and what is behind them is one plane. Short rows of three axes share lanes.

    >>> canonical((1, 10)), canonical((1, 64, 100)), canonical((1, 2, 3, 4, 5)), canonical((1, 600, 4))
    ((1, 10, 1, 1), (1, 64, 1, 100), (1, 2, 3, 20), (1, 60, 10, 4))
    """
    if len(shape) == 3 and shape[2] < EU_BYTES:
        return shape[0], *rows_in_lanes(shape[1]), shape[2]
    return own_axes(shape)


def own_axes(shape: Sequence[int]) -> Shape:
    """The same with a place of its own among the four for each of up to four axes.

    >>> own_axes((1, 600, 4))
    (1, 600, 1, 4)
    """
    sizes = tuple(shape)
    if len(sizes) == 4:
        return sizes
    if len(sizes) < 2:
        return 1, prod(sizes), 1, 1
    if len(sizes) == 2:
        return sizes[0], sizes[1], 1, 1
    if len(sizes) == 3:
        return sizes[0], sizes[1], 1, sizes[2]
    return sizes[0], sizes[1], sizes[2], prod(sizes[3:])


@dataclass(frozen=True)
class LocalTensor:
    """A tensor in local memory from lane 0 on, in the aligned layout."""

    address: int
    """Byte of each lane."""
    shape: Shape
    itemsize: int = 1

    @property
    def lane_rows(self) -> int:
        """Rows of channels in a lane."""
        return ceil_div(self.shape[1], LANES)

    @property
    def pitch(self) -> int:
        """Bytes from one row of channels to the next."""
        return aligned(self.shape[2] * self.shape[3] * self.itemsize)

    @property
    def size(self) -> int:
        """Bytes of a lane."""
        return self.shape[0] * self.lane_rows * self.pitch

    @property
    def strides(self) -> Shape:
        """In elements, as the DMA has them: c from one row of channels to the next."""
        pitch = self.pitch // self.itemsize
        return self.lane_rows * pitch, pitch, self.shape[3], 1

    def row(self, n: int, row: int) -> int:
        """Where a row of channels of an image begins."""
        return self.address + (n * self.lane_rows + row) * self.pitch


def lane_bytes(shape: Shape, itemsize: int = 1) -> int:
    """Bytes of a lane that a tensor takes."""
    return LocalTensor(0, shape, itemsize).size


def dense_strides(shape: Shape) -> Shape:
    """Those of a tensor in DDR."""
    _, c, h, w = shape
    return c * h * w, h * w, w, 1


def channel_chunks(c: int, rows: int) -> Iterator[tuple[int, int]]:
    """Channels in runs of so many rows of lanes: the first row, and how many channels."""
    for first in range(0, ceil_div(c, LANES), rows):
        yield first, min(c - first * LANES, rows * LANES)


class LaneRecord:
    """Constants of channels as they lie in a lane: a few fields, each with its rows of channels."""

    def __init__(self, channels: int) -> None:
        self.lanes, self.rows = min(channels, LANES), ceil_div(channels, LANES)
        self.offsets: dict[str, int] = {}
        self._parts: list[Array] = []
        self.size = 0

    def add(self, name: str, values: Array, pitch: int) -> None:
        """Bytes of each channel, (channels, bytes), with rows so far apart."""
        channels, count = values.shape
        table = np.zeros((self.rows * LANES, pitch), np.uint8)
        table[:channels, :count] = values
        lanes = table.reshape(self.rows, LANES, pitch).swapaxes(0, 1).reshape(LANES, -1)[: self.lanes]
        part = np.zeros((self.lanes, aligned(lanes.shape[1])), np.uint8)
        part[:, : lanes.shape[1]] = lanes
        self.offsets[name] = self.size
        self._parts.append(part)
        self.size += part.shape[1]

    def array(self) -> Array:
        """All of it, (lanes, bytes)."""
        return np.concatenate(self._parts, 1) if self._parts else np.zeros((self.lanes, 0), np.uint8)


def close_weights(weight: Array) -> Array:
    """The same without the zeros of the last group."""
    outputs, inputs, kh, kw = weight.shape
    groups = [weight[:, at : at + LANES] for at in range(0, inputs, LANES)]
    rows = [group.reshape(outputs, -1, kh * kw).swapaxes(1, 2).reshape(outputs, -1) for group in groups]
    return np.concatenate(rows, 1).astype(np.int8).view(np.uint8)


def conv_weights(weight: Array) -> Array:
    """Weights (outputs, inputs, kh, kw) as rows of bytes: inputs in groups of 64, innermost, for each position of the kernel."""
    outputs, inputs, kh, kw = weight.shape
    groups = ceil_div(inputs, LANES)
    padded = np.zeros((outputs, groups * LANES, kh * kw), np.int8)
    padded[:, :inputs] = weight.reshape(outputs, inputs, -1)
    turned = padded.reshape(outputs, groups, LANES, kh * kw).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(turned).reshape(outputs, -1).view(np.uint8)
