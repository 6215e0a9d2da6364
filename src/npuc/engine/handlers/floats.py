"""bf16, f16 and f32 through the native core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuc.engine.handlers import Step, handles
from npuc.engine.handlers.layout import elementwise, inward, outward
from npuc.ir import Graph, dtype_of, npu, shape_of
from npuc.kernels import float_rows, floats


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return values[0], values[1]


@handles(npu.Cast, recordable=True, in_place=True)
def cast(op: npu.Cast, graph: Graph, threads: int) -> Step:
    """To another width."""
    dtype = dtype_of(op.to).numpy
    return elementwise(lambda x: floats.cast(x, dtype, threads=threads))


@handles(npu.FloatConv, npu.FloatDeconv, recordable=True)
def conv(op: Any, graph: Graph, threads: int) -> Step:
    """Weights are packed once."""
    weight = graph.constant(op.weight)
    assert weight is not None
    transposed = isinstance(op, npu.FloatDeconv)
    plan = floats.FloatConvPlan(
        weight,
        graph.constant(op.bias),
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        groups=op.group,
        transposed=transposed,
        output_padding=op.output_padding if transposed else (0, 0),
        relu=op.relu,
        relu_limit=op.relu_limit,
    )
    return lambda arrays: [outward(plan.run(inward(arrays[0]), threads))]


@handles(npu.FloatMatMul, recordable=True)
def matmul(op: npu.FloatMatMul, graph: Graph, threads: int) -> Step:
    """With a constant matrix, packed once, or of two activations."""
    weight, bias = graph.constant(op.weight), graph.constant(op.bias)
    options: dict[str, Any] = {"relu": op.relu, "relu_limit": op.relu_limit}
    if weight is not None and weight.ndim == 2:
        plan = floats.FloatMatMulPlan(weight.T if op.transpose_b else weight, bias, **options)
        return lambda arrays: [plan.run(arrays[0], threads)]
    transpose = op.transpose_b
    return lambda arrays: [
        floats.matmul(arrays[0], arrays[1], bias, transpose_b=transpose, threads=threads, **options)
    ]


@handles(npu.FloatAdd, npu.FloatSub, npu.FloatMul, recordable=True)
def binary(op: Any, graph: Graph, threads: int) -> Step:
    """Two operands, broadcast."""
    rank = len(shape_of(op.y))
    operation = op.name.removeprefix("npu.float_")
    options: dict[str, Any] = {"relu": op.relu, "relu_limit": op.relu_limit, "threads": threads}
    return lambda arrays: [
        outward(floats.binary(operation, *(inward(array, rank) for array in arrays), **options))
    ]


@handles(npu.FloatMax, npu.FloatMin, recordable=True)
def choose(op: Any, graph: Graph, threads: int) -> Step:
    """The larger or the smaller of two operands, broadcast."""
    rank, larger = len(shape_of(op.y)), isinstance(op, npu.FloatMax)
    return lambda arrays: [
        outward(float_rows.choose(*(inward(array, rank) for array in arrays), larger=larger, threads=threads))
    ]


@handles(npu.FloatTable, recordable=True)
def table(op: npu.FloatTable, graph: Graph, threads: int) -> Step:
    """A look-up by bits."""
    entries = graph.constant(op.table)
    assert entries is not None
    return elementwise(lambda x: floats.lookup(x, entries, threads=threads))


@handles(npu.FloatAvgPool, recordable=True)
def avg_pool(op: npu.FloatAvgPool, graph: Graph, threads: int) -> Step:
    """The mean of each window."""
    window = tuple(map(_pair, (op.kernel, op.strides, op.pads, shape_of(op.y)[2:])))
    options: dict[str, Any] = {
        "dilation": _pair(op.dilations),
        "include_pad": op.count_include_pad,
        "threads": threads,
    }
    return lambda arrays: [outward(floats.average_pool(inward(arrays[0]), *window, **options))]


@handles(npu.FloatMaxPool, recordable=True)
def max_pool(op: npu.FloatMaxPool, graph: Graph, threads: int) -> Step:
    """The largest of each window."""
    window = tuple(map(_pair, (op.kernel, op.strides, op.pads, shape_of(op.y)[2:])))
    dilation = _pair(op.dilations)
    return lambda arrays: [
        outward(floats.largest_pool(inward(arrays[0]), *window, dilation=dilation, threads=threads))
    ]


@handles(npu.FloatSoftmax)
def softmax(op: npu.FloatSoftmax, graph: Graph, threads: int) -> Step:
    """Along any axis."""
    axis = op.axis
    return lambda arrays: [float_rows.softmax(arrays[0], axis, threads=threads)]


@handles(npu.FloatNorm)
def norm(op: npu.FloatNorm, graph: Graph, threads: int) -> Step:
    """All modes."""
    gain, bias = graph.constant(op.gain), graph.constant(op.bias)
    assert gain is not None and bias is not None
    options: dict[str, Any] = {"epsilon": op.epsilon, "threads": threads}
    axis, groups, center = op.axis, op.groups, op.mode == "layer"
    if op.mode in ("instance", "group"):
        return lambda arrays: [float_rows.group_norm(arrays[0], gain, bias, groups=groups, **options)]
    if op.mode == "l2":
        return lambda arrays: [float_rows.l2_norm(arrays[0], axis=axis, **options)]
    return lambda arrays: [float_rows.layer_norm(arrays[0], gain, bias, axis=axis, center=center, **options)]


@handles(npu.FloatReduce)
def reduce(op: npu.FloatReduce, graph: Graph, threads: int) -> Step:
    """A sum, a mean, the largest or the smallest."""
    axes, mean, keep = op.axes, op.kind == "mean", op.keepdims
    if op.kind in ("max", "min"):
        larger = op.kind == "max"
        return lambda arrays: [
            float_rows.extreme(arrays[0], axes, larger=larger, keepdims=keep, threads=threads)
        ]
    return lambda arrays: [float_rows.reduce_sum(arrays[0], axes, mean=mean, keepdims=keep, threads=threads)]
