"""Ops that move elements and compute nothing."""

from collections.abc import Sequence
from math import prod

from xdsl.ir import Attribute

from npuc.ir.definition import (
    TopOp,
    broadcast,
    integer,
    integers,
    normal_axis,
    number,
    operand,
    operands,
    require,
    result,
    results,
    shape_of,
    text,
    top_op,
)
from npuc.ir.dtypes import element_of, tensor_type


@top_op
class Reshape(TopOp):
    """The same elements in the same order under another shape."""

    name = "top.reshape"
    x = operand()
    shape: tuple[int, ...] = integers()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape given."""
        require(min(self.shape, default=0) >= 0, "the shape must be explicit")
        old, new = prod(shape_of(self.x)), prod(self.shape)
        require(old == new, f"{old} elements do not fit shape {list(self.shape)}")
        return [tensor_type(self.shape, element_of(self.x))]


@top_op
class Permute(TopOp):
    """Axes reordered: axis i of the result is axis `order[i]` of x."""

    name = "top.permute"
    x = operand()
    order: tuple[int, ...] = integers()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape reordered."""
        x = shape_of(self.x)
        require(sorted(self.order) == list(range(len(x))), f"order {list(self.order)} for rank {len(x)}")
        return [tensor_type([x[i] for i in self.order], element_of(self.x))]


@top_op
class Concat(TopOp):
    """Tensors laid end to end along `axis`."""

    name = "top.concat"
    inputs = operands()
    axis: int = integer()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """Sizes added along the axis."""
        require(len(self.inputs) >= 1, "needs at least one operand")
        shapes = [shape_of(value) for value in self.inputs]
        axis = normal_axis(self.axis, len(shapes[0]))
        for shape in shapes:
            same = len(shape) == len(shapes[0]) and all(
                shape[i] == shapes[0][i] for i in range(len(shape)) if i != axis
            )
            require(same, f"shapes {list(shapes[0])} and {list(shape)} differ outside axis {axis}")
        out = list(shapes[0])
        out[axis] = sum(shape[axis] for shape in shapes)
        return [tensor_type(out, element_of(self.inputs[0]))]


@top_op
class Split(TopOp):
    """x cut along `axis` into parts of `sizes`."""

    name = "top.split"
    x = operand()
    axis: int = integer()
    sizes: tuple[int, ...] = integers()
    parts = results()

    def infer(self) -> Sequence[Attribute]:
        """One part a size."""
        x = shape_of(self.x)
        axis = normal_axis(self.axis, len(x))
        require(min(self.sizes, default=0) >= 0, "sizes must not be negative")
        require(sum(self.sizes) == x[axis], f"sizes {list(self.sizes)} do not add up to {x[axis]}")
        dtype = element_of(self.x)
        return [tensor_type((*x[:axis], size, *x[axis + 1 :]), dtype) for size in self.sizes]


@top_op
class Slice(TopOp):
    """Every `steps`-th element from `offset`, `shape` of them, on every axis; a negative step runs backwards."""

    name = "top.slice"
    x = operand()
    offset: tuple[int, ...] = integers()
    steps: tuple[int, ...] = integers()
    shape: tuple[int, ...] = integers()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape given, if all of it lies inside x."""
        x = shape_of(self.x)
        require(
            len(self.offset) == len(self.steps) == len(self.shape) == len(x),
            f"needs {len(x)} entries an axis",
        )
        for size, begin, step, count in zip(x, self.offset, self.steps, self.shape, strict=True):
            last = begin + (count - 1) * step
            inside = count == 0 or (0 <= begin < size and 0 <= last < size)
            require(
                step != 0 and count >= 0 and inside,
                f"{count} elements from {begin} by {step} leave 0..{size}",
            )
        return [tensor_type(self.shape, element_of(self.x))]


@top_op
class Pad(TopOp):
    """x with a border: constant (`value`), reflect, edge or wrap; negative pads crop."""

    name = "top.pad"
    x = operand()
    pads: tuple[int, ...] = integers()
    mode: str = text("constant")
    value: float = number(0.0)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The padded shape."""
        x = shape_of(self.x)
        rank = len(x)
        require(len(self.pads) == 2 * rank, f"{len(self.pads)} pads for rank {rank}")
        shape = [x[i] + self.pads[i] + self.pads[i + rank] for i in range(rank)]
        require(min(shape, default=0) >= 0, "the result would have a negative size")
        return [tensor_type(shape, element_of(self.x))]

    def check(self) -> None:
        """A known mode."""
        require(self.mode in ("constant", "reflect", "edge", "wrap"), f"unknown mode '{self.mode}'")

    @property
    def frames_images(self) -> bool:
        """Whether it adds rows and columns around images, and nothing else: each comes from one of the image, or is constant."""
        rank = len(shape_of(self.x))
        others = (*self.pads[:2], *self.pads[rank : rank + 2])
        return rank == 4 and not any(others) and min(self.pads) >= 0


