"""A scheme: which integers or floats stand for which reals, and how an accumulator becomes an output.

A scheme is what a target's arithmetic allows, or what a user asks for a layer. The named ones are the field's usual
ones; `SCHEMES["int8"]` is the default.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS, WEIGHT_INTEGERS, dtype_of
from npuc.arithmetic.kinds import Kind, Rounding, Scales
from npuc.arithmetic.requantization import StageLimits

FLOATS = ("bf16", "f16", "f32")
"""Floats that machines compute with: both operands of a product are of one of them."""
BLOCKS = ("mx6", "mx9")
"""Block floating point: operands of products with constant weights, all else is f32."""
TENSOR_CLASSES = ("weights", "activations", "bias")
"""The classes of tensors of a layer."""
ALIGNED_CONCATS = ("all", "outputs", "none")
FixedOutput = tuple[str, str, float, int]
"""Op, storage, scale, zero point: `("softmax", "i8", 1 / 256, -128)`."""


_INTEGERS = {*ACTIVATION_INTEGERS, *WEIGHT_INTEGERS}
_NAMED: dict[str, type[StrEnum]] = {
    "activation_scales": Scales,
    "weight_scales": Scales,
    "requant": Kind,
    "constant_rounding": Rounding,
}


@dataclass(frozen=True)
class Scheme:
    """How a layer's tensors are represented and rescaled."""

    activation: str = "i8"
    """Activations: i8, ui8, i2 to i16, bf16, f16, f32, mx6 or mx9; those that are no integers use nothing below."""
    activation_scales: Scales = Scales.AFFINE
    weight: str = "i8"
    """Weights: i2 to i16, ui8 with affine scales, or the same float type as activations."""
    weight_scales: Scales = Scales.SYMMETRIC
    """Affine weights have one scale and one zero point a tensor."""
    per_channel: bool = True
    """One weight scale an output channel, or one for the tensor."""
    narrow_weights: bool = True
    """Weights use [-127, 127] rather than [-128, 127]."""
    weight_method: str = "max"
    """How far weights reach before they are clipped: a method of `npuc.quant.weight_ranges`, with its options."""
    full_range: bool = False
    """Symmetric scales are t/128 rather than t/127, and weights use all integers: t itself is clipped by one step."""
    requant: Kind = Kind.SINGLE_ROUNDING
    multiplier_bits: int = 31
    """Magnitude bits of a requantization multiplier: 31, 24 (a factor that was float32), 15 or 7."""
    min_shift: int = -31
    """The least shift of a requantization; below zero is a shift to the left."""
    max_shift: int = 62
    short_multipliers: bool = False
    """A factor that is too small for the greatest shift has a multiplier of fewer bits rather than 0."""
    narrow_activations: bool = False
    """Signed activations leave out their most negative value."""
    exact_scales: bool = False
    """Scales of activations, which are not powers of two, are float64 numbers as other tools' are; otherwise float32."""
    unsigned_from_zero: bool = False
    """Unsigned activations without affine scales have zero point 0, and tensors with negative values are signed; otherwise the
    zero point is in the middle."""
    rounded_operands: bool = False
    """Sums round each operand to the scale of the result by itself, with multipliers of 7 bits, and add those integers, as
    TPU-MLIR's do; otherwise the sum is rounded once. For 8-bit activations under `single_rounding`."""
    exact_averages: bool = False
    """Under `pow2`, averages divide by multipliers of 31 bits, rather than of the 7 or 15 that its machines have."""
    aligned_concats: str = "all"
    """The concats whose operands are made in the type of the result: all, those that are outputs, or none; operands of the others
    keep their own scales, and are requantized."""
    constant_rounding: Rounding = Rounding.HALF_AWAY
    """How weights, biases and other constants are rounded; entries of tables are rounded half away from zero."""
    sum_bits: int = 32
    """Width of an accumulator, sign included."""
    wide_sum_bits: int = 48
    """Width of the wider accumulator, for 16-bit operands and sums that would not fit; 0 if there is none."""
    bias_bits: int = 32
    wide_bias_bits: int = 48
    """Width of a bias beside the wider accumulator."""
    bias_significant_bits: int = 0
    """Biases of a layer are integers of this width, all shifted left by the same amount; 0 keeps all bits."""
    table_entries: int = 256
    """Entries that a table for 8-bit operands may have: 256, or 2^k + 1 that are interpolated between."""
    wide_table_entries: int = 513
    """Entries that a table for 16-bit operands may have: it has 2^k + 1. As it is, the target's."""
    classes: tuple[str, ...] = TENSOR_CLASSES
    """The classes of tensors that are quantized; a layer of which not all are computes in float (`quant.tensor_classes`)."""
    fixed_outputs: tuple[FixedOutput, ...] = ()
    """Results whose scale and zero point are fixed, whatever the data says."""

    def __post_init__(self) -> None:
        """Names in plain text, also older ones, become what they name."""
        for field, names in _NAMED.items():
            object.__setattr__(self, field, names(getattr(self, field)))

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, for files."""
        return asdict(self) | {field: str(getattr(self, field)) for field in _NAMED}

    @property
    def words(self) -> str:
        """The scheme in a line: types, scales, granularity, requantization, and what else is not as usual.

        >>> Scheme(weight="i4", max_shift=31).words
        'i8 affine activations, i4 symmetric weights per channel, single_rounding with 31-bit multipliers, max_shift 31'
        >>> Scheme(activation="bf16", weight="bf16").words
        'bf16 activations and weights'
        """
        if self.is_float and self.weight != self.activation:
            per = "channel" if self.per_channel else "tensor"
            weights = f"{self.weight} {self.weight_scales} weights per {per}"
            return f"{self.activation} activations, {weights}, multiplied in {self.activation}"
        if self.has_no_integers:
            return f"{self.activation} activations and weights"
        said = {
            "activation",
            "activation_scales",
            "weight",
            "weight_scales",
            "per_channel",
            "requant",
            "multiplier_bits",
        }
        bits = self.requant.multiplier_bits or self.multiplier_bits
        how = (
            f"{self.requant} with {bits}-bit multipliers"
            if self.requant.has_multiplier
            else str(self.requant)
        )
        usual = Scheme()
        others = [
            f"{field.name} {getattr(self, field.name)}"
            for field in fields(self)
            if field.name not in said and getattr(self, field.name) != getattr(usual, field.name)
        ]
        return ", ".join(
            [
                f"{self.activation} {self.activation_scales} activations",
                f"{self.weight} {self.weight_scales} weights per {'channel' if self.per_channel else 'tensor'}",
                how,
                *others,
            ]
        )

    def __str__(self) -> str:
        """Its name, if it is one of `SCHEMES`, and what it is."""
        name = next((name for name, scheme in SCHEMES.items() if scheme == self), "")
        return f"{name}: {self.words}" if name else self.words

    @property
    def weight_limits(self) -> tuple[int, int]:
        """The least and the greatest integer of symmetric weights.

        >>> Scheme().weight_limits, Scheme(full_range=True).weight_limits
        ((-127, 127), (-128, 127))
        """
        least, most = dtype_of(self.weight).limits
        return (-most if self.narrow_weights and not self.full_range else least), most

    @property
    def wide(self) -> bool:
        """Whether the wider accumulator is the usual one: operands have more than 8 bits, and the requantization can follow."""
        more = any(dtype_of(name).bits > 8 for name in (self.activation, self.weight) if name in _INTEGERS)
        return more and self.has_wide_sums

    @property
    def has_wide_activations(self) -> bool:
        """Whether activations are integers of more than 8 bits."""
        return self.activation in _INTEGERS and dtype_of(self.activation).bits > 8

    @property
    def has_few_bit_weights(self) -> bool:
        """Whether weights are integers of fewer than 8 bits."""
        return self.weight in _INTEGERS and dtype_of(self.weight).bits < 8

    @property
    def has_wide_sums(self) -> bool:
        """Whether there is a wider accumulator; `double_rounding` has one for 16-bit activations only, as TFLite has."""
        return self.wide_sum_bits > 0 and (
            self.requant is not Kind.DOUBLE_ROUNDING or self.has_wide_activations
        )

    @property
    def is_float(self) -> bool:
        """True for bf16, f16 and f32."""
        return self.activation in FLOATS

    @property
    def has_no_integers(self) -> bool:
        """True for floats and block floating point."""
        return self.is_float or self.is_block

    @property
    def is_block(self) -> bool:
        """True for block floating point."""
        return self.activation in BLOCKS

    @property
    def needs_ranges(self) -> bool:
        """True if scales come from the ranges of tensors."""
        return not (self.has_no_integers or self.classes == ("weights",))

    @property
    def is_partial(self) -> bool:
        """True if some classes of tensors are not quantized, so that layers compute in float."""
        return set(self.classes) != set(TENSOR_CLASSES) and not self.has_no_integers

    @property
    def accumulator_bits(self) -> int:
        """Width of the usual accumulator of this scheme's operands."""
        return self.wide_sum_bits if self.wide else self.sum_bits

    @property
    def stage(self) -> StageLimits:
        """What the parameters of an output stage are bound by."""
        return {
            "bits": self.multiplier_bits,
            "max_shift": self.max_shift,
            "min_shift": self.min_shift,
            "short": self.short_multipliers,
        }

    @property
    def averages(self) -> tuple[Kind, StageLimits]:
        """How averages are divided by their counts, and within which bounds."""
        if self.exact_averages and self.requant is Kind.POW2:
            return Kind.SINGLE_ROUNDING, {}
        return self.requant, self.stage

    @property
    def least_factor(self) -> float:
        """The smallest factor that a sum can be scaled by without its multiplier becoming 0."""
        if not self.requant.has_shift:
            return 0.0
        bits = 1 if self.short_multipliers else self.requant.bits(self.multiplier_bits)
        return float(2.0 ** (bits - self.max_shift))


