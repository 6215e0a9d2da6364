"""Schemes that cannot be: combinations of fields that no machine and no kernel could follow, each with its sentence."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS, WEIGHT_INTEGERS
from npuc.arithmetic.kinds import Kind, Scales
from npuc.arithmetic.requantization import is_power_of_two
from npuc.ir.definition import TOP_OPS
from npuc.ir.dtypes import dtype_of
from npuc.quant.lowering.registry import may_keep_type
from npuc.quant.scheme import Scheme


class Contradiction(NamedTuple):
    """What is wrong with a scheme."""

    what: str
    """The fields that do not go together, in a sentence without a full stop."""
    fix: str
    """What to change."""


def contradiction(scheme: Scheme) -> Contradiction | None:
    """What is wrong with a scheme, and what to do about it; None if nothing is.

    >>> contradiction(Scheme(requant=Kind.POW2)).fix
    'Set activation_scales and weight_scales to power_of_two, or another requant'
    """
    if scheme.is_float and scheme.weight != scheme.activation:
        return _of_types(scheme) or _of_scales(scheme)
    if scheme.has_no_integers:
        return _of_types(scheme)
    return _of_types(scheme) or _of_scales(scheme) or _of_widths(scheme) or _of_fixed_outputs(scheme)


def _of_types(scheme: Scheme) -> Contradiction | None:
    whole = {*ACTIVATION_INTEGERS, *WEIGHT_INTEGERS}
    weight_only = scheme.is_float and scheme.weight in whole
    mixed = scheme.activation != scheme.weight and not {scheme.activation, scheme.weight} <= whole
    if mixed and not weight_only:
        return Contradiction(
            f"activations of type {scheme.activation} cannot be multiplied by weights of type {scheme.weight}",
            "Give both the same float type, or both integers, or integer weights to bf16 or f16 activations",
        )
    return None


def _of_scales(scheme: Scheme) -> Contradiction | None:
    if (scheme.weight == "ui8") != (scheme.weight_scales == "affine"):
        return Contradiction(
            f"weights of type {scheme.weight} cannot have {scheme.weight_scales} scales",
            "Give ui8 weights affine scales, and others symmetric or power_of_two ones",
        )
    if scheme.weight_scales == "affine" and scheme.per_channel:
        return Contradiction(
            "affine weights have one scale and one zero point a tensor",
            "Set per_channel to false",
        )
    powers = {scheme.activation_scales, scheme.weight_scales} == {Scales.POWER_OF_TWO}
    if scheme.requant is Kind.POW2 and not powers:
        return Contradiction(
            "requantization by shifts alone needs power-of-two scales for activations and weights",
            "Set activation_scales and weight_scales to power_of_two, or another requant",
        )
    if scheme.rounded_operands and (
        scheme.requant is not Kind.SINGLE_ROUNDING or scheme.has_wide_activations
    ):
        return Contradiction(
            "operands of sums are rounded by themselves with 8-bit activations under single_rounding only",
            "Set requant to single_rounding, or rounded_operands to false",
        )
    if scheme.full_range and scheme.narrow_activations:
        return Contradiction(
            "scales of the full range need the most negative integer, which narrow activations leave out",
            "Set full_range or narrow_activations to false",
        )
    bits = scheme.requant.bits(scheme.multiplier_bits)
    if scheme.max_shift < bits:
        return Contradiction(
            f"a multiplier of {bits} bits and a shift of at most {scheme.max_shift} make no factor below 1/2",
            f"Set max_shift to {bits} or more, or multiplier_bits to less",
        )
    return None


def _of_widths(scheme: Scheme) -> Contradiction | None:
    if 0 < scheme.wide_sum_bits <= scheme.sum_bits:
        return Contradiction(
            f"the wide accumulator of {scheme.wide_sum_bits} bits is not wider than the usual one of {scheme.sum_bits}",
            "Set wide_sum_bits to 0 if there is none",
        )
    if scheme.bias_bits > scheme.sum_bits or scheme.wide_bias_bits > max(
        scheme.wide_sum_bits, scheme.sum_bits
    ):
        return Contradiction(
            "a bias cannot have more bits than the accumulator that it is added to",
            "Lower bias_bits or wide_bias_bits",
        )
    if scheme.bias_significant_bits > scheme.bias_bits:
        return Contradiction(
            f"a bias of {scheme.bias_bits} bits does not have {scheme.bias_significant_bits} significant ones",
            "Lower bias_significant_bits, or set it to 0 to keep all",
        )
    return None


def _of_fixed_outputs(scheme: Scheme) -> Contradiction | None:
    for kind, storage, scale, zero_point in scheme.fixed_outputs:
        where = f"the fixed output of '{kind}' as {storage}"
        op = TOP_OPS.get(f"top.{kind}")
        if op is None:
            return Contradiction(f"{where}: the IR has no op of this name", "Name an op of docs/ops.md")
        if may_keep_type(op):
            return Contradiction(
                f"{where}: this op keeps the scale of its operand", "Fix the output of the op before it"
            )
        if storage not in ACTIVATION_INTEGERS:
            return Contradiction(f"{where}: activations are i8, ui8 or i9 to i16", "Name one of these")
        if not (isfinite(scale) and scale > 0):
            return Contradiction(f"{where}: its scale is {scale}, not a positive number", "Correct it")
        least, most = dtype_of(storage).limits
        if not least <= zero_point <= most:
            return Contradiction(
                f"{where}: its zero point {zero_point} is outside {least} to {most}", "Correct it"
            )
        if scheme.requant is Kind.POW2 and not is_power_of_two(scale):
            return Contradiction(
                f"{where}: its scale {scale:g} is no power of two, and this requantization only shifts",
                "Choose another requant",
            )
    return None
