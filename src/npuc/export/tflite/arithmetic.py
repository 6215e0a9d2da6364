"""What LiteRT computes from the scales in a file: multipliers, shifts and limits of activations.

A file states scales, not multipliers. A rule compares the integers of an npu op with these, so that a program whose
arithmetic is not TFLite's is refused, not written with other bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import quantize_multiplier, round_away
from npuc.arithmetic.tflite import narrow_multiplier
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm
from npuc.ir.dtypes import QuantType

NONE = tflite.ActivationFunctionType.NONE
RELU = tflite.ActivationFunctionType.RELU
RELU_N1_TO_1 = tflite.ActivationFunctionType.RELU_N1_TO_1
RELU6 = tflite.ActivationFunctionType.RELU6

_LIMITS: tuple[tuple[int, float | None, float | None], ...] = (
    (NONE, None, None),
    (RELU, 0.0, None),
    (RELU6, 0.0, 6.0),
    (RELU_N1_TO_1, -1.0, 1.0),
)


def activation_limits(to: QuantType, activation: int) -> tuple[int, int]:
    """The range of integers that a fused activation leaves, computed in float32 as LiteRT does."""
    least, most = to.dtype.limits
    _, low, high = next(entry for entry in _LIMITS if entry[0] == activation)

    def code(real: float) -> int:
        return to.zero_point + int(round_away(np.float32(real) / np.float32(to.scale)))

    least = least if low is None else max(least, code(low))
    most = most if high is None else min(most, code(high))
    return least, most


def fused_activation(to: QuantType, lo: int, hi: int) -> int | None:
    """The activation that leaves exactly lo..hi, or None if there is none."""
    return next((a for a, _, _ in _LIMITS if activation_limits(to, a) == (lo, hi)), None)


def check_multipliers(real: Sequence[float], multiplier: Any, shift: Any, narrow: bool) -> None:
    """Refuse a layer whose multipliers (of 15 bits if `narrow`) are not those that LiteRT computes."""
    pairs = [quantize_multiplier(value) for value in real]
    if narrow:
        pairs = [narrow_multiplier(*pair) for pair in pairs]
    multipliers = np.broadcast_to(np.asarray(multiplier, np.int64), len(pairs)).tolist()
    shifts = np.broadcast_to(np.asarray(shift, np.int64), len(pairs)).tolist()
    if [pair[0] for pair in pairs] != multipliers or [p[1] for p in pairs if p[0]] != [
        s for s, p in zip(shifts, pairs, strict=True) if p[0]
    ]:
        raise NoTFLiteForm("its multipliers are not those that TFLite derives from its scales", SCHEME)


def check_kind(kind: Kind, expected: Kind = Kind.DOUBLE_ROUNDING) -> None:
    """Refuse a layer that is requantized in another way than TFLite's."""
    if kind != expected:
        raise NoTFLiteForm(f"it is requantized by '{kind}', which is not how TFLite does it", SCHEME)
