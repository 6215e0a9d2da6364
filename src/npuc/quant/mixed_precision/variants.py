"""Variants: the types that a layer may use instead of its own, if the target supports them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from npuc.quant.from_target import fitted, misfit
from npuc.quant.possible import contradiction
from npuc.quant.scheme import FLOATS, SCHEMES, Scheme
from npuc.quant.widening import wider
from npuc.target import Target


@dataclass(frozen=True, order=True)
class Variant:
    """The types of activations and weights; `own` keeps those of the network."""

    activation: Literal["own", "i16", "float", "bf16", "f16", "f32"] = "own"
    """A float type that the machine computes with is that of the weights, too."""
    weight: Literal["own", "i4", "i8", "i16"] = "own"

    @property
    def is_machine_float(self) -> bool:
        """Whether the NPU computes with a float type."""
        return self.activation in FLOATS


OWN, WIDE, FLOAT = Variant(), Variant("i16"), Variant("float")
"""FLOAT runs on the CPU."""
MACHINE_FLOATS = (Variant("bf16"), Variant("f16"), Variant("f32"))
"""For targets that compute with them."""
VARIANTS = (
    OWN,
    WIDE,
    Variant("own", "i4"),
    Variant("i16", "i4"),
    Variant("own", "i8"),
    Variant("i16", "i8"),
    Variant("i16", "i16"),
)
"""16-bit weights are only combined with 16-bit activations: no target is slower with both than with one."""


def scheme_as(scheme: Scheme | None, variant: Variant, target: Target | None) -> Scheme | None:
    """The scheme of a layer under a variant; None for float."""
    if scheme is None or not scheme.needs_ranges:
        return scheme
    if variant.activation == "float":
        return None
    if variant.is_machine_float:
        return SCHEMES[variant.activation]
    changed = wider(scheme) if variant.activation == "i16" else scheme
    if variant.weight != "own":
        changed = replace(changed, weight=variant.weight)
    return fitted(changed, target) if target is not None else changed


def is_possible(scheme: Scheme, variant: Variant, target: Target | None) -> bool:
    """Whether a variant changes a scheme, and the target supports the result."""
    changed = scheme_as(scheme, variant, target)
    if changed is None:
        return True
    if changed == scheme or contradiction(changed) is not None:
        return False
    if changed.is_float:
        return target is not None and misfit(changed, target) is None
    return target is None or misfit(changed, target) is None
