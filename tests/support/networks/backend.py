"""Random networks for the back end: every op that the NPU has a layer for, in odd shapes and with branches.

`network(seed)` is a float network and ranges for its tensors; the same seed gives the same network. `machine(size)` is a
reference machine whose local memory is as small as one likes, down to where a tile is one row.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.flow import expanded
from npuc.ir import Graph, Value, dtype_of, result_names, shape_of, tensor_type, top
from npuc.ir.definition import TopOp
from npuc.ir.top.functions import FUNCTIONS
from npuc.target import Target, load_target

_MOST = 20_000
"""Elements of a tensor."""
_TABLE_ROWS = 4
"""Rows that every table has: indices are of the first ones."""


class Builder:
    """A network in the making."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        n = self.pick(1, 1, 1, 2)
        shape = self.pick(
            (n, self.size(24), self.size(20), self.size(20)),
            (n, self.size(24), self.size(20), self.size(20)),
            (n, self.size(24), self.size(20), self.size(20)),
            (n, self.size(24), self.size(20), self.size(20)),
            (1, self.pick(1, 3, 8), self.pick(40, 61), self.size(24)),
            (1, self.pick(130, 300), self.size(5), self.size(5)),
            (n, self.size(12), self.size(30)),
            (self.size(12), self.size(60)),
        )
        ports = [(f"x{i}", tensor_type(shape, "f32")) for i in range(self.pick(1, 1, 2))]
        if self.pick(True, False, False, False):
            ports.append(("indices", tensor_type((self.size(5),), self.pick("i32", "i64"))))
        self.graph = Graph.empty(ports)
        self.values: list[Value] = [v for v in self.graph.block.args if dtype_of(v.type).name == "f32"]
        self.divisors: set[str] = set()
        """Tensors whose ranges do not hold zero."""
        self.outputs: list[Value] = []
        """Outputs that are no floats."""
        self.count = 0

    def pick(self, *options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def size(self, most: int) -> int:
        return int(self.random.integers(1, most + 1))

    def flag(self) -> bool:
        return bool(self.random.integers(2))

    def array(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
        return self.random.uniform(low, high, shape).astype(np.float32)

    def value(self) -> Value:
        """A value made earlier, more likely a late one."""
        back = min(self.pick(0, 0, 0, 0, 0, 1, 2, 3), len(self.values) - 1)
        return self.values[-1 - back]

    def add(self, kind: type[TopOp], /, *operands: Any, **properties: Any) -> Value:
        values = []
        for operand in operands:
            if isinstance(operand, np.ndarray):
                weight = self.graph.add_weight(f"w{len(self.graph.weights)}", operand)
                self.graph.block.add_op(weight)
                operand = weight.results[0]
            values.append(operand)
        self.count += 1
        count = len(kind.make(*values, **properties).results)
        names = [f"t{self.count}.{i}" if i else f"t{self.count}" for i in range(count)]
        op = kind.make(*values, **properties, name=names, layer=f"layer{self.count}")
        self.graph.block.add_op(op)
        self.values.extend(op.results)
        return op.results[0]


def _conv(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) != 4:
        return
    c = shape[1]
    form = b.pick("plain", "plain", "plain", "depthwise", "grouped", "point", "transposed")
    kernel = [1, 1] if form == "point" else [b.size(5), b.size(5)]
    dilations = [b.pick(1, 1, 2), b.pick(1, 1, 2)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [b.pick(0, r // 2, r - 1) for r in reach] + [b.pick(0, r // 2, r - 1) for r in reach]
    if any(n + pads[i] + pads[i + 2] < reach[i] for i, n in enumerate(shape[2:])):
        pads = [r - 1 for r in reach] * 2
    strides = [b.pick(1, 1, 2, 3), b.pick(1, 1, 2)]
    divisors = [g for g in range(1, c + 1) if c % g == 0]
    groups = {"depthwise": c, "grouped": b.pick(*divisors)}.get(form, 1)
    out = groups * b.pick(1, 1, 2) if groups > 1 else b.pick(1, 3, 8, 16, 17, 40)
    common: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": groups}
    relu = b.flag()
    bias = b.array(out) if b.flag() else None
    fan = 1 / np.sqrt(c // groups * kernel[0] * kernel[1])
    if form == "transposed":
        inside = [(n - 1) * s + r for n, s, r in zip(shape[2:], strides, reach, strict=True)]
        pads = [min(p, (i - 1) // 2) for p, i in zip([0, 1] if b.flag() else [1, 0], inside, strict=True)] * 2
        groups = b.pick(1, 1, b.pick(*divisors))
        per = b.pick(1, 2, 5)
        bias = b.array(groups * per) if bias is not None else None
        weight = b.array(c, per, *kernel) * np.float32(fan)
        extra = [b.size(s) - 1 for s in strides]
        b.add(
            top.Deconv,
            x,
            weight,
            bias,
            **(common | {"group": groups}),
            pads=pads,
            relu=relu,
            output_padding=extra,
        )
        return
    weight = b.array(out, c // groups, *kernel) * np.float32(fan)
    b.add(top.Conv, x, weight, bias, **common, pads=pads, relu=relu, relu_limit=b.pick(0.0, 1.0))


def _matmul(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) < 2:
        return
    form = b.pick("weights", "weights", "self", "fresh")
    if form == "self":
        # x times its own transpose: both operands are activations.
        b.add(top.MatMul, x, x, None, transpose_b=True)
        return
    columns = b.pick(1, 5, 16, 70)
    if form == "fresh":
        other = b.add(top.MatMul, x, b.array(shape[-1], columns, low=-0.3, high=0.3), None)
        turned = list(range(len(shape)))
        turned[-2:] = turned[-1], turned[-2]
        b.add(top.MatMul, b.add(top.Permute, x, order=turned), other, None)
        return
    transpose = b.flag()
    weight = b.array(*((columns, shape[-1]) if transpose else (shape[-1], columns)), low=-0.3, high=0.3)
    b.add(top.MatMul, x, weight, b.array(columns) if b.flag() else None, transpose_b=transpose)


def _binary(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    kind = b.pick(top.Add, top.Add, top.Sub, top.Mul, top.Mul, top.Max, top.Min)
    same = [v for v in b.values if v.type == x.type]
    form = b.pick("other", "other", "constant", "row", "reduced")
    other: Any = b.pick(*same)
    if form == "constant" and shape:
        lead = b.size(len(shape)) - 1
        other = b.array(*(n if b.flag() else 1 for n in shape[lead:]))
    elif form == "row" and len(shape) >= 2:
        other = b.array(*((1, shape[1]) + (1,) * (len(shape) - 2)))
    elif form == "reduced" and shape:
        axis = b.size(len(shape)) - 1
        other = b.add(top.Reduce, x, kind=b.pick("max", "mean"), axes=[axis], keepdims=True)
    first, second = (x, other) if b.flag() else (other, x)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return
    b.add(kind, first, second)


def _unary(b: Builder, x: Value) -> None:
    kind = b.pick(*_USUAL)
    extra = {"min": -0.5, "max": 0.75} if kind is top.Clip else {}
    b.add(kind, x, **extra)


def _prelu(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) >= 2:
        b.add(top.PRelu, x, b.array(shape[1], *(1,) * (len(shape) - 2)))


def _pool(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) != 4:
        return
    kernel = [min(b.size(5), n) for n in shape[2:]]
    if b.pick(True, False, False, False):
        kernel = list(shape[2:])
    pads = [b.pick(0, 0, (k - 1) // 2, k - 1) for k in kernel] + [b.pick(0, (k - 1) // 2) for k in kernel]
    common = {"kernel": kernel, "strides": [b.size(3), b.size(3)], "pads": pads, "ceil_mode": b.flag()}
    if b.flag():
        dilations = [2 if (k - 1) * 2 < n and b.flag() else 1 for k, n in zip(kernel, shape[2:], strict=True)]
        b.add(top.MaxPool, x, **common, dilations=dilations)
    else:
        b.add(top.AvgPool, x, **common, dilations=[1, 1], count_include_pad=b.flag())


def _pad(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    rank = len(shape)
    mode = b.pick("constant", "constant", "reflect", "edge")
    pads = [b.pick(0, 0, 1, 2) for _ in range(2 * rank)]
    if mode != "constant" and rank == 4:
        pads = [0 if axis % rank < 2 else p for axis, p in enumerate(pads)]
    pads = [min(p, shape[axis % rank] - 1) for axis, p in enumerate(pads)]
    if b.pick(True, False, False, False) and mode == "constant":
        pads = [-1 if p and shape[axis % rank] > 4 else p for axis, p in enumerate(pads)]
    b.add(top.Pad, x, pads=pads, mode=mode, value=b.pick(0.0, 0.5) if mode == "constant" else 0.0)


def _resize(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) != 4:
        return
    factor = [b.pick(1, 2, 2, 3), b.pick(1, 2, 2, 3)]
    sizes = [n * f for n, f in zip(shape[2:], factor, strict=True)]
    if b.pick(True, False, False):
        sizes = [b.size(2 * n) for n in shape[2:]]
    if shape[0] * shape[1] * sizes[0] * sizes[1] > _MOST:
        return
    mode = b.pick("nearest", "nearest", "linear")
    b.add(
        top.Resize, x, sizes=(*shape[:2], *sizes), mode=mode,
        coordinates=b.pick("half_pixel", "asymmetric", "align_corners"),
    )  # fmt: skip


def _cut(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if not shape:
        return
    axis = b.size(len(shape)) - 1
    if b.flag():
        offset, count, steps = [0] * len(shape), list(shape), [1] * len(shape)
        for cut_axis in {axis, b.size(len(shape)) - 1}:
            steps[cut_axis] = b.pick(1, 1, 2, 3, -1)
            count[cut_axis] = b.size(max(1, shape[cut_axis] // abs(steps[cut_axis])))
            reach = (count[cut_axis] - 1) * abs(steps[cut_axis])
            begin = b.size(shape[cut_axis] - reach) - 1
            offset[cut_axis] = begin + reach if steps[cut_axis] < 0 else begin
        b.add(top.Slice, x, offset=offset, steps=steps, shape=count)
        return
    if shape[axis] < 2:
        return
    first = b.size(shape[axis] - 1)
    b.add(top.Split, x, axis=axis, sizes=(first, shape[axis] - first))


def _gather(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    axis = b.size(len(shape)) - 1
    count = b.pick((), (b.size(7),), (b.size(3),))
    if len(shape) == 1 and not count:
        return
    b.add(top.Gather, x, b.random.integers(-shape[axis], shape[axis], count), axis=axis)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape with one axis left open."""
    return (*shape[:axis], 0, *shape[axis + 1 :])


def _concat(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if not shape:
        return
    axis = b.size(len(shape)) - 1
    fitting = [
        v
        for v in b.values
        if len(shape_of(v)) == len(shape) and _without(shape_of(v), axis) == _without(shape, axis)
    ]
    chosen: list[Any] = [x, *(b.pick(*fitting) for _ in range(b.size(2)))]
    b.add(top.Concat, chosen, axis=axis)


def _permute(b: Builder, x: Value) -> None:
    b.add(top.Permute, x, order=[int(i) for i in b.random.permutation(len(shape_of(x)))])


def _reshape(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    total = int(np.prod(shape))
    options: list[tuple[int, ...]] = [(total // shape[-1], shape[-1]), (shape[0], total // shape[0])]
    if len(shape) == 4:
        options += [(shape[0], shape[1], shape[2] * shape[3])] * 2
    if len(shape) < 4:
        options += [(*shape[:1], *(1,) * (4 - len(shape)), *shape[1:]), (*shape, *(1,) * (4 - len(shape)))]
    b.add(top.Reshape, x, shape=b.pick(*options))


def _blocks(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) != 4:
        return
    if shape[1] % 4 == 0 and b.flag():
        b.add(top.DepthToSpace, x, block=2, mode=b.pick("DCR", "CRD"))
    elif shape[2] % 2 == 0 and shape[3] % 2 == 0:
        b.add(top.SpaceToDepth, x, block=2)
    else:
        groups = [g for g in range(1, shape[1] + 1) if shape[1] % g == 0]
        b.add(top.ShuffleChannel, x, group=b.pick(*groups))


def _repeat(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if int(np.prod(shape)) * 4 > _MOST:
        return
    if b.flag():
        b.add(top.Tile, x, repeats=[b.pick(1, 1, 2) for _ in shape])
    elif 1 in shape:
        b.add(top.Expand, x, shape=[b.pick(2, 3) if n == 1 else n for n in shape])


def _rows(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    rank = len(shape)
    form = b.pick("softmax", "softmax", "layer", "rms", "l2", "instance", "group")
    axis = b.size(rank) - 1
    if form == "softmax":
        b.add(top.Softmax, x, axis=axis)
    elif form in ("layer", "rms"):
        count = shape[-1]
        kind = top.LayerNorm if form == "layer" else top.RMSNorm
        b.add(kind, x, b.array(count), b.array(count) if form == "layer" else None, axis=rank - 1)
    elif form == "l2":
        b.add(top.L2Norm, x, axis=axis)
    elif rank == 4 and form == "instance":
        b.add(top.InstanceNorm, x, b.array(shape[1]), b.array(shape[1]))
    elif rank == 4:
        groups = b.pick(*(g for g in range(1, shape[1] + 1) if shape[1] % g == 0))
        b.add(top.GroupNorm, x, b.array(shape[1]), b.array(shape[1]), groups=groups)


def _reduce(b: Builder, x: Value) -> None:
    rank = len(shape_of(x))
    axes = sorted({b.size(rank) - 1 for _ in range(b.size(3))})
    if len(axes) == rank:
        axes = axes[1:]
    if not axes:
        return
    b.add(top.Reduce, x, kind=b.pick("mean", "sum", "max", "min"), axes=axes, keepdims=b.flag())


_CELLS = ((top.LSTM, 4), (top.LSTM, 4), (top.GRU, 3), (top.RNN, 1))
"""Recurrent layers and their gates."""


def recurrent_step(b: Builder, x: Value, cells: tuple[tuple[type[TopOp], int], ...] = _CELLS) -> None:
    """A recurrent layer over a value, whatever its rank."""
    shape = shape_of(x)
    size = int(np.prod(shape))
    if len(shape) != 3 or size > 4000:
        inner = b.pick(*(n for n in range(1, 25) if size % n == 0))
        batch = b.pick(*(n for n in range(1, 4) if size // inner % n == 0))
        steps = size // inner // batch
        if steps > 40:
            return
        x = b.add(top.Reshape, x, shape=(steps, batch, inner))
    _, batch, inputs = shape_of(x)
    kind, gates = b.pick(*cells)
    hidden, direction = b.size(12), b.pick("forward", "reverse", "bidirectional")
    directions = 2 if direction == "bidirectional" else 1
    width = b.size(9) if kind is top.LSTM and b.flag() else hidden
    states = [b.array(directions, batch, size) if b.flag() else None for size in (width, hidden)]
    operands: list[Any] = [
        b.array(directions, gates * hidden, inputs),
        b.array(directions, gates * hidden, width),
        b.array(directions, 2 * gates * hidden) if b.flag() else None,
        None,
        states[0],
    ]
    properties: dict[str, Any] = {"clip": b.pick(0.0, 0.0, 0.7)}
    if kind is top.LSTM:
        operands += [states[1], b.array(directions, 3 * hidden) if b.flag() else None]
        if width != hidden:
            operands.append(b.array(directions, width, hidden))
            properties.clear()
        else:
            properties["input_forget"] = b.flag()
    elif kind is top.GRU:
        properties["linear_before_reset"] = b.flag()
    else:
        properties["activations"] = b.pick((), ("Relu",) * directions)
    b.add(kind, x, *operands, hidden=hidden, direction=direction, **properties)


def _best(b: Builder, x: Value) -> None:
    x = b.add(top.Sigmoid, x)
    axis = b.size(len(shape_of(x))) - 1
    values = b.add(top.TopK, x, k=b.size(shape_of(x)[axis]), axis=axis, largest=b.flag())
    if b.flag():
        b.outputs.append(values.owner.results[1])
    b.values = [value for value in b.values if dtype_of(value.type).name == "f32"]


def _volume(b: Builder, x: Value) -> None:
    """Convolutions and pools of three axes."""
    shape = shape_of(x)
    if len(shape) != 4:
        return
    x = b.add(top.Reshape, x, shape=(shape[0], 1, *shape[1:]))
    kernel = [min(b.size(3), n) for n in shape[1:]]
    pads = [b.pick(0, 0, (k - 1) // 2) for k in kernel] * 2
    common: dict[str, Any] = {
        "strides": [b.pick(1, 1, 2) for _ in kernel],
        "pads": pads,
        "dilations": [1, 1, 1],
    }
    form = b.pick("conv", "max", "mean")
    if form == "conv":
        y = b.add(top.Conv, x, b.array(b.pick(1, 2), 1, *kernel) * np.float32(0.3), None, **common)
    elif form == "max":
        y = b.add(top.MaxPool, x, kernel=kernel, **common)
    else:
        y = b.add(top.AvgPool, x, kernel=kernel, **common, count_include_pad=b.flag())
    n, c, d, h, w = shape_of(y)
    b.add(top.Reshape, y, shape=(n, c * d, h, w))


def _sums(b: Builder, x: Value) -> None:
    b.add(top.CumSum, x, axis=b.size(len(shape_of(x))) - 1, exclusive=b.flag(), reverse=b.flag())


def _choice(b: Builder, x: Value) -> None:
    """Comparisons of integers, and what they choose."""
    x = b.add(top.Tanh, x)
    other = b.add(top.Abs, b.pick(*(v for v in b.values if v.type == x.type)))
    limit = b.pick(np.array(b.pick(0.0, 0.25), np.float32), other)
    condition = b.add(top.Compare, x, limit, mode=b.pick("less", "greater_equal", "equal", "greater"))
    if b.flag():
        constant = b.random.integers(0, 2, shape_of(x)).astype(bool)
        condition = b.add(top.Logical, condition, constant, mode=b.pick("and", "or", "xor"))
    if b.flag():
        condition = b.add(top.Not, condition)
    b.values = [value for value in b.values if dtype_of(value.type).name == "f32"]
    sides = [x, b.pick(other, np.array(b.pick(0.0, 0.5), np.float32))]
    b.add(top.Where, condition, *(sides if b.flag() else sides[::-1]))


def _index(b: Builder, x: Value) -> None:
    """Elements at constant indices, read and written, and borders along any axis."""
    shape = shape_of(x)
    axis = b.size(len(shape)) - 1
    few = tuple(b.size(n) if i == axis else n for i, n in enumerate(shape))
    indices = b.random.integers(-shape[axis], shape[axis], few)
    form = b.pick("read", "write", "border", "rows")
    if form == "read":
        b.add(top.GatherElements, x, indices, axis=axis)
    elif form == "write":
        b.add(top.ScatterElements, x, indices, b.array(*few), axis=axis)
    elif form == "rows":
        b.add(top.GatherND, x, b.random.integers(-shape[0], shape[0], (b.size(3), 1)))
    else:
        pads = [min(b.pick(0, 1, 2), shape[i % len(shape)] - 1) for i in range(2 * len(shape))]
        b.add(top.Pad, x, pads=pads, mode=b.pick("reflect", "edge", "wrap"))


def _lookup(b: Builder, x: Value) -> None:
    """Rows of a table, or of an activation, by indices that are another input of the network."""
    indices = b.graph.find("indices")
    shape = shape_of(x)
    if indices is None or not shape:
        return
    rows: Any = b.array(_TABLE_ROWS, b.size(9)) if b.flag() or shape[0] < _TABLE_ROWS else x
    b.add(top.Gather, rows, indices, axis=0)


def _quotient(b: Builder, x: Value) -> None:
    divisor = b.add(top.Add, b.add(top.Sigmoid, x), np.array(b.pick(0.5, 1.0), np.float32))
    b.add(top.Div, x, divisor)
    b.divisors.update(result_names(divisor.owner))


def _norms(b: Builder, x: Value) -> None:
    axis = b.size(len(shape_of(x))) - 1
    b.add(top.Reduce, x, kind=b.pick("l1", "l2", "sum_square", "log_sum_exp"), axes=[axis], keepdims=True)


def _scaled(b: Builder, x: Value) -> None:
    """Resizes that are matrix products, and scales that are convolutions."""
    shape = shape_of(x)
    if len(shape) < 2:
        return
    if b.flag():
        b.add(top.Scale, x, b.array(shape[1]), b.array(shape[1]))
        return
    sizes = [b.size(2 * n) if i else n for i, n in enumerate(shape)]
    if int(np.prod(sizes)) <= _MOST:
        mode = b.pick("nearest", "linear", "cubic") if len(shape) in (2, 4) else "nearest"
        b.add(top.Resize, x, sizes=sizes, mode=mode)


def _function(kind: type[TopOp], b: Builder, x: Value) -> None:
    b.add(kind, x)


def _best_index(b: Builder, x: Value) -> None:
    """The place of the largest or the smallest element along any axis."""
    x = b.add(top.Tanh, x)
    index = b.add(
        top.ArgReduce,
        x,
        axis=b.size(len(shape_of(x))) - 1,
        max=b.flag(),
        keepdims=b.flag(),
        select_last=b.flag(),
    )
    b.values.remove(index)
    b.outputs.append(index)


def _attention(b: Builder, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) != 4:
        x = b.add(top.Reshape, x, shape=(1, 1, int(np.prod(shape[:-1])), shape[-1]))
    batch, heads, rows, _ = shape_of(x)
    if batch * heads * rows * rows > _MOST:
        x = b.add(top.Slice, x, offset=[0] * 4, steps=[1] * 4, shape=(1, 1, *shape_of(x)[2:]))
    mask = b.array(*(n if b.flag() else 1 for n in (1, 1, rows, rows))) if b.flag() else None
    b.add(top.Attention, x, x, b.add(top.Tanh, x), mask, scale=b.pick(0.25, 1.0))


def _batch_norm(b: Builder, x: Value) -> None:
    """Behind no layer that could take it in."""
    shape = shape_of(x)
    if len(shape) < 2:
        x = b.add(top.Reshape, x, shape=(1, *shape))
    c = shape_of(x)[1]
    b.add(top.BatchNorm, b.add(top.Abs, x), b.array(c), b.array(c), b.array(c), b.array(c, low=0.5, high=2.0))


def _points(b: Builder, x: Value) -> None:
    """An image sampled at constant points."""
    shape = shape_of(x)
    if len(shape) != 4 or shape[0] > 1:
        x = b.add(top.Reshape, x, shape=(1, 1, int(np.prod(shape[:-1])), shape[-1]))
    grid = b.array(1, b.size(5), b.size(5), 2, low=-1.2, high=1.2)
    b.add(
        top.GridSample, x, grid, mode=b.pick("linear", "nearest"), padding=b.pick("zeros", "border"),
        align_corners=b.flag(),
    )  # fmt: skip


def _replaced(b: Builder, x: Value) -> None:
    """Slices at constant indices, replaced."""
    shape = shape_of(x)
    count = b.size(shape[0])
    indices = b.random.permutation(shape[0])[:count].reshape(count, 1)
    b.add(top.ScatterND, x, indices, b.array(count, *shape[1:]))


def _power(b: Builder, x: Value) -> None:
    b.add(top.Pow, b.add(top.Abs, x), np.array(b.pick(2.0, 3.0, 0.5), np.float32))


def _truth(b: Builder, x: Value) -> None:
    """A comparison as zeros and ones."""
    condition = b.add(top.Compare, b.add(top.Tanh, x), np.array(0.25, np.float32), mode="less")
    b.values.remove(condition)
    b.add(top.Cast, condition, to="f32")


Step = Callable[[Builder, Value], None]
STEPS: tuple[Step, ...] = (
    _conv, _conv, _conv, _conv, _matmul, _matmul, _binary, _binary, _unary, _unary, _prelu, _pool, _pool, _pad, _resize,
    _cut, _gather, _concat, _permute, _reshape, _blocks, _repeat, _rows, _reduce,
    _best, _volume, _sums, _choice, _index, _lookup, _quotient, _norms, _scaled,
)  # fmt: skip


_USUAL = (
    top.Relu,
    top.Sigmoid,
    top.Tanh,
    top.SiLU,
    top.LeakyRelu,
    top.HardSwish,
    top.Clip,
    top.Gelu,
    top.Abs,
)
"""The functions of `_unary`."""
RARE: tuple[Step, ...] = (
    *(partial(recurrent_step, cells=(cell,)) for cell in dict.fromkeys(_CELLS)),
    _best_index, _attention, _batch_norm, _points, _replaced, _power, _truth,
)  # fmt: skip
_IN_TURN = (*RARE, *(partial(_function, kind) for kind in FUNCTIONS if kind not in _USUAL))
"""Steps that networks have in turn, so that each is met, rather than by chance: ops that others leave out, and all functions."""


NETWORKS, FLOAT_NETWORKS = 320, 96
"""How many networks the tests of random networks go through: of integers, and of floats."""


def drawn_network(seed: int) -> tuple[Graph, dict[str, tuple[float, float]]]:
    """The network of a test that goes through many seeds: every other one has a step of those that come in turn."""
    return network(seed, also=_IN_TURN[seed // 2 % len(_IN_TURN)] if seed % 2 else None)


def network(
    seed: int, most_steps: int = 8, also: Step | None = None
) -> tuple[Graph, dict[str, tuple[float, float]]]:
    """A network, and a range for each of its tensors; `also` is a step that it has among others."""
    b = Builder(seed)
    count = int(b.random.integers(2, most_steps + 1))
    for step in range(count):
        x = b.value()
        if 0 < int(np.prod(shape_of(x))) <= _MOST and shape_of(x):
            if also is not None and step == count // 2:
                also(b, x)
            else:
                b.pick(*STEPS)(b, x)
    outputs = [v for v in b.values if v.first_use is None or b.random.integers(6) == 0]
    inputs = list(b.graph.block.args)
    outputs = [*(v for v in outputs if v not in inputs), *b.outputs]
    if not outputs:
        return network(seed + 1_000_000, most_steps, also)
    b.graph.set_outputs([(f"y{i}", value) for i, value in enumerate(outputs)])
    b.graph.verify()
    graph = expanded(b.graph)
    graph.verify()
    ranges = {port.name: (-1.0, 1.0) for port in graph.inputs}
    for op in graph.ops:
        if op.results and not isinstance(op, top.WeightOp):
            for name in result_names(op):
                high = float(b.pick(0.5, 1.0, 2.0, 3.3))
                ranges[name] = (high / 4, high) if name in b.divisors else (b.pick(-high, -high, 0.0), high)
    return graph, ranges


SIZES = (2 << 10, 4 << 10, 8 << 10, 12 << 10, 16 << 10, 24 << 10, 48 << 10, 96 << 10, 512 << 10)
"""Sizes of local memory."""


def add_widths(data: dict[str, Any]) -> None:
    """Give a machine weights of 2 to 16 bits, and activations of 8 to 16, in every step."""
    weights, activations = (
        data["arithmetic"]["weights"]["formats"],
        data["arithmetic"]["activations"]["formats"],
    )
    rates = data["compute"]["array"]["rates"]
    scales = ["symmetric", "power_of_two"]
    for bits in range(2, 17):
        weights.setdefault(f"i{bits}", scales)
        if 8 < bits < 16:
            activations.setdefault(f"i{bits}", scales)
            rates.setdefault(f"i{bits}", dict(rates["i16"]))
    for row in rates.values():
        least = min(map(Fraction, row.values()))
        for bits in range(2, 17):
            row.setdefault(f"i{bits}", str(least if bits > 8 else row["i8"]))


def machine(size: int, cores: int = 1, shared: int = 0) -> Target:
    """The reference machine with little local memory, and with more cores."""
    data = load_target("server-32t" if shared else "edge-4t").model_dump(mode="json")
    add_widths(data)
    data["memory"]["local"]["size"] = size
    data["compute"]["cores"] = cores
    if shared:
        data["memory"]["shared"]["size"] = shared
    return Target.from_dict(data)
