"""Softmax, normalization, sums and means, bilinear resize."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.qdq.form import QdqForm
from npuc.export.qdq.registry import expresses
from npuc.ir import npu, shape_of, top, value_name
from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import quant_of

_FRACTION = 18
"""Bits behind the point of a normalized element: docs/arithmetic-norm.md."""


@expresses(npu.Softmax)
def softmax(op: npu.Softmax, form: QdqForm) -> None:
    """Softmax."""
    form.finish(op, form.emit(top.Softmax, form.real(op.x), axis=op.axis, loc=op.location).y)


@expresses(npu.Norm)
def norm(op: npu.Norm, form: QdqForm) -> None:
    """The normalization, with the reals that its integer gain, bias and epsilon stand for.

    The float32 nearest to such a real gives the same integer again.
    """
    x = quant_of(op.x)
    assert x is not None
    shift, epsilon, width = op.parameters
    gain, bias = form.constant(op.gain), form.constant(op.bias)
    assert gain is not None and bias is not None
    scale = op.to.scale  # type: ignore[attr-defined]
    gamma = gain.astype(np.float64) * (scale * 2.0 ** (_FRACTION - shift))
    beta = bias.astype(np.float64) * (scale * 2.0**-shift)
    form.finish(op, normalized(op, form, gamma, beta, float(epsilon) * (x.scale / width) ** 2))


def normalized(op: Any, form: QdqForm, gamma: Array, beta: Array, epsilon: float, x: Any = None) -> Any:
    """A normalization of `mode` in float; `gamma` and `beta` have one entry or one an element."""
    source = form.real(op.x) if x is None else x
    shape = shape_of(op.x)
    axis, name = normal_axis(op.axis, len(shape)), value_name(op.y)
    if op.mode == "l2":
        return form.emit(top.L2Norm, source, axis=op.axis, loc=op.location).y
    layers = {
        "layer": top.LayerNorm,
        "rms": top.RMSNorm,
        "instance": top.InstanceNorm,
        "group": top.GroupNorm,
    }
    inner = shape[axis:] if op.mode in ("layer", "rms") else shape[1:2]

    def entries(what: str, values: Array) -> Any:
        reals = np.broadcast_to(values, prod(inner)).reshape(inner).astype(np.float32)
        return form.weight(f"{name}/{what}", reals)

    extent = (
        {"axis": axis} if op.mode in ("layer", "rms") else {"groups": op.groups} if op.mode == "group" else {}
    )
    return form.emit(
        layers[op.mode],
        source,
        entries("gamma", gamma),
        entries("beta", beta) if beta.any() else None,
        epsilon=epsilon,
        loc=op.location,
        **extent,
    ).y


@expresses(npu.ReduceSum)
def total(op: npu.ReduceSum, form: QdqForm) -> None:
    """A sum, or a mean if its multiplier divides by the count."""
    x, shape = quant_of(op.x), shape_of(op.x)
    assert x is not None
    count = prod(shape[normal_axis(axis, len(shape))] for axis in op.axes)
    ratio = x.scale / op.to.scale  # type: ignore[attr-defined]
    mean = _factor(op) < ratio / sqrt(count) if count > 1 else False
    kind = "mean" if mean else "sum"
    form.finish(
        op,
        form.emit(
            top.Reduce, form.real(op.x), kind=kind, axes=op.axes, keepdims=op.keepdims, loc=op.location
        ).y,
    )


def _factor(op: npu.ReduceSum) -> float:
    """The real number that the output stage multiplies by."""
    if op.kind.has_scale:
        return op.factors[0]
    if not op.kind.has_multiplier:
        return 2.0 ** -op.parameters[0]
    return op.parameters[0] * 2.0 ** -op.parameters[1]


@expresses(npu.ResizeBilinear)
def resize(op: npu.ResizeBilinear, form: QdqForm) -> None:
    """Resize by linear interpolation."""
    resized = form.emit(
        top.Resize,
        form.real(op.x),
        sizes=op.sizes,
        scales=op.scales,
        mode="linear",
        coordinates=op.coordinates,
        loc=op.location,
    ).y
    form.quantize(op.y, resized)
