"""Normalization of reals, from means and products."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.ending import ending
from npuc.export.tflite.formula import binary, mean, unary
from npuc.export.tflite.layout import channels_last, natural
from npuc.export.tflite.model import TFLiteTensor
from npuc.export.tflite.registry import NoTFLiteForm, exports
from npuc.ir import Value, shape_of, top
from npuc.ir.definition import normal_axis


@exports(top.BatchNorm)
def batch_norm(op: top.BatchNorm, emit: TFLiteEmitter) -> None:
    """A product and a sum, computed offline."""
    constants = [emit.array(value) for value in (op.scale, op.bias, op.mean, op.variance)]
    if any(array is None for array in constants):
        raise NoTFLiteForm("its parameters are computed at run time")
    scale, bias, centre, variance = (np.asarray(array, np.float64) for array in constants)
    gain = scale / np.sqrt(variance + op.epsilon)
    _affine(op, emit, gain.astype(np.float32), (bias - centre * gain).astype(np.float32))


@exports(top.Scale)
def scale(op: top.Scale, emit: TFLiteEmitter) -> None:
    """A product and a sum."""
    gain, bias = emit.array(op.scale), emit.array(op.bias)
    if gain is None or bias is None:
        raise NoTFLiteForm("its parameters are computed at run time")
    _affine(op, emit, gain, bias)


def _affine(op: Any, emit: TFLiteEmitter, gain: Any, bias: Any) -> None:
    order = channels_last(len(shape_of(op.x)))
    scaled = binary(emit, op.y, "MUL", emit.tensor(op.x, order), emit.constant(gain))
    end = ending(emit, op, order)
    emit.operator(
        "ADD",
        [scaled, emit.constant(bias)],
        [end.out],
        "AddOptions",
        FusedActivationFunction=end.activation,
    )
    end.finish()


def _normalized(
    emit: TFLiteEmitter, op: Any, x: TFLiteTensor, axes: list[int], centred: bool
) -> TFLiteTensor:
    """x over its deviation, with its mean taken off or not."""
    if centred:
        x = binary(emit, op.y, "SUB", x, mean(emit, op.y, x, axes))
    square = binary(emit, op.y, "MUL", x, x)
    variance = binary(emit, op.y, "ADD", mean(emit, op.y, square, axes), float(op.epsilon))
    return binary(emit, op.y, "MUL", x, unary(emit, op.y, "RSQRT", variance))


def _finished(
    emit: TFLiteEmitter,
    op: Any,
    x: TFLiteTensor,
    gain: TFLiteTensor | None,
    bias: TFLiteTensor | None,
    order: tuple[int, ...],
) -> None:
    for code, factor in (("MUL", gain), ("ADD", bias)):
        if factor is not None:
            x = binary(emit, op.y, code, x, factor)
    emit.hold(op.y, x, order)


def _whole(emit: TFLiteEmitter, value: Value | None) -> TFLiteTensor | None:
    return None if value is None else emit.tensor(value)


@exports(top.LayerNorm, top.RMSNorm)
def over_last_axes(op: Any, emit: TFLiteEmitter) -> None:
    """Rows are the axes from `axis` on."""
    rank = len(shape_of(op.x))
    axes = list(range(normal_axis(op.axis, rank), rank))
    x = _normalized(emit, op, emit.tensor(op.x), axes, isinstance(op, top.LayerNorm))
    _finished(emit, op, x, _whole(emit, op.scale), _whole(emit, op.bias), natural(rank))


@exports(top.InstanceNorm)
def instance_norm(op: top.InstanceNorm, emit: TFLiteEmitter) -> None:
    """Rows are the pixels of a channel."""
    rank = len(shape_of(op.x))
    order = channels_last(rank)
    x = _normalized(emit, op, emit.tensor(op.x, order), list(range(1, rank - 1)), True)
    _finished(emit, op, x, _whole(emit, op.scale), _whole(emit, op.bias), order)


@exports(top.GroupNorm)
def group_norm(op: top.GroupNorm, emit: TFLiteEmitter) -> None:
    """Rows are the pixels of the channels of a group."""
    shape = shape_of(op.x)
    rows = emit.like(op.y, (shape[0], op.groups, prod(shape[1:]) // op.groups), "grouped")
    emit.reshape(emit.tensor(op.x), rows)
    x = emit.reshape(_normalized(emit, op, rows, [2], True), emit.like(op.y, shape, "ungrouped"))
    _finished(emit, op, x, _spread(emit, op.scale, shape), _spread(emit, op.bias, shape), natural(len(shape)))


def _spread(emit: TFLiteEmitter, value: Value | None, shape: tuple[int, ...]) -> TFLiteTensor | None:
    """A parameter a channel, as it is broadcast to N x C x spatial."""
    if value is None:
        return None
    array = emit.array(value)
    if array is None:
        raise NoTFLiteForm("its parameters are computed at run time")
    return emit.constant(array.reshape(-1, *[1] * (len(shape) - 2)))
