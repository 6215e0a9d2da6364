"""Integer arithmetic through the native core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.engine.handlers import Array, Step, handles
from npuc.engine.handlers.layout import inward, outward
from npuc.engine.kernels import ConvPlan, MatMulPlan, Requant, eltwise, matmul, pooling, tables
from npuc.ir import Graph, Value, npu, shape_of, top
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant.arithmetic import AddScaling


def _type(value: Value) -> QuantType:
    kind = quant_of(value)
    assert kind is not None
    return kind


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return values[0], values[1]


def _stage(op: Any, multiplier: Any = None, shift: Any = None, scale: Any = None) -> Requant:
    return Requant(op.kind, multiplier, shift, scale, op.to.zero_point, lo=op.lo, hi=op.hi)


def _flat_stage(op: Any) -> Requant:
    """The output stage of an op that states its numbers as properties."""
    numbers = np.array(op.parameters, np.int64)
    if op.kind == "float":
        return _stage(op, scale=np.array(op.factors, np.float32))
    if op.kind == "pow2":
        return _stage(op, shift=numbers)
    if not numbers.size:  # an average under `double` divides by itself
        return _stage(op, np.array([1 << 30]), np.array([31]))
    return _stage(op, numbers[0::2], numbers[1::2])


def _constants(op: Any, graph: Graph) -> tuple[Requant, Array | None]:
    found = [graph.constant(value) for value in (op.multiplier, op.shift, op.factor)]
    return _stage(op, *found), graph.constant(op.bias)


def _weights(op: Any, graph: Graph) -> Array | None:
    weight = graph.constant(op.weight)
    if weight is None or quant_of(op.weight) is not None:
        return None
    return weight if weight.dtype.kind in "iu" and weight.dtype.isbuiltin == 1 else weight.astype(np.int8)


@handles(npu.Conv, npu.Deconv)
def conv(op: Any, graph: Graph, threads: int) -> Step:
    """Weights are packed once."""
    weight = _weights(op, graph)
    assert weight is not None
    stage, bias = _constants(op, graph)
    transposed = isinstance(op, npu.Deconv)
    plan = ConvPlan(
        weight,
        bias,
        x_dtype=_type(op.x).dtype.numpy,
        y_dtype=op.to.dtype.numpy,
        requant=stage,
        x_zero_point=_type(op.x).zero_point,
        weight_zero_point=op.weight_zero_point,
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        groups=op.group,
        transposed=transposed,
        output_padding=op.output_padding if transposed else (0, 0),
    )
    return lambda arrays: [outward(plan.run(inward(arrays[0]), threads))]


@handles(npu.MatMul)
def matmul_(op: npu.MatMul, graph: Graph, threads: int) -> Step:
    """With packed weights, or of two activations."""
    stage, bias = _constants(op, graph)
    weight = _weights(op, graph)
    x = _type(op.x)
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
    zero = _type(op.weight).zero_point

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


@handles(npu.Add, npu.Sub)
def add(op: Any, graph: Graph, threads: int) -> Step:
    """Two operands, broadcast."""
    left, m_a, s_a, m_b, s_b, m, s = op.parameters
    scales = op.factors or (0.0, 0.0)
    scaling = AddScaling(op.kind, left, m_a, s_a, m_b, s_b, m, s, *scales)
    options = {
        "zero_a": _type(op.a).zero_point,
        "zero_b": _type(op.b).zero_point,
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


@handles(npu.Mul)
def mul(op: npu.Mul, graph: Graph, threads: int) -> Step:
    """Two operands, broadcast."""
    stage, zero_a, zero_b = _flat_stage(op), _type(op.a).zero_point, _type(op.b).zero_point
    assert isinstance(op.to, QuantType)
    dtype, rank = op.to.dtype.numpy, len(shape_of(op.y))

    def run(arrays: list[Array]) -> list[Array]:
        a, b = (inward(array, rank) for array in arrays)
        return [outward(eltwise.mul(a, b, stage, zero_a=zero_a, zero_b=zero_b, dtype=dtype, threads=threads))]

    return run


@handles(npu.Requant)
def requant(op: npu.Requant, graph: Graph, threads: int) -> Step:
    """Another scale or type."""
    stage, zero = _flat_stage(op), _type(op.x).zero_point
    assert isinstance(op.to, QuantType)
    dtype = op.to.dtype.numpy
    return lambda arrays: [
        outward(eltwise.requant(inward(arrays[0]), stage, zero_point=zero, dtype=dtype, threads=threads))
    ]


@handles(npu.Quantize)
def quantize(op: npu.Quantize, graph: Graph, threads: int) -> Step:
    """Reals to integers."""
    to, rounding = op.to, op.rounding
    assert isinstance(to, QuantType)

    def run(arrays: list[Array]) -> list[Array]:
        x = inward(arrays[0])
        y = eltwise.quantize(x, to.scale, to.zero_point, to.dtype.numpy, rounding=rounding, threads=threads)
        return [outward(y)]

    return run


@handles(npu.Dequantize)
def dequantize(op: npu.Dequantize, graph: Graph, threads: int) -> Step:
    """Integers to reals."""
    kind = _type(op.x)
    return lambda arrays: [
        outward(eltwise.dequantize(inward(arrays[0]), kind.scale, kind.zero_point, threads=threads))
    ]


@handles(npu.Table)
def table(op: npu.Table, graph: Graph, threads: int) -> Step:
    """A look-up."""
    entries = graph.constant(op.table)
    assert entries is not None
    look_up = tables.lookup8 if entries.size == 256 else tables.lookup16
    return lambda arrays: [outward(look_up(inward(arrays[0]), entries, threads=threads))]


@handles(npu.AvgPool)
def avg_pool(op: npu.AvgPool, graph: Graph, threads: int) -> Step:
    """The mean of each window."""
    stage, zero = _flat_stage(op), _type(op.x).zero_point
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


@handles(top.MaxPool, only_integer=True)
def max_pool(op: top.MaxPool, graph: Graph, threads: int) -> Step:
    """The largest of each window."""
    kernel, strides, pads, out = map(_pair, (op.kernel, op.strides, op.pads, shape_of(op.y)[2:]))
    dilation = _pair(op.dilations)
    return lambda arrays: [
        outward(
            pooling.max_pool(
                inward(arrays[0]), kernel, strides, pads, out, dilation=dilation, threads=threads
            )
        )
    ]
