"""Arithmetic of two tensors, and averages."""

from __future__ import annotations

from npuc.export.qdq.form import QdqForm
from npuc.export.qdq.limits import limits_of
from npuc.export.qdq.registry import expresses
from npuc.ir import npu, top

_FLOAT = {npu.Add: top.Add, npu.Sub: top.Sub, npu.Mul: top.Mul}


@expresses(npu.Add, npu.Sub, npu.Mul)
def binary(op: npu.Add | npu.Sub | npu.Mul, form: QdqForm) -> None:
    """The float op, with its relu."""
    a, b, limits = form.real(op.a), form.real(op.b), limits_of(op)
    form.finish(op, form.emit(_FLOAT[type(op)], a, b, loc=op.location, **limits.relu).y, fused=limits.is_relu)


@expresses(npu.AvgPool)
def average(op: npu.AvgPool, form: QdqForm) -> None:
    """The mean of each window."""
    mean = form.emit(
        top.AvgPool,
        form.real(op.x),
        kernel=op.kernel,
        strides=op.strides,
        pads=op.pads,
        dilations=(1,) * len(op.kernel),
        ceil_mode=op.ceil_mode,
        count_include_pad=op.count_include_pad,
        loc=op.location,
    ).y
    form.finish(op, mean)
