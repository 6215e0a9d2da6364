"""Elements that move: views, transposes, slices, borders, gather and scatter. Most are one strided copy each."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from npuc.codegen.host_ops.builder import Builder, HostTensor, kind, numpy_type
from npuc.codegen.host_ops.elementwise import binary
from npuc.codegen.host_ops.rules import Node, NoHostOperator, axis_of, host_rule


@host_rule("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
def views(node: Node, build: Builder) -> None:
    """The same elements in another shape: nothing moves."""
    x = node.input(0)
    if x.rows is None:
        node.bind_view(x, node.shape())
        return
    if node.proto.op_type == "Identity":
        node.bind(x)
        return
    axes = node.integers("axes", 1)
    if node.proto.op_type != "Unsqueeze" or axes is None or 0 in axes:
        raise NoHostOperator("the shape of its input depends on the data")
    shape: list[int] = list(x.shape)
    rank = len(shape) + len(axes)
    for axis in sorted(axis_of(axis, rank) for axis in axes):
        shape.insert(axis, 1)
    node.bind_view(x, shape)


def transposed(build: Builder, x: HostTensor, order: Sequence[int]) -> HostTensor:
    """A tensor with its axes in another order."""
    y = build.tensor(x.dtype, [x.shape[axis] for axis in order])
    build.copy(x, y, y.shape, [x.strides[axis] for axis in order], y.strides)
    return y


@host_rule("Transpose")
def transpose(node: Node, build: Builder) -> None:
    """Another order of axes."""
    x = node.static(0)
    order = node.attribute("perm") or list(reversed(range(len(x.shape))))
    node.bind(transposed(build, x, order))


@host_rule("Slice")
def slices(node: Node, build: Builder) -> None:
    """Every so many elements from one on, forwards or backwards."""
    x = node.input(0)
    starts, ends = node.integers("starts", 1), node.integers("ends", 2)
    assert starts is not None and ends is not None
    axes = node.integers("axes", 3) or tuple(range(len(starts)))
    steps = node.integers("steps", 4) or (1,) * len(starts)
    sizes, strides, first = list(x.shape), list(x.strides), 0
    rows, least = x.rows, x.least_rows
    for start, end, raw, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_of(raw, len(x.shape))
        if axis == 0 and rows is not None:
            if not (start == 0 and step == 1 and 0 < end <= least):
                raise NoHostOperator("it slices an axis whose length depends on the data")
            rows = None
        picked = range(*slice(start, end, step).indices(x.shape[axis]))
        if not picked:
            raise NoHostOperator("its result is empty")
        first += picked[0] * x.strides[axis]
        sizes[axis], strides[axis] = len(picked), x.strides[axis] * step
    y = node.bind(build.tensor(x.dtype, sizes, rows, least if rows is not None else 0))
    build.copy(x, y, sizes, strides, y.strides, first)


@host_rule("Split")
def split(node: Node, build: Builder) -> None:
    """Parts of an axis, one behind the other."""
    x = node.static(0)
    axis = axis_of(node.attribute("axis", 0), len(x.shape))
    at = 0
    for index in range(len(node.proto.output)):
        y = node.output(index)
        build.copy(x, y, y.shape, x.strides, y.strides, at * x.strides[axis])
        at += y.shape[axis]


@host_rule("Concat")
def concat(node: Node, build: Builder) -> None:
    """Tensors one behind the other: copies, or one operator where the number of rows is known only at run time."""
    parts = [node.input(index) for index in range(len(node.inputs))]
    axis = axis_of(node.attribute("axis"), len(parts[0].shape))
    if any(part.rows is not None for part in parts):
        _concat_rows(node, build, parts, axis)
        return
    y = node.output()
    at = 0
    for part in parts:
        build.copy(part, y, part.shape, part.strides, y.strides, 0, at * y.strides[axis])
        at += part.shape[axis]


def _concat_rows(node: Node, build: Builder, parts: list[HostTensor], axis: int) -> None:
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    with_rows = [part for part in parts if part.rows is not None]
    rows, least = with_rows[0].rows, min(part.least_rows for part in with_rows)
    if axis == 0:
        fixed = sum(part.shape[0] for part in parts if part.rows is None)
        least = fixed + sum(part.least_rows for part in with_rows)
        counts = [part.rows for part in with_rows if part.rows is not None]
        rows = build.constant(np.array([fixed], np.int64))
        for count in counts:
            rows = binary(build, "add", rows, build.view(count, (1,)), build.tensor("i64", (1,)))
    y = node.bind(build.tensor(parts[0].dtype, shape, rows, least))
    build.add("concat", parts, [y], axis)


@host_rule("Expand")
def expand(node: Node, build: Builder) -> None:
    """Axes of length 1 repeated."""
    x, y = node.static(0), node.output()
    shape = (1,) * (len(y.shape) - len(x.shape)) + x.shape
    strides = [
        0 if size == 1 else stride for size, stride in zip(shape, build.view(x, shape).strides, strict=True)
    ]
    build.copy(x, y, y.shape, strides, y.strides)


@host_rule("Tile")
def tile(node: Node, build: Builder) -> None:
    """A tensor repeated along axes: each axis is two, of which one does not move in the input."""
    x, y = node.static(0), node.output()
    sizes: list[int] = []
    sources: list[int] = []
    results: list[int] = []
    for size, whole, stride, result in zip(x.shape, y.shape, x.strides, y.strides, strict=True):
        sizes += [whole // size, size]
        sources += [0, stride]
        results += [result * size, result]
    try:
        build.copy(x, y, sizes, sources, results)
    except ValueError:
        raise NoHostOperator("it repeats too many axes") from None


@host_rule("DepthToSpace", "SpaceToDepth")
def depth_and_space(node: Node, build: Builder) -> None:
    """Channels to blocks of pixels, and back."""
    x, block = node.static(0), node.attribute("blocksize")
    n, c, h, w = x.shape
    if node.proto.op_type == "SpaceToDepth":
        turned = transposed(
            build, build.view(x, (n, c, h // block, block, w // block, block)), (0, 3, 5, 1, 2, 4)
        )
    elif node.attribute("mode", "DCR") == "DCR":
        turned = transposed(build, build.view(x, (n, block, block, c // block**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        turned = transposed(build, build.view(x, (n, c // block**2, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    node.bind_view(turned, node.shape())


def element_bits(value: Any, dtype: str) -> int:
    """An element as the integer of its bits."""
    raw = np.array(value).astype(numpy_type(dtype)).tobytes()
    return int.from_bytes(raw + bytes(8 - len(raw)), "little", signed=True)


def filled(build: Builder, y: HostTensor, value: Any) -> HostTensor:
    """One value everywhere."""
    build.add("fill", [], [y], element_bits(value, y.dtype))
    return y


@host_rule("Pad")
def pad(node: Node, build: Builder) -> None:
    """Borders: a value and a copy over it, or values from inside."""
    x, y = node.static(0), node.output()
    pads, axes = node.integers("pads", 1), node.integers("axes", 3)
    assert pads is not None
    mode, rank = node.attribute("mode", "constant"), len(x.shape)
    before = [0] * rank
    for k, axis in enumerate(axes or range(rank)):
        before[axis_of(axis, rank)] = pads[k]
    if mode != "constant":
        build.add("pad", [x], [y], kind("pad", mode), *before)
        return
    value = node.constant_or(2, node.attribute("value", 0.0))
    filled(build, y, np.asarray(value).reshape(()))
    low = [max(0, -p) for p in before]
    sizes = [
        min(xs - skip, ys - max(0, p)) for xs, ys, skip, p in zip(x.shape, y.shape, low, before, strict=True)
    ]
    if min(sizes) > 0:
        source = sum(skip * stride for skip, stride in zip(low, x.strides, strict=True))
        result = sum(max(0, p) * stride for p, stride in zip(before, y.strides, strict=True))
        build.copy(x, y, sizes, x.strides, y.strides, source, result)


@host_rule("Gather")
def gather(node: Node, build: Builder) -> None:
    """Slices of an axis by number."""
    x, places = node.input(0), node.input(1)
    axis = axis_of(node.attribute("axis", 0), len(x.shape))
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])
    rows, least = (x.rows, x.least_rows) if axis else (places.rows, places.least_rows)
    if axis and places.rows is not None:
        raise NoHostOperator("the number of its indices depends on the data")
    y = node.bind(build.tensor(x.dtype, shape, rows, least))
    build.add("gather", [x, places], [y], axis)


@host_rule("GatherElements")
def gather_elements(node: Node, build: Builder) -> None:
    """An element for each place on an axis."""
    x = node.static(0)
    build.add(
        "gather_elements",
        [x, node.static(1)],
        [node.output()],
        axis_of(node.attribute("axis", 0), len(x.shape)),
    )


@host_rule("GatherND")
def gather_nd(node: Node, build: Builder) -> None:
    """Slices by tuples of numbers."""
    x, places = node.input(0), node.input(1)
    batch, length = node.attribute("batch_dims", 0), places.shape[-1]
    if batch and (places.rows is not None or x.rows is not None):
        raise NoHostOperator("the number of its batches depends on the data")
    shape = (*places.shape[:-1], *x.shape[batch + length :])
    y = node.bind(build.tensor(x.dtype, shape, places.rows, places.least_rows))
    build.add("gather_nd", [x, places], [y], batch, length)


@host_rule("ScatterElements", "ScatterND")
def scatter(node: Node, build: Builder) -> None:
    """A copy with some elements or slices replaced, or joined with others."""
    operands = [node.static(k) for k in range(3)]
    how = kind("scatter", node.attribute("reduction", "none"))
    rank = len(operands[0].shape)
    if node.proto.op_type == "ScatterND":
        build.add("scatter_nd", operands, [node.output()], operands[1].shape[-1], how)
    else:
        build.add(
            "scatter_elements", operands, [node.output()], axis_of(node.attribute("axis", 0), rank), how
        )


@host_rule("OneHot")
def one_hot(node: Node, build: Builder) -> None:
    """Comparisons of indices with every class, counted from the first or from the last."""
    places, y = node.static(0), node.output()
    depth, values = int(node.constant(1).reshape(())), node.constant(2)
    rank = len(y.shape)
    axis = axis_of(node.attribute("axis", -1), rank)
    kind_of = numpy_type(places.dtype)
    if kind_of.kind not in "iu":
        raise NoHostOperator("its indices are not integers")
    places = build.view(places, (*places.shape[:axis], 1, *places.shape[axis:]))
    classes = np.arange(depth).reshape(-1, *(1,) * (rank - 1 - axis))
    hits = [
        binary(build, "equal", places, build.constant(numbers.astype(kind_of)), build.tensor("i1", y.shape))
        for numbers in (classes, classes - depth)
    ]
    hit = binary(build, "or", hits[0], hits[1], build.tensor("i1", y.shape))
    off, on = (build.constant(value.reshape(1)) for value in values)
    build.add("select", [hit, on, off], [y])


@host_rule("Trilu")
def triangle(node: Node, build: Builder) -> None:
    """The upper or lower triangle of matrices; the rest is 0."""
    x, y = node.static(0), node.output()
    diagonal = int(np.asarray(node.constant_or(1, 0)).reshape(()))
    whole = np.ones(x.shape[-2:], np.bool_)
    kept = np.triu(whole, diagonal) if node.attribute("upper", 1) else np.tril(whole, diagonal)
    zero = build.constant(np.zeros(1, numpy_type(x.dtype)))
    build.add("select", [build.constant(kept), x, zero], [y])


@host_rule("Shape")
def shape_of(node: Node, build: Builder) -> None:
    """A constant, but for the number of rows."""
    x = node.input(0)
    sizes = list(x.shape)[slice(node.attribute("start", 0), node.attribute("end", None))]
    if x.rows is None:
        node.bind(build.constant(np.array(sizes, np.int64)))
        return
    if len(x.shape) > 1 or not sizes:
        raise NoHostOperator("the shape of its input depends on the data")
    node.bind(build.view(x.rows, (1,)))


@host_rule("Size")
def size_of(node: Node, build: Builder) -> None:
    """A constant."""
    node.bind(build.constant(np.array(prod(node.static(0).shape), np.int64)))


@host_rule("Constant")
def constant(node: Node, build: Builder) -> None:
    """A value that is an attribute."""
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        value = node.attribute(name)
        if value is not None:
            node.bind(build.constant(np.asarray(value).astype(numpy_type(node.dtype()))))
            return
    raise NoHostOperator("it has a value of a kind that C has not")


@host_rule("ConstantOfShape")
def constant_of_shape(node: Node, build: Builder) -> None:
    """One value everywhere."""
    value = node.attribute("value", np.zeros(1, np.float32))
    filled(build, node.output(), np.asarray(value).reshape(()))


@host_rule("Range")
def number_range(node: Node, build: Builder) -> None:
    """Numbers that are known when the network is compiled."""
    start, limit, step = (node.constant(k).reshape(()).item() for k in range(3))
    node.bind(build.constant(np.arange(start, limit, step).astype(numpy_type(node.dtype()))))
