"""Whose requantization a network that brings its own quantization gets.

The scales of a file are half of its arithmetic; how sums are rounded to them is the other half. A TFLite file promises the
bits of TFLite's kernels (kind `double_rounding`), a file with QuantizeLinear nodes those of ONNX Runtime's (kind
`float_scale`). Where the target has that kind it is kept, and the results are those of the original runtime; else the
target's own takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuc.arithmetic.kinds import Kind
from npuc.quant.from_target import scheme_for
from npuc.target import Target

_RUNTIMES = {Kind.DOUBLE_ROUNDING: "LiteRT", Kind.FLOAT_SCALE: "ONNX Runtime"}


@dataclass(frozen=True)
class OwnArithmetic:
    """The requantization that a file's layers get."""

    kind: Kind
    kept: bool
    """Whether it is the one that the file promises."""
    words: str
    """What became of it, for a report."""
    runtime: str
    """Whose bits the file promises."""


def own_arithmetic(follows_tflite: bool, target: Target | None = None) -> OwnArithmetic:
    """The requantization of a file's own integers, on a target or anywhere.

    >>> from npuc.target import load_target
    >>> own_arithmetic(True, load_target("edge-4t")).kind, own_arithmetic(True, load_target("bm1684x-like")).kind
    ('double_rounding', 'float_scale')
    """
    kind = Kind.DOUBLE_ROUNDING if follows_tflite else Kind.FLOAT_SCALE
    runtime = _RUNTIMES[kind]
    if target is None or kind in target.arithmetic.requantization.kinds:
        return OwnArithmetic(kind, True, f"the model's own, requantized as by {runtime} ({kind})", runtime)
    other = _general_kind(target)
    return OwnArithmetic(
        other,
        False,
        f"the model's own scales, requantized by {other}: {target.name} has no {kind}, which {runtime} uses",
        runtime,
    )


def _general_kind(target: Target) -> Kind:
    """The kind that a target prefers for scales that are no powers of two; `pow2` if it only shifts."""
    preferred = scheme_for(target).requant
    if preferred is not Kind.POW2:
        return preferred
    return next(
        (Kind(kind) for kind in target.arithmetic.requantization.kinds if kind != Kind.POW2), Kind.POW2
    )
