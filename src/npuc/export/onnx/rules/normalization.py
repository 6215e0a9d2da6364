"""Normalization."""

import numpy as np

from npuc.arrays import Array
from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.relu import finish_relu, unless_relu
from npuc.ir import Value, dtype_of, shape_of, top
from npuc.ir.definition import normal_axis


def _filled(value: Value | None, number: float, shape: tuple[int, ...], like: Value) -> Value | Array:
    """A parameter, or a constant in its place where it is absent."""
    return np.full(shape, number, dtype_of(like.type).numpy) if value is None else value


@exports(top.BatchNorm)
def batch_norm(op: top.BatchNorm, emit: Emitter) -> None:
    """BatchNormalization with its statistics."""
    emit("BatchNormalization", *op.operands, to=op.y, epsilon=op.epsilon)


@exports(top.Scale)
def scale(op: top.Scale, emit: Emitter) -> None:
    """Mul and Add with parameters along axis 1."""
    shape = (shape_of(op.x)[1], *(1,) * (len(shape_of(op.x)) - 2))
    product = emit("Mul", op.x, emit.shaped(op.scale, shape))
    finish_relu(op, emit, emit("Add", product, emit.shaped(op.bias, shape), to=unless_relu(op)))


@exports(top.LayerNorm)
def layer_norm(op: top.LayerNorm, emit: Emitter) -> None:
    """LayerNormalization; its scale is not optional in ONNX."""
    shape = shape_of(op.x)
    inner = shape[normal_axis(op.axis, len(shape)) :]
    emit(
        "LayerNormalization",
        op.x,
        _filled(op.scale, 1, inner, op.x),
        op.bias,
        to=op.y,
        axis=op.axis,
        epsilon=op.epsilon,
    )


@exports(top.RMSNorm)
def rms_norm(op: top.RMSNorm, emit: Emitter) -> None:
    """In primitives, because RMSNormalization came with opset 23; the statistics of half floats are in f32."""
    shape, dtype = shape_of(op.x), dtype_of(op.x.type)
    axes = emit.ints(*range(normal_axis(op.axis, len(shape)), len(shape)))
    wide = dtype_of("f32") if dtype.name in ("f16", "bf16") else dtype
    x: Value | str = op.x if wide == dtype else emit.cast(op.x, wide)
    mean = emit("ReduceMean", emit("Mul", x, x), axes, keepdims=1)
    root = emit("Sqrt", emit("Add", mean, emit.scalar(op.epsilon, wide)))
    rest = [(kind, value) for kind, value in (("Mul", op.scale), ("Add", op.bias)) if value is not None]
    last = None if rest else op.y
    y = emit("Div", x, root, to=last) if wide == dtype else emit.cast(emit("Div", x, root), dtype, to=last)
    for index, (kind, value) in enumerate(rest, 1):
        y = emit(kind, y, value, to=op.y if index == len(rest) else None)


@exports(top.InstanceNorm, top.GroupNorm)
def channel_norm(op: top.InstanceNorm | top.GroupNorm, emit: Emitter) -> None:
    """InstanceNormalization or GroupNormalization; their parameters are not optional in ONNX."""
    channels = shape_of(op.x)[1:2]
    grouped = isinstance(op, top.GroupNorm)
    emit(
        "GroupNormalization" if grouped else "InstanceNormalization",
        op.x,
        _filled(op.scale, 1, channels, op.x),
        _filled(op.bias, 0, channels, op.x),
        to=op.y,
        epsilon=op.epsilon,
        num_groups=op.groups if isinstance(op, top.GroupNorm) else None,
    )


@exports(top.L2Norm)
def l2_norm(op: top.L2Norm, emit: Emitter) -> None:
    """LpNormalization, or in primitives if the norm has a lower bound."""
    if op.epsilon > 0:
        norm = emit("ReduceL2", op.x, emit.ints(op.axis), keepdims=1)
        emit("Div", op.x, emit("Max", norm, emit.scalar(op.epsilon, op.x)), to=op.y)
    else:
        emit("LpNormalization", op.x, to=op.y, axis=op.axis, p=2)


@exports(top.LRN)
def lrn(op: top.LRN, emit: Emitter) -> None:
    """LRN."""
    emit("LRN", op.x, to=op.y, size=op.size, alpha=op.alpha, beta=op.beta, bias=op.bias)
