"""The scheme that a target prefers, and whether a target supports a given scheme.

A target lists the formats that it supports, the preferred one first; a scheme is one choice of each. Widths, shifts,
rounding, tables and fixed outputs are properties of the target: every scheme that is used with it is adapted to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS, SHORT, WEIGHT_INTEGERS, machine_format
from npuc.arithmetic.kinds import Kind, Rounding, Scales
from npuc.errors import QuantizationError
from npuc.quant.possible import contradiction
from npuc.quant.scheme import FLOATS, SCHEMES, TENSOR_CLASSES, Scheme
from npuc.target import Target
from npuc.target.arithmetic import Arithmetic


def scheme_for(target: Target) -> Scheme:
    """The scheme that a target prefers.

    >>> from npuc.target import load_target
    >>> scheme_for(load_target("edge-4t")).requant
    'single_rounding'
    """
    arithmetic: Arithmetic = target.arithmetic
    activation = _first(
        (SHORT[name].name, Scales(kind))
        for name, kinds in arithmetic.activations.formats.items()
        for kind in kinds
        if SHORT[name].name in ACTIVATION_INTEGERS and kind in list(Scales)
    )
    weight = _first(
        (SHORT[name].name, Scales(kind))
        for name, kinds in arithmetic.weights.formats.items()
        for kind in kinds
        if (name == "u8" and kind == Scales.AFFINE)
        or (name in WEIGHT_INTEGERS and kind in (Scales.SYMMETRIC, Scales.POWER_OF_TWO))
    )
    if activation is None or weight is None:
        for name in arithmetic.activations.formats:
            if name in FLOATS and name in arithmetic.weights.formats:
                return SCHEMES[name]
        what = "activations" if activation is None else "weights"
        raise QuantizationError(
            f"the target '{target.name}' has no integer {what}, so there is nothing to quantize to",
            fix="Choose a target with i8 or i16 arithmetic",
        )
    powers = {activation[1], weight[1]} == {Scales.POWER_OF_TWO}
    kind = next((k for k in arithmetic.requantization.kinds if k != Kind.POW2 or powers), None)
    if kind is None:
        raise QuantizationError(
            f"the target '{target.name}' requantizes by shifts alone, but prefers scales that are no powers of two",
            fix=f"Put {Scales.POWER_OF_TWO} first in its formats",
        )
    preferred = Scheme(
        activation=activation[0],
        activation_scales=activation[1],
        weight=weight[0],
        weight_scales=weight[1],
        per_channel=arithmetic.weights.granularity[0] == "per_channel" and weight[1] is not Scales.AFFINE,
        narrow_weights=False,
        requant=Kind(kind),
    )
    return _bound(preferred, arithmetic)


def misfit(scheme: Scheme, target: Target) -> str | None:
    """Why a target cannot compute under a scheme; None if it can.

    >>> from npuc.quant import SCHEMES
    >>> from npuc.target import load_target
    >>> misfit(SCHEMES["int8"], load_target("edge-4t")) is None
    True
    """
    arithmetic = target.arithmetic
    if scheme.has_no_integers:
        has = has_float(target, scheme.activation)
        return None if has else f"it does not compute with {scheme.activation}"
    if scheme.is_partial:
        return None  # float layers, on the CPU
    activations = {SHORT[name].name: kinds for name, kinds in arithmetic.activations.formats.items()}
    weights = {SHORT[name].name: kinds for name, kinds in arithmetic.weights.formats.items()}
    for what, formats, storage, scales in (
        ("activations", activations, SHORT[machine_format(scheme.activation)].name, scheme.activation_scales),
        ("weights", weights, scheme.weight, scheme.weight_scales),
    ):
        kinds = formats.get(storage, ())
        # Power-of-two scales are a special case of symmetric ones, and those of affine ones.
        able = {Scales.AFFINE: (Scales.AFFINE,), Scales.SYMMETRIC: (Scales.SYMMETRIC, Scales.AFFINE)}.get(
            scales, tuple(Scales)
        )
        if not kinds:
            return f"it has no {what} of type {storage}"
        if not set(kinds) & set(able):
            return f"it has {' and '.join(kinds)} {what} of type {storage}, not {scales} ones"
    if scheme.full_range and "narrow" in (arithmetic.weights.range, arithmetic.activations.range):
        return (
            "its integers leave out the most negative one, so that scales cannot be those of the full range"
        )
    if scheme.per_channel and "per_channel" not in arithmetic.weights.granularity:
        return "its weights have per-tensor scales"
    if scheme.requant not in arithmetic.requantization.kinds:
        return f"it requantizes by {' or '.join(arithmetic.requantization.kinds)}, not {scheme.requant}"
    wide = scheme.requant.multiplier_bits is None and (
        scheme.multiplier_bits > arithmetic.requantization.multiplier_bits
    )
    if wide:
        return f"its multipliers have {arithmetic.requantization.multiplier_bits} bits, not {scheme.multiplier_bits}"
    if scheme.exact_averages and scheme.requant is Kind.POW2:
        return "its averages divide by multipliers of 7 or 15 bits, not of 31"
    wrong = contradiction(scheme)
    return None if wrong is None else wrong.what


def has_float(target: Target, name: str) -> bool:
    """Whether a target computes with a float type."""
    arithmetic = target.arithmetic
    return name in arithmetic.activations.formats and name in arithmetic.weights.formats


def has_wide_activations(target: Target | None) -> bool:
    """Whether a target has 16-bit activations; True if there is no target."""
    return target is None or "i16" in target.arithmetic.activations.formats


def fitted(scheme: Scheme, target: Target) -> Scheme:
    """A scheme adapted to a target: its bounds, and its requantization and granularity if it lacks those of the scheme.

    The user chooses the types and scales of a layer; the target determines the requantization and the widths. Where weights alone
    are quantized, a target with short floats multiplies what they stand for in bf16 or f16; elsewhere such layers are float32.
    """
    if scheme.is_partial:
        short = [name for name in FLOATS if has_float(target, name)]
        weight_only = scheme.classes == ("weights",) and bool(short)
        return replace(scheme, activation=short[0], classes=TENSOR_CLASSES) if weight_only else scheme
    if not scheme.needs_ranges:
        return scheme
    arithmetic, own = target.arithmetic, scheme_for(target)
    lacking = scheme.requant not in arithmetic.requantization.kinds
    return _bound(
        replace(
            _with_weights(scheme, arithmetic),
            requant=own.requant if lacking else scheme.requant,
            per_channel=scheme.per_channel and "per_channel" in arithmetic.weights.granularity,
        ),
        arithmetic,
    )


def _with_weights(scheme: Scheme, arithmetic: Arithmetic) -> Scheme:
    """A scheme of unsigned activations and symmetric weights, with affine weights if the target has no symmetric ones."""
    formats = arithmetic.weights.formats
    symmetric = {"symmetric", "affine"} & set(formats.get("i8", ()))
    plain = (scheme.activation, scheme.weight, scheme.weight_scales) == ("ui8", "i8", "symmetric")
    if not plain or symmetric or "affine" not in formats.get("u8", ()):
        return scheme
    return replace(scheme, weight="ui8", weight_scales=Scales.AFFINE, per_channel=False)


def _bound(scheme: Scheme, arithmetic: Arithmetic) -> Scheme:
    """A scheme with the stricter of its own bounds and the target's."""
    how, bias, sums, tables = (
        arithmetic.requantization,
        arithmetic.bias,
        arithmetic.accumulator,
        arithmetic.tables,
    )
    wide = min(scheme.wide_sum_bits, sums.wide_bits or 0)
    significant = [bits for bits in (scheme.bias_significant_bits, bias.significant_bits) if bits]
    fixed = {(kind, storage): (scale, zero) for kind, storage, scale, zero in scheme.fixed_outputs}
    for kind, outputs in arithmetic.fixed_outputs.items():
        for name, output in outputs.items():
            fixed[kind, SHORT[name].name] = (float(output.scale), output.zero_point)
    return replace(
        scheme,
        narrow_weights=scheme.narrow_weights or arithmetic.weights.range == "narrow",
        narrow_activations=scheme.narrow_activations or arithmetic.activations.range == "narrow",
        unsigned_from_zero=scheme.unsigned_from_zero or _has_no_zero_points(scheme, arithmetic),
        constant_rounding=Rounding(arithmetic.constant_rounding),
        multiplier_bits=min(scheme.multiplier_bits, how.multiplier_bits),
        min_shift=max(scheme.min_shift, how.min_shift),
        max_shift=min(scheme.max_shift, how.max_shift),
        sum_bits=min(scheme.sum_bits, sums.bits),
        wide_sum_bits=wide,
        bias_bits=min(scheme.bias_bits, bias.bits, sums.bits),
        wide_bias_bits=min(scheme.wide_bias_bits, bias.wide_bits or bias.bits, wide or sums.bits),
        bias_significant_bits=min(significant, default=0),
        table_entries=min(scheme.table_entries, tables.entries_8bit),
        wide_table_entries=tables.entries_16bit
        if scheme.wide_table_entries == Scheme.wide_table_entries
        else min(scheme.wide_table_entries, tables.entries_16bit),
        fixed_outputs=tuple((*key, *value) for key, value in fixed.items()),
    )


def _has_no_zero_points(scheme: Scheme, arithmetic: Arithmetic) -> bool:
    """Whether the activations of a scheme are unsigned, on a machine that has zero point 0 alone for them."""
    return scheme.activation == "ui8" and "affine" not in arithmetic.activations.formats.get(
        "u8", ("affine",)
    )


def _first(choices: Iterable[tuple[str, Scales]]) -> tuple[str, Scales] | None:
    return next(iter(choices), None)