SCHEMES: dict[str, Scheme] = {
    "int8": Scheme(),
    "int8-symmetric": Scheme(activation_scales=Scales.SYMMETRIC),
    "uint8": Scheme(activation="ui8", per_channel=False),
    "uint8-weights": Scheme(activation="ui8", weight="ui8", weight_scales=Scales.AFFINE, per_channel=False),
    "int16": Scheme(activation="i16", activation_scales=Scales.SYMMETRIC),
    "int16-weights": Scheme(activation="i16", activation_scales=Scales.SYMMETRIC, weight="i16"),
    "int4-weights": Scheme(weight="i4"),
    "pow2": Scheme(
        activation_scales=Scales.POWER_OF_TWO,
        weight_scales=Scales.POWER_OF_TWO,
        per_channel=False,
        narrow_weights=False,
        requant=Kind.POW2,
    ),
    "dfp16": Scheme(
        activation="i16",
        activation_scales=Scales.POWER_OF_TWO,
        weight="i16",
        weight_scales=Scales.POWER_OF_TWO,
        per_channel=False,
        requant=Kind.POW2,
    ),
    "tflite": Scheme(requant=Kind.DOUBLE_ROUNDING),
    "tflite-int16": Scheme(
        activation="i16", activation_scales=Scales.SYMMETRIC, requant=Kind.DOUBLE_ROUNDING
    ),
    **{name: Scheme(activation=name, weight=name) for name in (*FLOATS, *BLOCKS)},
}
"""Schemes by name; `dfp16` is dynamic fixed point, as `pow2` is for 8 bits."""