@top_op
class Expand(TopOp):
    """x broadcast to `shape`."""

    name = "top.expand"
    x = operand()
    shape: tuple[int, ...] = integers()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape given."""
        require(
            broadcast(shape_of(self.x), self.shape) == tuple(self.shape), "x does not broadcast to that shape"
        )
        return [tensor_type(self.shape, element_of(self.x))]


@top_op
class Tile(TopOp):
    """x repeated `repeats` times along each axis."""

    name = "top.tile"
    x = operand()
    repeats: tuple[int, ...] = integers()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """Sizes multiplied."""
        x = shape_of(self.x)
        require(len(self.repeats) == len(x) and min(self.repeats, default=0) >= 0, "needs one repeat an axis")
        return [tensor_type([n * r for n, r in zip(x, self.repeats, strict=True)], element_of(self.x))]


@top_op
class DepthToSpace(TopOp):
    """Channels moved into blocks of pixels; `mode` is DCR (block index outermost) or CRD (pixel shuffle)."""

    name = "top.depth_to_space"
    x = operand()
    block: int = integer()
    mode: str = text("DCR")
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """N x C / block^2 x H * block x W * block."""
        x = shape_of(self.x)
        require(len(x) == 4, "needs rank 4")
        require(self.mode in ("DCR", "CRD"), f"mode '{self.mode}' is not DCR or CRD")
        require(self.block >= 1 and x[1] % self.block**2 == 0, f"{x[1]} channels in blocks of {self.block}")
        shape = (x[0], x[1] // self.block**2, x[2] * self.block, x[3] * self.block)
        return [tensor_type(shape, element_of(self.x))]


@top_op
class SpaceToDepth(TopOp):
    """Blocks of pixels moved into channels, block index outermost."""

    name = "top.space_to_depth"
    x = operand()
    block: int = integer()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """N x C * block^2 x H / block x W / block."""
        x = shape_of(self.x)
        require(len(x) == 4, "needs rank 4")
        fits = self.block >= 1 and x[2] % self.block == 0 and x[3] % self.block == 0
        require(fits, f"{x[2]} x {x[3]} pixels in blocks of {self.block}")
        shape = (x[0], x[1] * self.block**2, x[2] // self.block, x[3] // self.block)
        return [tensor_type(shape, element_of(self.x))]


@top_op
class ShuffleChannel(TopOp):
    """Channels interleaved between `group` groups: channel g * n + i becomes i * group + g."""

    name = "top.shuffle_channel"
    x = operand()
    group: int = integer()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The type of x."""
        x = shape_of(self.x)
        require(
            len(x) >= 2 and self.group >= 1 and x[1] % self.group == 0,
            f"{self.group} groups do not divide the channels",
        )
        return [self.x.type]


MOVERS: tuple[type[TopOp], ...] = (
    Reshape,
    Permute,
    Slice,
    Split,
    Expand,
    Tile,
    DepthToSpace,
    SpaceToDepth,
    ShuffleChannel,
)
"""Ops of one operand that do the same to integers as to the reals that they stand for."""
