"""Pooling over windows.

Implementations of ONNX disagree about `ceil_mode`, so the windows are spelled out by pads wherever that says the same.
"""

from npuc.export.onnx.emitter import Emitter, Input
from npuc.export.onnx.registry import exports
from npuc.ir import dtype_of, shape_of, top


@exports(top.MaxPool, top.AvgPool)
def pool(op: top.MaxPool | top.AvgPool, emit: Emitter) -> None:
    """MaxPool or AveragePool; the mean of a whole image has a form of its own."""
    dilated = max(op.dilations) > 1
    global_window = op.kernel == shape_of(op.x)[2:] and not any(op.pads)
    if isinstance(op, top.AvgPool) and global_window and not dilated:
        emit("GlobalAveragePool", op.x, to=op.y)
        return
    include = isinstance(op, top.AvgPool) and op.count_include_pad
    pads, ceil = _explicit(op, include)
    x: Input = op.x
    if any(pad >= kernel for pad, kernel in zip(pads, op.kernel * 2, strict=True)) and not ceil:
        x, pads = _padded(op, emit, pads), (0,) * len(pads)
    emit(
        "AveragePool" if isinstance(op, top.AvgPool) else "MaxPool",
        x,
        to=op.y,
        kernel_shape=op.kernel,
        strides=op.strides,
        pads=pads,
        dilations=op.dilations if dilated else None,
        ceil_mode=1 if ceil else None,
        count_include_pad=1 if include else None,
    )


def _explicit(op: top.MaxPool | top.AvgPool, include: bool) -> tuple[tuple[int, ...], bool]:
    """Pads that end where the last window ends, and whether ceil mode is still needed.

    It is where a mean counts padding: what a last window reaches beyond that does not count.
    """
    rank = len(op.kernel)
    pads, ceil = list(op.pads), False
    for axis, (padded, reached) in enumerate(zip(*op.extents, strict=True)):
        exact = max(0, op.pads[axis + rank] + reached - padded)
        if include and exact > op.pads[axis + rank]:
            ceil = True
        else:
            pads[axis + rank] = exact
    return tuple(pads), ceil


def _padded(op: top.MaxPool | top.AvgPool, emit: Emitter, pads: tuple[int, ...]) -> str:
    """The image with its border as values, because ONNX Runtime refuses pads as wide as the window."""
    rank = len(op.kernel)
    dtype = dtype_of(op.x.type)
    lowest = float("-inf") if dtype.is_float else -(2.0 ** (8 * dtype.itemsize - 1))
    border = emit.scalar(max(lowest, 0.0) if dtype.name.startswith("ui") else lowest, op.x)
    value = border if isinstance(op, top.MaxPool) else emit.scalar(0, op.x)
    return emit("Pad", op.x, emit.ints(0, 0, *pads[:rank], 0, 0, *pads[rank:]), value)
