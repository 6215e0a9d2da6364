"""Padding of windows: SAME and VALID where they say it, else an operator that pads before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tflite

from npuc.arrays import ceil_div
from npuc.export.tflite.emitter import TFLiteEmitter, quantization
from npuc.export.tflite.layout import CHANNELS_LAST
from npuc.export.tflite.model import TFLiteTensor
from npuc.ir import Value, dtype_of
from npuc.ir.dtypes import quant_of
from npuc.ir.top.window import same_pads

SAME = tflite.Padding.SAME
VALID = tflite.Padding.VALID


@dataclass(frozen=True)
class PaddedWindow:
    """A sliding window over two axes; `out` is the size of the result."""

    size: Sequence[int]
    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    out: Sequence[int]

    def needed(self) -> tuple[int, ...]:
        """The pads that windows reach: ends that no window reaches do not count."""
        ends = []
        for i in (0, 1):
            span = (self.kernel[i] - 1) * self.dilations[i] + 1
            ends.append(max(0, (self.out[i] - 1) * self.strides[i] + span - self.size[i] - self.pads[i]))
        return (self.pads[0], self.pads[1], *ends)

    def mode(self) -> int | None:
        """SAME or VALID if that is what the pads are."""
        needed = self.needed()
        same = same_pads(self.size, self.kernel, self.strides, self.dilations, upper=True)
        sizes = tuple(ceil_div(n, s) for n, s in zip(self.size, self.strides, strict=True))
        if not any(needed):
            spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
            valid = tuple((n - k) // s + 1 for n, k, s in zip(self.size, spans, self.strides, strict=True))
            return (
                VALID
                if valid == tuple(self.out)
                else SAME
                if sizes == tuple(self.out) and not any(same)
                else None
            )
        return SAME if needed == same and sizes == tuple(self.out) else None


def padded(
    emit: TFLiteEmitter, value: Value, window: PaddedWindow, lowest: bool = False
) -> tuple[TFLiteTensor, int]:
    """A value with channels last, padded where no mode pads it, and the mode of the operator.

    The border is zero, or (`lowest`) less than every element.
    """
    source = emit.tensor(value, CHANNELS_LAST)
    mode = window.mode()
    if mode is not None:
        return source, mode
    top, left, bottom, right = window.needed()
    n, h, w, c = source.shape
    out = emit.like(value, (n, h + top + bottom, w + left + right, c), "padded")
    borders = emit.integers([[0, 0], [top, bottom], [left, right], [0, 0]])
    kind = quant_of(value)
    if not lowest or (kind is not None and kind.zero_point == kind.dtype.limits[0]):
        emit.operator("PAD", [source, borders], [out], "PadOptions")
    else:
        dtype = dtype_of(value.type)
        number = -np.inf if kind is None else kind.dtype.limits[0]
        border = emit.constant(
            np.array([number], dtype.numpy), None if kind is None else quantization(kind), "border"
        )
        emit.operator("PADV2", [source, borders, border], [out], "PadV2Options")
    return out, VALID
