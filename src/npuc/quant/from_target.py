"""The scheme that a target's arithmetic prefers, and whether it can do another.

A target lists what it has, the preferred first; a scheme is one choice of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from npuc.errors import QuantizationError
from npuc.quant.scheme import Scales, Scheme
from npuc.target import Target
from npuc.target.arithmetic import Arithmetic

_STORAGE = {"i8": "i8", "u8": "ui8", "i16": "i16", "i4": "i4"}
"""A target's names of types to those of the IR."""
_SCALES = {"symmetric": "symmetric", "affine": "affine", "power_of_two": "pow2"}


def scheme_for(target: Target) -> Scheme:
    """What a target prefers.

    >>> from npuc.target import load_target
    >>> scheme_for(load_target("edge-4t")).requant
    'single'
    """
    arithmetic: Arithmetic = target.arithmetic
    activation = _first(
        (_STORAGE[name], _SCALES[kind])
        for name, kinds in arithmetic.activations.formats.items()
        for kind in kinds
        if _STORAGE.get(name) in ("i8", "ui8", "i16") and kind in _SCALES
    )
    weight = _first(
        (_STORAGE[name], _SCALES[kind])
        for name, kinds in arithmetic.weights.formats.items()
        for kind in kinds
        if _STORAGE.get(name) in ("i8", "i4", "i16") and kind in ("symmetric", "power_of_two")
    )
    if activation is None or weight is None:
        what = "activations" if activation is None else "symmetric weights"
        raise QuantizationError(
            f"the target '{target.name}' has no integer {what}, so there is nothing to quantize to",
            fix="Choose a target with i8 or i16 arithmetic",
        )
    powers = activation[1] == weight[1] == "pow2"
    kind = next((k for k in arithmetic.requantization.kinds if k != "pow2" or powers), None)
    if kind is None:
        raise QuantizationError(
            f"the target '{target.name}' requantizes by shifts alone, but prefers scales that are no powers of two",
            fix="Put power_of_two first in its formats",
        )
    return Scheme(
        activation=activation[0],
        activation_scales=cast(Scales, activation[1]),
        weight=weight[0],
        weight_scales=weight[1],  # type: ignore[arg-type]
        per_channel=arithmetic.weights.granularity[0] == "per_channel",
        narrow_weights=arithmetic.weights.range == "narrow",
        requant=kind,
        multiplier_bits=arithmetic.requantization.multiplier_bits,
    )


def misfit(scheme: Scheme, target: Target) -> str | None:
    """Why a target cannot compute under a scheme; None if it can.

    >>> from npuc.quant import SCHEMES
    >>> from npuc.target import load_target
    >>> misfit(SCHEMES["int8"], load_target("edge-4t")) is None
    True
    """
    arithmetic = target.arithmetic
    activations = {_STORAGE.get(name): kinds for name, kinds in arithmetic.activations.formats.items()}
    weights = {_STORAGE.get(name): kinds for name, kinds in arithmetic.weights.formats.items()}
    for what, formats, storage, scales in (
        ("activations", activations, scheme.activation, scheme.activation_scales),
        ("weights", weights, scheme.weight, scheme.weight_scales),
    ):
        kinds = [_SCALES.get(kind, kind) for kind in formats.get(storage, ())]
        # Power-of-two scales are symmetric ones, and symmetric ones are affine: what can more can less.
        able = {"affine": ("affine",), "symmetric": ("symmetric", "affine")}.get(
            scales, tuple(_SCALES.values())
        )
        if not kinds:
            return f"it has no {what} of type {storage}"
        if not set(kinds) & set(able):
            return f"it has {' and '.join(kinds)} {what} of type {storage}, not {scales} ones"
    if scheme.per_channel and "per_channel" not in arithmetic.weights.granularity:
        return "its weights have one scale a tensor"
    if scheme.requant not in arithmetic.requantization.kinds:
        return f"it requantizes by {' or '.join(arithmetic.requantization.kinds)}, not {scheme.requant}"
    wide = scheme.requant in ("single", "single_even") and (
        scheme.multiplier_bits > arithmetic.requantization.multiplier_bits
    )
    if wide:
        return f"its multipliers have {arithmetic.requantization.multiplier_bits} bits, not {scheme.multiplier_bits}"
    return None


def fitted(scheme: Scheme, target: Target) -> Scheme:
    """A scheme with the requantization and granularity of a target where the target lacks the scheme's own.

    What types and scales a layer has is the user's word; how sums are rescaled is the machine's.
    """
    arithmetic, own = target.arithmetic, scheme_for(target)
    lacking = scheme.requant not in arithmetic.requantization.kinds
    return replace(
        scheme,
        requant=own.requant if lacking else scheme.requant,
        multiplier_bits=min(scheme.multiplier_bits, arithmetic.requantization.multiplier_bits),
        per_channel=scheme.per_channel and "per_channel" in arithmetic.weights.granularity,
    )


def _first(choices: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    return next(iter(choices), None)
