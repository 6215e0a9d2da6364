"""Integer arithmetic through the native core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.arithmetic.requantization import AddScaling
from npuc.arrays import Array
from npuc.engine.handlers import Step, always, handles
from npuc.engine.handlers.layout import elementwise, inward, outward
from npuc.ir import Graph, Value, npu, shape_of, top
from npuc.ir.dtypes import QuantType, dtype_of, quant_of
from npuc.kernels import ConvPlan, MatMulPlan, Requant, eltwise, float_rows, floats, matmul, pooling, tables


def type_of(value: Value) -> QuantType:
    """The quantized type of a value that has one."""
    kind = quant_of(value)
    assert kind is not None
    return kind


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return values[0], values[1]


def _stage(op: Any, multiplier: Any = None, shift: Any = None, scale: Any = None) -> Requant:
    return Requant(op.kind, multiplier, shift, scale, op.to.zero_point, lo=op.lo, hi=op.hi)


def flat_stage(op: Any) -> Requant:
    """The output stage of an op that states its numbers as properties."""
    numbers = np.array(op.parameters, np.int64)
    if op.kind.has_scale:
        return _stage(op, scale=np.array(op.factors, np.float32))
    if not op.kind.has_multiplier:
        return _stage(op, shift=numbers)
    if not numbers.size:  # an average under `double_rounding` divides by itself
        return _stage(op, np.array([1 << 30]), np.array([31]))
    return _stage(op, numbers[0::2], numbers[1::2])


def _constants(op: Any, graph: Graph) -> tuple[Requant, Array | None]:
    stage = [graph.constant(value) for value in (op.multiplier, op.shift, op.factor)]
    return _stage(op, *stage), graph.constant(op.bias)


def _weights(op: Any, graph: Graph) -> Array | None:
    weight = graph.constant(op.weight)
    if weight is None or quant_of(op.weight) is not None:
        return None
    return weight if weight.dtype.kind in "iu" and weight.dtype.isbuiltin == 1 else weight.astype(np.int8)


@handles(npu.Conv, npu.Deconv, recordable=True)
def conv(op: Any, graph: Graph, threads: int) -> Step:
    """Weights are packed once."""
    weight = _weights(op, graph)
    assert weight is not None
    stage, bias = _constants(op, graph)
    transposed = isinstance(op, npu.Deconv)
    plan = ConvPlan(
        weight,
        bias,
        x_dtype=type_of(op.x).dtype.numpy,
        y_dtype=op.to.dtype.numpy,
        requant=stage,
        x_zero_point=type_of(op.x).zero_point,
        weight_zero_point=op.weight_zero_point,
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        groups=op.group,
        transposed=transposed,
        output_padding=op.output_padding if transposed else (0, 0),
    )
    return lambda arrays: [outward(plan.run(inward(arrays[0]), threads))]


@handles(npu.MatMul, recordable=True)
def matmul_(op: npu.MatMul, graph: Graph, threads: int) -> Step:
    """With packed weights, or of two activations."""
    stage, bias = _constants(op, graph)
    weight = _weights(op, graph)
    x = type_of(op.x)
    assert isinstance(op.to, QuantType)
    y_dtype = op.to.dtype.numpy
    if weight is not None:
        plan = MatMulPlan(
            weight.T if op.transpose_b else weight,
            bias,
            x_dtype=x.dtype.numpy,
            y_dtype=y_dtype,
            requant=stage,
            x_zero_point=x.zero_point,
            weight_zero_point=op.weight_zero_point,
        )
        return lambda arrays: [plan.run(arrays[0], threads)]
    zero = type_of(op.weight).zero_point

    def run(arrays: list[Array]) -> list[Array]:
        a, b = arrays[0], arrays[1]
        out = matmul(
            a,
            b,
            stage,
            a_zero_point=x.zero_point,
            b_zero_point=zero,
            y_dtype=y_dtype,
            transpose_b=op.transpose_b,
            threads=threads,
        )
        return [out]

    return run


@handles(npu.Add, npu.Sub, recordable=True)
def add(op: Any, graph: Graph, threads: int) -> Step:
    """Two operands, broadcast."""
    left, m_a, s_a, m_b, s_b, m, s = op.parameters
    scales = op.factors or (0.0, 0.0)
    scaling = AddScaling(op.kind, left, m_a, s_a, m_b, s_b, m, s, *scales)
    options = {
        "zero_a": type_of(op.a).zero_point,
        "zero_b": type_of(op.b).zero_point,
        "zero_point": op.to.zero_point,
        "lo": op.lo,
        "hi": op.hi,
        "dtype": op.to.dtype.numpy,
        "subtract": isinstance(op, npu.Sub),
        "threads": threads,
    }
    rank = len(shape_of(op.y))
    return lambda arrays: [
        outward(eltwise.add(inward(arrays[0], rank), inward(arrays[1], rank), scaling, **options))
    ]


@handles(npu.Mul, recordable=True)
def mul(op: npu.Mul, graph: Graph, threads: int) -> Step:
    """Two operands, broadcast."""
    stage, zero_a, zero_b = flat_stage(op), type_of(op.a).zero_point, type_of(op.b).zero_point
    assert isinstance(op.to, QuantType)
    dtype, rank = op.to.dtype.numpy, len(shape_of(op.y))

    def run(arrays: list[Array]) -> list[Array]:
        a, b = (inward(array, rank) for array in arrays)
        return [outward(eltwise.mul(a, b, stage, zero_a=zero_a, zero_b=zero_b, dtype=dtype, threads=threads))]

    return run


@handles(top.Max, top.Min, only_integer=True, floats=always, recordable=True)
def choose(op: Any, graph: Graph, threads: int) -> Step:
    """The larger or the smaller of two operands, broadcast."""
    if quant_of(op.a) is None:
        dimensions, larger = len(shape_of(op.y)), isinstance(op, top.Max)
        return lambda arrays: [
            outward(
                float_rows.choose(
                    *(inward(array, dimensions) for array in arrays), larger=larger, threads=threads
                )
            )
        ]
    rank, run = len(shape_of(op.y)), eltwise.maximum if isinstance(op, top.Max) else eltwise.minimum
    return lambda arrays: [outward(run(inward(arrays[0], rank), inward(arrays[1], rank), threads=threads))]


@handles(npu.Requant, recordable=True)
def requant(op: npu.Requant, graph: Graph, threads: int) -> Step:
    """Another scale or type."""
    stage, zero = flat_stage(op), type_of(op.x).zero_point
    assert isinstance(op.to, QuantType)
    dtype = op.to.dtype.numpy
    return elementwise(lambda x: eltwise.requant(x, stage, zero_point=zero, dtype=dtype, threads=threads))


@handles(npu.Quantize, recordable=True, in_place=True)
def quantize(op: npu.Quantize, graph: Graph, threads: int) -> Step:
    """Reals, or plain integers, to the integers of a type."""
    to, rounding = op.to, op.rounding
    assert isinstance(to, QuantType)

    scale, zero, dtype = to.scale, to.zero_point, to.dtype.numpy
    if dtype_of(op.x.type).is_float:
        return elementwise(
            lambda x: eltwise.quantize(x, scale, zero, dtype, rounding=rounding, threads=threads)
        )
    return elementwise(
        lambda x: eltwise.quantize(
            x.astype(np.float32), scale, zero, dtype, rounding=rounding, threads=threads
        )
    )


@handles(npu.Dequantize, recordable=True)
def dequantize(op: npu.Dequantize, graph: Graph, threads: int) -> Step:
    """Integers to reals."""
    kind = type_of(op.x)
    return elementwise(lambda x: eltwise.dequantize(x, kind.scale, kind.zero_point, threads=threads))


@handles(npu.Reinterpret)
def reinterpret(op: npu.Reinterpret, graph: Graph, threads: int) -> Step:
    """The same integers; a copy, because the place of a quantized tensor is used again."""
    return lambda arrays: [np.array(arrays[0], order="C")]


@handles(npu.Table, recordable=True)
def table(op: npu.Table, graph: Graph, threads: int) -> Step:
    """A look-up."""
    entries = graph.constant(op.table)
    assert entries is not None
    return elementwise(lambda x: tables.lookup(x, entries, threads=threads))


@handles(npu.AvgPool, recordable=True)
def avg_pool(op: npu.AvgPool, graph: Graph, threads: int) -> Step:
    """The mean of each window."""
    stage, zero = flat_stage(op), type_of(op.x).zero_point
    assert isinstance(op.to, QuantType)
    dtype = op.to.dtype.numpy
    kernel, strides, pads, out = map(_pair, (op.kernel, op.strides, op.pads, shape_of(op.y)[2:]))
    include = op.count_include_pad

    def run(arrays: list[Array]) -> list[Array]:
        y = pooling.average_pool(
            inward(arrays[0]),
            kernel,
            strides,
            pads,
            out,
            stage,
            zero_point=zero,
            include_pad=include,
            dtype=dtype,
            threads=threads,
        )
        return [outward(y)]

    return run


@handles(top.MaxPool, only_integer=True, floats=lambda op: len(op.kernel) == 2, recordable=True)
def max_pool(op: top.MaxPool, graph: Graph, threads: int) -> Step:
    """The largest of each window."""
    kernel, strides, pads, out = map(_pair, (op.kernel, op.strides, op.pads, shape_of(op.y)[2:]))
    dilation = _pair(op.dilations)
    pool = pooling.max_pool if quant_of(op.x) is not None else floats.largest_pool
    return lambda arrays: [
        outward(pool(inward(arrays[0]), kernel, strides, pads, out, dilation=dilation, threads=threads))
    ]
