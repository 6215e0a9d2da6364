"""Packed block floating point through the native core."""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.engine.handlers import Step, handles
from npuc.engine.handlers.layout import inward, outward
from npuc.ir import Graph, dtype_of, npu
from npuc.kernels import blocks, floats


@handles(npu.BlockPack)
def pack(op: npu.BlockPack, graph: Graph, threads: int) -> Step:
    """Images along their channels, which are innermost in memory, others along the last axis."""
    kind, images = op.format, op.axis == 1
    if images:
        return lambda arrays: [outward(blocks.pack(inward(arrays[0]), kind, threads=threads))]
    return lambda arrays: [blocks.pack(arrays[0], kind, threads=threads)]


@handles(npu.BlockConv)
def conv(op: npu.BlockConv, graph: Graph, threads: int) -> Step:
    """The numbers of blocks are float32 with few bits: their convolution is that of float32."""
    weight = _weights(op, graph).transpose(0, 3, 1, 2)
    plan = floats.FloatConvPlan(
        np.ascontiguousarray(weight),
        graph.constant(op.bias),
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        relu=op.relu,
        relu_limit=op.relu_limit,
    )
    kind, inputs, dtype = op.format, op.inputs, dtype_of(op.to).numpy

    def run(arrays: list[Array]) -> list[Array]:
        x = blocks.unpack(inward(arrays[0]), kind, inputs, threads=threads)
        return [outward(floats.cast(plan.run(x, threads), dtype, threads=threads))]

    return run


@handles(npu.BlockMatMul)
def matmul(op: npu.BlockMatMul, graph: Graph, threads: int) -> Step:
    """As a convolution over rows."""
    plan = floats.FloatMatMulPlan(
        _weights(op, graph).T, graph.constant(op.bias), relu=op.relu, relu_limit=op.relu_limit
    )
    kind, inputs, dtype = op.format, op.inputs, dtype_of(op.to).numpy

    def run(arrays: list[Array]) -> list[Array]:
        x = blocks.unpack(arrays[0], kind, inputs, threads=threads)
        return [floats.cast(plan.run(x, threads), dtype, threads=threads)]

    return run


def _weights(op: npu.BlockLinear, graph: Graph) -> Array:
    packed = graph.constant(op.weight)
    assert packed is not None
    return blocks.unpack(packed, op.format, op.inputs)
