"""The requantization kind of a prequantized network.

The scales of a file are half of its arithmetic; how sums are rounded to them is the other half. A TFLite file implies the
exact results of TFLite's kernels (kind `double_rounding`), a file with QuantizeLinear nodes those of ONNX Runtime (kind
`float_scale`), and a QDQ file that npuc wrote states its kind. If the target supports that kind it is kept, and the results equal
those of the original runtime; otherwise the target's own kind replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuc.arithmetic.kinds import Kind
from npuc.quant.from_target import scheme_for
from npuc.target import Target

_RUNTIMES = {Kind.DOUBLE_ROUNDING: "LiteRT", Kind.FLOAT_SCALE: "ONNX Runtime"}


@dataclass(frozen=True)
class OwnArithmetic:
    """The requantization of the layers of a prequantized file."""

    kind: Kind
    kept: bool
    """Whether it is the kind that the file implies."""
    words: str
    """The decision in words, for a report."""
    runtime: str
    """The runtime whose exact results the file implies."""
    multiplier_bits: int = 31

    @property
    def scheme(self) -> dict[str, Any]:
        """What it changes in a scheme."""
        changes: dict[str, Any] = {"requant": str(self.kind)}
        if self.multiplier_bits != 31:
            changes["multiplier_bits"] = self.multiplier_bits
        if self.kind is Kind.POW2 and self.kept:
            changes |= {"activation_scales": "power_of_two", "weight_scales": "power_of_two"}
        return changes


def own_arithmetic(
    follows_tflite: bool, target: Target | None = None, stated: tuple[Kind, int] | None = None
) -> OwnArithmetic:
    """The requantization of a prequantized file, on a target or without one; `stated` is what the file says itself.

    >>> from npuc.target import load_target
    >>> own_arithmetic(True, load_target("edge-4t")).kind, own_arithmetic(True, load_target("bm1684x-like")).kind
    ('double_rounding', 'float_scale')
    """
    kind = Kind.DOUBLE_ROUNDING if follows_tflite else Kind.FLOAT_SCALE
    runtime, bits = _RUNTIMES[kind], 31
    if stated is not None and not follows_tflite:
        (kind, bits), runtime = stated, "npuc"
    if target is None or kind in target.arithmetic.requantization.kinds:
        words = f"the model's own, requantized as by {runtime} ({kind})"
        return OwnArithmetic(kind, True, words, runtime, bits)
    other = _general_kind(target)
    return OwnArithmetic(
        other,
        False,
        f"the model's own scales, requantized by {other}: {target.name} has no {kind}, which {runtime} uses",
        runtime,
    )


def _general_kind(target: Target) -> Kind:
    """The kind that a target prefers for arbitrary scales; `pow2` if it can only shift."""
    preferred = scheme_for(target).requant
    if preferred is not Kind.POW2:
        return preferred
    return next(
        (Kind(kind) for kind in target.arithmetic.requantization.kinds if kind != Kind.POW2), Kind.POW2
    )
