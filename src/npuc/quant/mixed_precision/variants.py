"""What a layer may compute with instead of its own types, where the target allows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from npuc.quant.from_target import fitted, misfit
from npuc.quant.possible import contradiction
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.widening import wider
from npuc.target import Target


@dataclass(frozen=True, order=True)
class Variant:
    """Types of activations and of weights; `own` are those that the network has."""

    activation: Literal["own", "i16", "float"] = "own"
    weight: Literal["own", "i4", "i8", "i16", "bf16"] = "own"


OWN, WIDE, FLOAT, SHORT = Variant(), Variant("i16"), Variant("float"), Variant("float", "bf16")
"""Float is what the CPU computes; a short float is for machines that have it."""
VARIANTS = (
    OWN,
    WIDE,
    Variant("own", "i4"),
    Variant("i16", "i4"),
    Variant("own", "i8"),
    Variant("i16", "i8"),
    Variant("i16", "i16"),
)
"""Weights of 16 bits are for products of 16-bit tensors: no machine is slower with both than with one."""


def scheme_as(scheme: Scheme | None, variant: Variant, target: Target | None) -> Scheme | None:
    """The scheme of a layer under a variant; None is float."""
    if scheme is None or not scheme.needs_ranges:
        return scheme
    if variant.activation == "float":
        return SCHEMES["bf16"] if variant.weight == "bf16" else None
    made = wider(scheme) if variant.activation == "i16" else scheme
    if variant.weight != "own":
        made = replace(made, weight=variant.weight)
    return fitted(made, target) if target is not None else made


def is_possible(scheme: Scheme, variant: Variant, target: Target | None) -> bool:
    """Whether a scheme can be changed so, and the result differs from it."""
    made = scheme_as(scheme, variant, target)
    if made is None:
        return True
    if made == scheme or contradiction(made) is not None:
        return False
    if made.is_float:
        return target is not None and misfit(made, target) is None
    return target is None or misfit(made, target) is None
