"""Pools: AVERAGE_POOL_2D and MAX_POOL_2D."""

from __future__ import annotations

from typing import Any

from npuc.export.tflite.arithmetic import NONE, check_kind
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.ending import ending
from npuc.export.tflite.layout import CHANNELS_LAST
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm, exports
from npuc.export.tflite.window import PaddedWindow, padded
from npuc.ir import npu, shape_of, top
from npuc.ir.dtypes import quant_of


def _window(op: Any) -> PaddedWindow:
    if len(op.kernel) != 2:
        raise NoTFLiteForm(f"it has {len(op.kernel)} spatial axes, not 2")
    if set(getattr(op, "dilations", (1,))) != {1}:
        raise NoTFLiteForm("a pool has no dilation in TFLite")
    x, y = shape_of(op.x), shape_of(op.results[0])
    return PaddedWindow(x[2:], op.kernel, op.strides, (1, 1), op.pads, y[2:])


def _options(op: Any, mode: int, activation: int) -> dict[str, int]:
    return {
        "Padding": mode,
        "StrideW": op.strides[1],
        "StrideH": op.strides[0],
        "FilterWidth": op.kernel[1],
        "FilterHeight": op.kernel[0],
        "FusedActivationFunction": activation,
    }


@exports(top.MaxPool)
def max_pool(op: top.MaxPool, emit: TFLiteEmitter) -> None:
    """Padding never wins."""
    source, mode = padded(emit, op.x, _window(op), lowest=True)
    out = emit.result(op.y, CHANNELS_LAST)
    emit.operator("MAX_POOL_2D", [source], [out], "Pool2DOptions", **_options(op, mode, NONE))


@exports(top.AvgPool, npu.AvgPool)
def avg_pool(op: Any, emit: TFLiteEmitter) -> None:
    """SAME counts real positions only; padding that counts is an operator of its own."""
    window = _window(op)
    if isinstance(op, npu.AvgPool):
        check_kind(op.kind)
        if quant_of(op.x) != op.to:
            raise NoTFLiteForm("its operand and its result have different scales", SCHEME)
    reached = window.needed()
    if any(reached) and op.count_include_pad:
        if any(end > stated for end, stated in zip(reached[2:], op.pads[2:], strict=True)):
            raise NoTFLiteForm("its last windows reach beyond the padding that counts")
        source, mode = padded(emit, op.x, _counted(window))
    elif window.mode() is None:
        raise NoTFLiteForm("its padding does not count, and is neither SAME nor VALID")
    else:
        source, mode = padded(emit, op.x, window)
    end = ending(emit, op, CHANNELS_LAST)
    emit.operator(
        "AVERAGE_POOL_2D", [source], [end.out], "Pool2DOptions", **_options(op, mode, end.activation)
    )
    end.finish()


class _Counted(PaddedWindow):
    def mode(self) -> int | None:
        """Never SAME, which does not count padding."""
        return None


def _counted(window: PaddedWindow) -> PaddedWindow:
    return _Counted(window.size, window.kernel, window.strides, window.dilations, window.pads, window.out)
