"""Random valid Top graphs for property tests.

`graphs()` draws a small network of f32 tensors (with some integers) that uses the common ops, and with them the idioms
that the passes look for: conv + norm + relu, permute … permute, slices that are joined again, constants that can be
folded. Every value that nothing uses is an output, and some that are used are too.

    @given(graphs())
    def test_something(graph: Graph) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from npuc.arrays import Array
from npuc.ir import Graph, Value, dtype_of, shape_of, tensor_type, top
from npuc.ir.definition import TopOp

_MOST_ELEMENTS = 2048


class Sketch:
    """A graph in the making."""

    def __init__(self, draw: DrawFn) -> None:
        self.draw = draw
        rank = self.pick(4, 4, 4, 3, 2)
        shape = (self.pick(1, 2), self.pick(2, 4, 6), self.pick(4, 5, 6), self.pick(4, 6))[:rank]
        ports = [("x", tensor_type(shape, "f32"))]
        if self.flag():
            ports.append(("z", tensor_type(shape, "f32")))
        self.graph = Graph.empty(ports)
        self.random = np.random.default_rng(self.integer(0, 1 << 16))
        self.values: list[Value] = list(self.graph.block.args)
        self.count = 0

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def value(self, kind: str = "f") -> Value | None:
        """A value made earlier, more likely a late one."""
        candidates = [v for v in self.values if dtype_of(v.type).numpy.kind == kind]
        if not candidates:
            return None
        return candidates[-1 - min(self.pick(0, 0, 0, 0, 1, 2, 4), len(candidates) - 1)]

    def array(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
        return self.random.uniform(low, high, shape).astype(np.float32)

    def weight(self, array: Array) -> Value:
        op = self.graph.add_weight(f"w{len(self.graph.weights)}", array)
        self.graph.block.add_op(op)
        return op.results[0]

    def add(self, kind: type[TopOp], /, *operands: Any, **properties: Any) -> Value:
        values = [self.weight(v) if isinstance(v, np.ndarray) else v for v in operands]
        op = kind.make(*values, **properties)
        self.count += 1
        names = [f"t{self.count}.{i}" if i else f"t{self.count}" for i in range(len(op.results))]
        op = kind.make(*values, **properties, name=names, layer=f"layer{self.count}")
        self.graph.block.add_op(op)
        self.values.extend(op.results)
        return op.results[0]


def _size(value: Value) -> int:
    return int(np.prod(shape_of(value)))


def _constant_for(s: Sketch, shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> Array:
    """One number, one a channel, one a column, or one an element."""
    form = s.pick("scalar", "one", "channel", "channel", "column", "full")
    if form == "channel" and len(shape) >= 2:
        lead = s.pick((), (1,))
        return s.array(*lead, shape[1], *(1,) * (len(shape) - 2), low=low, high=high)
    if form == "column" and shape:
        return s.array(shape[-1], low=low, high=high)
    if form == "full":
        return s.array(*shape, low=low, high=high)
    return s.array(*((1,) * s.pick(0, 1) if shape else ()), low=low, high=high)


def _unary(s: Sketch, x: Value) -> None:
    kind = s.pick(
        top.Relu, top.Relu, top.Sigmoid, top.Neg, top.Abs, top.Tanh, top.LeakyRelu, top.Floor, top.Clip
    )
    properties: dict[str, Any] = {}
    if kind is top.Relu:
        properties["limit"] = s.pick(0.0, 0.5)
    if kind is top.Clip:
        properties = {"min": s.pick(0.0, -0.5, -np.inf), "max": s.pick(0.75, 6.0, np.inf)}
    s.add(kind, x, **properties)


def _with_constant(s: Sketch, x: Value) -> None:
    kind = s.pick(top.Add, top.Add, top.Mul, top.Mul, top.Sub, top.Div, top.Max, top.Min, top.Pow, top.PRelu)
    shape = shape_of(x)
    constant = s.pick(np.float32(0.0), np.float32(1.0), np.float32(2.0), None, None, None, None)
    constant = _constant_for(s, shape) if constant is None else np.asarray(constant)
    if kind is top.Pow:
        s.add(kind, s.add(top.Abs, x), np.asarray(s.pick(np.float32(1), np.float32(2), np.float32(0.5))))
    elif kind is top.PRelu:
        s.add(kind, x, constant)
    elif kind is top.Div:
        divisor = s.pick(np.asarray(np.float32(4.0)), _constant_for(s, shape, 0.5, 2.0))
        if s.flag():
            s.add(kind, x, divisor)
        else:
            s.add(kind, divisor, s.add(top.Add, s.add(top.Abs, x), np.asarray(np.float32(0.5))))
    elif s.pick(True, True, False):
        s.add(kind, x, constant)
    else:
        s.add(kind, constant, x)


def _binary(s: Sketch, x: Value) -> None:
    others = [v for v in s.values if v.type == x.type]
    other = others[s.integer(0, len(others) - 1)]
    s.add(s.pick(top.Add, top.Add, top.Mul, top.Sub, top.Max), x, other)


def _conv(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    spatial = len(shape) - 2
    if spatial < 1 or min(shape[2:]) < 1:
        return _matmul(s, x)
    group = s.pick(1, 1, shape[1], 2 if shape[1] % 2 == 0 else 1)
    out = s.pick(1, 2) * group
    kernel = [s.integer(1, min(3, n)) for n in shape[2:]]
    pads = [s.pick(0, 0, 1) for _ in range(2 * spatial)]
    strides = [s.pick(1, 1, 2) for _ in kernel]
    bias = s.array(out) if s.flag() else None
    weight = s.array(out, shape[1] // group, *kernel)
    common = {"strides": strides, "pads": pads, "dilations": [1] * spatial, "group": group}
    if s.pick(True, True, True, False):
        s.add(top.Conv, x, weight, bias, **common)
    else:
        weight = s.array(shape[1], s.pick(1, 2), *kernel)
        bias = s.array(weight.shape[1] * group) if s.flag() else None
        common["pads"] = [0] * 2 * spatial
        s.add(top.Deconv, x, weight, bias, **common, output_padding=[0] * spatial)


def _matmul(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) < 2:
        return
    columns, transpose = s.pick(2, 3, 5), s.flag()
    lead = s.pick((), (), (1,) * (len(shape) - 2))
    weight = s.array(*lead, *((columns, shape[-1]) if transpose else (shape[-1], columns)))
    bias = s.array(columns) if s.flag() else None
    if s.flag() and len(shape) > 2:
        x = s.add(top.Reshape, x, shape=(_size(x) // shape[-1], shape[-1]))
        y = s.add(top.MatMul, x, weight.reshape(weight.shape[-2:]), bias, transpose_b=transpose)
        s.add(top.Reshape, y, shape=(*shape[:-1], columns))
    else:
        s.add(top.MatMul, x, weight, bias, transpose_b=transpose)


def _norm(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    if len(shape) < 2:
        return
    c = shape[1]
    if s.flag():
        s.add(
            top.BatchNorm, x, s.array(c), s.array(c), s.array(c), s.array(c, low=0.1, high=2.0), epsilon=1e-3
        )
    else:
        s.add(top.Scale, x, s.array(c), s.array(c))


def _pool(s: Sketch, x: Value, padded: bool = False) -> None:
    shape = shape_of(x)
    spatial = len(shape) - 2
    if not 1 <= spatial <= 2 or min(shape[2:]) < 1:
        return
    # ONNX Runtime merges a pad into a pool even where it then refuses the pool, so those are kept apart here.
    kernel = [s.integer(min(2, n) if padded else 1, min(3, n)) for n in shape[2:]]
    pads = [0 if padded else s.integer(0, k - 1) for k in kernel] * 2
    common = {
        "kernel": kernel,
        "strides": [s.pick(1, 2) for _ in kernel],
        "pads": pads,
        "dilations": [1] * spatial,
    }
    if s.flag():
        s.add(top.MaxPool, x, **common)
    else:
        s.add(top.AvgPool, x, **common, count_include_pad=s.flag())


def _pad(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    rank = len(shape)
    spatial = [0, 0, *(s.pick(0, 1, 1) for _ in range(rank - 2))][:rank] * 2
    anywhere = [s.pick(0, 1) for _ in range(2 * rank)]
    value = s.pick(0.0, 0.0, 0.5)
    if s.pick(True, True, False) and rank >= 3:
        if s.flag():
            x = s.add(top.Relu, x)
        x = s.add(top.Pad, x, pads=spatial, value=value)
        if s.flag():
            _conv(s, x)
        else:
            _pool(s, x, padded=True)
    else:
        s.add(top.Pad, x, pads=anywhere, value=value)


def _reduce(s: Sketch, x: Value) -> None:
    rank = len(shape_of(x))
    if rank == 0:
        return
    axes = tuple(range(2, rank)) if rank >= 3 and s.flag() else tuple({s.integer(0, rank - 1)})
    s.add(top.Reduce, x, kind=s.pick("mean", "mean", "max", "sum"), axes=axes, keepdims=s.flag())


def _permute(s: Sketch, x: Value) -> None:
    rank = len(shape_of(x))
    order = s.draw(st.permutations(range(rank)))
    y = s.add(top.Permute, x, order=order)
    if s.flag():
        for _ in range(s.integer(0, 2)):
            s.pick(_unary, _with_constant, _axis, _cut)(s, y)
            y = s.values[-1]
        if len(shape_of(y)) == rank:
            back = s.pick([order.index(axis) for axis in range(rank)], order)
            s.add(top.Permute, y, order=back)


def _axis(s: Sketch, x: Value) -> None:
    rank = len(shape_of(x))
    if rank:
        s.add(s.pick(top.Softmax, top.LogSoftmax), x, axis=s.integer(-rank, rank - 1))


def _reshape(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    flat = (_size(x),)
    squeezed = tuple(n for n in shape if n != 1)
    rows = (_size(x) // shape[-1], shape[-1]) if shape and shape[-1] else flat
    new = s.pick(flat, squeezed, rows, (1, *shape), (*shape, 1))
    if len(new) > 5:
        return
    y = s.add(top.Reshape, x, shape=new)
    if s.flag():
        for _ in range(s.integer(0, 2)):
            s.pick(_unary, _with_constant)(s, y)
            y = s.values[-1]
        if _size(y) == _size(x):
            s.add(top.Reshape, y, shape=s.pick(shape, flat))


def _cut(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    if not shape or 0 in shape:
        return
    axis = s.integer(0, len(shape) - 1)
    if s.flag():
        offset, count, steps = [0] * len(shape), list(shape), [1] * len(shape)
        steps[axis] = s.pick(1, 1, 2, -1)
        count[axis] = s.integer(1, max(1, shape[axis] // abs(steps[axis])))
        reach = (count[axis] - 1) * abs(steps[axis])
        begin = s.integer(0, shape[axis] - 1 - reach)
        offset[axis] = begin + reach if steps[axis] < 0 else begin
        s.add(top.Slice, x, offset=offset, steps=steps, shape=count)
    else:
        first = s.integer(1, shape[axis])
        sizes = (first, shape[axis] - first) if first < shape[axis] else (first,)
        s.add(top.Split, x, axis=axis, sizes=sizes)


def _cut_and_join(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    axes = [axis for axis, n in enumerate(shape) if n >= 2]
    if not axes:
        return
    axis = axes[s.integer(0, len(axes) - 1)]
    middle = s.integer(1, shape[axis] - 1)
    parts = []
    for begin, end in ((0, middle), (middle, shape[axis])):
        offset, count = [0] * len(shape), list(shape)
        offset[axis], count[axis] = begin, end - begin
        parts.append(s.add(top.Slice, x, offset=offset, steps=[1] * len(shape), shape=count))
    if s.flag():
        parts[0] = s.add(top.Relu, parts[0])
    s.add(top.Concat, s.pick(parts, parts[::-1]), axis=s.pick(axis, axis - len(shape)))


def _concat(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    if not shape:
        return
    others = [v for v in s.values if v.type == x.type]
    chosen = [x, *(others[s.integer(0, len(others) - 1)] for _ in range(s.integer(0, 2)))]
    s.add(top.Concat, chosen, axis=s.integer(0, len(shape) - 1))


def _repeat(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    if not shape or len(shape) > 4:
        return
    if s.flag():
        s.add(top.Tile, x, repeats=[s.pick(1, 1, 2) for _ in shape])
    else:
        s.add(top.Expand, x, shape=(s.pick(1, 2), *shape))


def _constants(s: Sketch, x: Value) -> None:
    shape = shape_of(x)
    constant = s.add(top.Exp, _constant_for(s, shape))
    s.add(top.Mul, x, s.add(s.pick(top.Neg, top.Sigmoid), constant))


def _integers(s: Sketch, x: Value) -> None:
    y = s.value("i")
    if y is None or s.flag():
        s.add(top.Cast, x, to="i32")
        return
    kind = s.pick(top.Add, top.Mul, top.Sub, top.Max)
    s.add(kind, y, np.asarray(s.pick(0, 1, 3), np.int32))


_STEPS: tuple[Callable[[Sketch, Value], None], ...] = (
    _unary,
    _unary,
    _with_constant,
    _with_constant,
    _binary,
    _conv,
    _conv,
    _matmul,
    _norm,
    _norm,
    _pool,
    _pad,
    _reduce,
    _permute,
    _axis,
    _reshape,
    _cut,
    _cut_and_join,
    _concat,
    _repeat,
    _constants,
    _integers,
)


@st.composite
def _graphs(draw: DrawFn, most_steps: int) -> Graph:
    s = Sketch(draw)
    for _ in range(s.integer(3, most_steps)):
        x = s.value()
        if x is not None and 0 < _size(x) <= _MOST_ELEMENTS:
            draw(st.sampled_from(_STEPS))(s, x)
    outputs = [v for v in s.values if v.first_use is None or s.pick(False, False, False, False, False, True)]
    s.graph.set_outputs([(f"y{index}", value) for index, value in enumerate(outputs)])
    s.graph.verify()
    return s.graph


def graphs(most_steps: int = 10) -> SearchStrategy[Graph]:
    """Graphs of up to `most_steps` idioms."""
    return _graphs(most_steps)
