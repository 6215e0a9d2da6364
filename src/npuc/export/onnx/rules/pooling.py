"""Pooling over windows."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import shape_of, top


@exports(top.MaxPool, top.AvgPool)
def pool(op: top.MaxPool | top.AvgPool, emit: Emitter) -> None:
    """MaxPool or AveragePool, by their global forms where the window is the whole image."""
    average = isinstance(op, top.AvgPool)
    whole = op.kernel == shape_of(op.x)[2:] and not any(op.pads)
    if average and whole and max(op.dilations) == 1:
        emit("GlobalAveragePool", op.x, to=op.y)
        return
    emit(
        "AveragePool" if average else "MaxPool",
        op.x,
        to=op.y,
        kernel_shape=op.kernel,
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations if max(op.dilations) > 1 else None,
        ceil_mode=1 if op.ceil_mode else None,
        count_include_pad=1 if isinstance(op, top.AvgPool) and op.count_include_pad else None,
    )
