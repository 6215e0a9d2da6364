"""What rules share: element types as codes, requantization, windows of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import TYPE_NAMES, dtype_of
from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.ir import Graph
from npuc.ir import dtype_of as ir_dtype_of
from npuc.ir.dtypes import QuantType, quant_of
from npuc.program.instruction import Address
from npuc.program.instructions import Copy, Result, Second, Source, Stage, Window
from npuc.schedule.constants import NO_CONSTANTS, Constants
from npuc.schedule.layers import InstructionTemplate, Place, Rows, Tensor

DTYPES = {name: code for code, name in TYPE_NAMES.items()}
"""Codes of element types, as the instruction set has them."""
LIMITS = {name: dtype_of(name).limits for name in ("i8", "ui8", "i16")}
"""The least and the greatest number of each type of activations."""
ABSENT = 0xFFFFFFFF
"""An address that means: not there."""


def quantized(value: Any) -> QuantType:
    """The quantized type of a value that has one."""
    kind = quant_of(value)
    assert kind is not None
    return kind


def source(tensor: Tensor, slot: str = "in0", offset: int = 0) -> Source:
    """The first operand of an instruction."""
    return Source(Place(slot, offset), DTYPES[tensor.dtype], tensor.zero_point)


def second(tensor: Tensor, place: Place) -> Second:
    """The second operand of an instruction."""
    return Second(place, DTYPES[tensor.dtype], tensor.zero_point)


def result(tensor: Tensor, offset: int = 0, slot: str = "out0") -> Result:
    """The result of an instruction."""
    return Result(Place(slot, offset), DTYPES[tensor.dtype])


def constant(places: Mapping[str, int], name: str) -> Address:
    """Where a constant of a layer is; there may be none of that name."""
    return Place("const", places[name]) if name in places else ABSENT


@dataclass(frozen=True)
class Requantization:
    """How the sums of a layer become elements of its result."""

    kind: Kind
    parameters: Constants
    """`multiplier` (under a float scale, the scales) and `shift`, as far as the kind has them: one entry, or one a channel."""
    dtype: str
    """The element type that comes out."""
    zero_point: int
    lo: int
    hi: int

    @cached_property
    def per_tensor(self) -> bool:
        """Whether there is one entry for all channels."""
        return all(array.size == 1 for array in self.parameters.values())

    @property
    def entries(self) -> int:
        """Entries of the longest parameter."""
        return max((array.size for array in self.parameters.values()), default=0)

    def stage(self, places: Mapping[str, int], count: int = 1) -> Stage:
        """The output stage of an instruction whose parameters, of so many entries, are among the constants."""
        return Stage(
            kind=self.kind.code,
            count=count,
            multiplier=constant(places, "multiplier"),
            shift=constant(places, "shift"),
            zero_point=self.zero_point,
            lo=self.lo,
            hi=self.hi,
        )


@dataclass(frozen=True)
class FloatOutput:
    """How the f32 sums of a layer of floats become elements of its result: a fused relu, then rounding.

    It has the shape of a `Requantization`, and no parameters.
    """

    dtype: str
    """The element type that comes out."""
    lo: float = -np.inf
    hi: float = np.inf
    parameters: Constants = NO_CONSTANTS
    per_tensor: bool = True
    entries: int = 1

    def stage(self, places: Mapping[str, int], count: int = 1) -> Stage:
        """The output stage of an instruction: its limits are the bits of f32."""
        return Stage(0, 1, ABSENT, ABSENT, 0, float_bits(self.lo), float_bits(self.hi))


OutputStage = Requantization | FloatOutput
"""What becomes of the sums of a layer."""


def float_bits(value: float) -> int:
    """The bits of an f32 as a number of 32 bits with a sign.

    >>> hex(float_bits(1.0))
    '0x3f800000'
    """
    return int(np.float32(value).view(np.int32))


def float_output_of(op: Any) -> FloatOutput:
    """The output of an op on floats, which may have a relu fused to it."""
    dtype = ir_dtype_of(op.to).name
    if not getattr(op, "relu", False):
        return FloatOutput(dtype)
    return FloatOutput(dtype, 0.0, op.relu_limit if op.relu_limit > 0 else np.inf)


def is_float(tensor: Tensor) -> bool:
    """Whether a tensor is of bf16, f16 or f32."""
    return tensor.dtype in ("bf16", "f16", "f32")


def requantization_of(op: Any) -> Requantization:
    """The requantization of an op that states its numbers as properties."""
    if op.kind.has_scale:
        return _requantization(op, {"multiplier": np.array(op.factors, "<f4")})
    numbers = np.array(op.parameters, np.int64)
    if not op.kind.has_multiplier:
        return _requantization(op, {"shift": numbers.astype("<i4")})
    if not numbers.size:  # an average under `double_rounding` divides by itself
        numbers = np.array([1 << 30, 31])
    return _requantization(
        op, {"multiplier": numbers[0::2].astype("<i4"), "shift": numbers[1::2].astype("<i4")}
    )


def requantization_of_operands(op: Any, graph: Graph) -> Requantization:
    """The requantization of an op whose numbers are constant operands."""
    parameters = {}
    for name in op.kind.parameters:
        array = graph.constant(op.factor if name == "scale" else getattr(op, name))
        assert array is not None
        # An instruction has the scales where other kinds have their multipliers.
        if name == "scale":
            parameters["multiplier"] = array.astype("<f4")
        else:
            parameters[name] = array.astype("<i4")
    return _requantization(op, parameters)


def _requantization(op: Any, parameters: Mapping[str, Array]) -> Requantization:
    return Requantization(
        op.kind, Constants(parameters), op.to.dtype.carrier.name, op.to.zero_point, op.lo, op.hi
    )


def window_columns(window: Window, columns: Rows, size: int) -> Rows:
    """The columns of an operand of `size` columns that some columns of a convolution or pool look at."""
    kernel, stride, dilation, pad = window.kernel[1], window.stride[1], window.dilation[1], window.pad[1]
    return window_rows(columns, size, kernel, stride, dilation, pad)


def window_from(window: Window, columns: Rows, operand: Rows) -> Window:
    """The window of some columns, whose operand begins with a column of the whole."""
    top, left = window.pad
    return replace(window, pad=(top, left + operand[0] - columns[0] * window.stride[1]))


def window_rows(rows: Rows, size: int, kernel: int, stride: int, dilation: int, pad: int) -> Rows:
    """The rows of an operand of `size` rows that some rows of a convolution or pool look at; one at least."""
    first = rows[0] * stride - pad
    last = (rows[1] - 1) * stride - pad + (kernel - 1) * dilation
    low, high = max(first, 0), min(last, size - 1) + 1
    if low >= high:  # nothing but padding: some row has to stand there
        low = min(max(low, 0), size - 1)
        high = low + 1
    return low, high


def images_of(rows: Rows, height: int) -> list[tuple[int, int, Rows]]:
    """Rows of a batch as single instructions can compute them: the first image, how many images, and rows of each; an
    instruction of several images computes all their rows.

    >>> images_of((3, 20), 4)
    [(0, 1, (3, 4)), (1, 4, (0, 4))]
    """
    parts = []
    at, end = rows
    while at < end:
        image, low = divmod(at, height)
        high = min(height, low + end - at)
        count = (end - at) // height if (low, high) == (0, height) else 1
        parts.append((image, count, (low, high)))
        at += count * (high - low)
    return parts


def batch_rows(rows: Rows, height: int, size: int, need: Callable[[Rows], Rows]) -> Rows:
    """The rows of a batch of images of `size` rows that some rows of a batch of images of `height` rows need.

    `need` gives the rows of one image that some rows of one image need.
    """
    parts = images_of(rows, height)
    (first, several, begin), (last, count, end) = parts[0], parts[-1]
    # An instruction that computes several images reads all rows of each.
    low = 0 if several > 1 else need(begin)[0]
    high = size if count > 1 else need(end)[1]
    return first * size + low, (last + count - 1) * size + high


def is_natural(tensor: Tensor) -> bool:
    """Whether memory has the order of the logical axes: no images, one channel, or one pixel."""
    if not tensor.channels_last:
        return True
    _, c, h, w = tensor.shape
    return c == 1 or h * w == 1


def turned(
    tensor: Tensor,
    order: tuple[int, ...],
    source: Place,
    target: Place,
    rows: int | None = None,
    back: bool = False,
) -> InstructionTemplate:
    """A copy that gives the axes of a tensor another order in memory, outermost first, or brings them back.

    Of an image it may be some rows.
    """
    shape = list(tensor.shape)
    if rows is not None:
        shape[2] = rows
    memory, dense = _strides(shape, tensor.order), _strides(shape, order)
    pad = (0,) * (6 - len(shape))
    copy = Copy(
        x=source,
        y=target,
        bytes=tensor.itemsize,
        size=(*(1,) * len(pad), *(shape[i] for i in order)),
        x_stride=(*pad, *((dense if back else memory)[i] for i in order)),
        y_stride=(*pad, *((memory if back else dense)[i] for i in order)),
    )
    size = prod(shape) * tensor.itemsize
    spans = [(place.slot, place.offset, place.offset + size) for place in (source, target)]
    return InstructionTemplate(copy, (spans[0],), (spans[1],))


def _strides(shape: list[int], order: tuple[int, ...]) -> list[int]:
    """The stride of each axis in elements if they lie densely in an order."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return strides
