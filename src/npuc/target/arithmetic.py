"""Which numbers a machine knows and how it rounds them: the target's side of the arithmetic contract.

`docs/arithmetic.md` says what each requantization kind computes; here a target says which of them it has, how wide its
multipliers, biases, accumulators and tables are, and which types go with which kind of scale.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from npuc.arithmetic.kinds import Kind, Rounding, Scales
from npuc.target.base import ElementType, IntegerType, Part
from npuc.target.frozen import FrozenDict, FrozenMapping
from npuc.target.units import Rate
from npuc.target.vocabulary import OP_KINDS, nearest


def _today(names: Any, value: Any) -> Any:
    """The name that an older spelling has today; anything else as it is, for the list of names to refuse."""
    return next(
        (
            member.value
            for member in names
            if isinstance(value, str) and value in (member.spelling, member.value)
        ),
        value,
    )


if TYPE_CHECKING:
    Scheme = str
    RequantizationKind = str
    ConstantRounding = str
else:  # the names come from the one table of kinds, which a type checker cannot read
    Scheme = Annotated[Literal[(*Scales, "float")], BeforeValidator(partial(_today, Scales))]
    RequantizationKind = Annotated[Literal[tuple(Kind)], BeforeValidator(partial(_today, Kind))]
    ConstantRounding = Literal[tuple(Rounding)]
Granularity = Literal["per_tensor", "per_channel"]
IntegerRange = Literal["full", "narrow"]


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError(f"{', '.join(values)} has an entry twice")
    return values


Schemes = Annotated[tuple[Scheme, ...], Field(min_length=1, strict=False)]
Width = Annotated[int, Field(ge=2, le=64)]


class Activations(Part):
    """How activations are quantized; always per tensor."""

    formats: FrozenMapping[ElementType, Schemes]
    """Element type to the kinds of scale that it may have, the preferred first: `symmetric` (zero point 0), `affine`,
    `power_of_two` (zero point 0), or `float` for the floating-point types."""
    range: IntegerRange = "full"
    """`full` uses all values of the type, `narrow` leaves out the most negative one."""


class Weights(Part):
    """How weights are quantized."""

    formats: FrozenMapping[ElementType, Schemes]
    """Element type to the kinds of scale that it may have, the preferred first."""
    granularity: Annotated[tuple[Granularity, ...], Field(min_length=1, strict=False)]
    """Whether output channels may have scales of their own, the preferred first."""
    range: IntegerRange = "narrow"
    """`full` uses all values of the type, `narrow` leaves out the most negative one."""

    _no_twice = field_validator("granularity")(_distinct)


class Requantization(Part):
    """How an accumulator becomes an output (section 4 of the contract)."""

    kinds: Annotated[tuple[RequantizationKind, ...], Field(min_length=1, strict=False)]
    """The kinds that the machine has, the preferred first."""
    multiplier_bits: Literal[31, 15, 7]
    """Bits of a multiplier without its sign; `pow2` and `float_scale` have none."""
    min_shift: Annotated[int, Field(ge=-32, le=0)] = 0
    """The least shift; below zero is a shift to the left."""
    max_shift: Annotated[int, Field(ge=1, le=62)]
    """The greatest shift to the right."""

    _no_twice = field_validator("kinds")(_distinct)


class Bias(Part):
    """Biases, in the scale of the accumulator."""

    bits: Width
    """Width, sign included."""
    wide_bits: Width | None = None
    """Width beside a wide accumulator."""
    significant_bits: Width | None = None
    """Bits that are kept, sign included: the biases of a layer are integers of this width, all shifted to the left by the
    same amount. All, if absent."""


class Accumulator(Part):
    """Sums of products."""

    bits: Width
    """Width, sign included."""
    wide_bits: Width | None = None
    """A wider one, slower or not, for sums that would not fit."""


class Tables(Part):
    """Tables of elementwise functions: the most entries that one may have, 0 where there are none."""

    entries_8bit: Annotated[int, Field(ge=0, le=1 << 16)]
    """For 8-bit inputs; a full table has 256, fewer are interpolated between."""
    entries_16bit: Annotated[int, Field(ge=0, le=1 << 16)]
    """For 16-bit inputs; tables have the most of 2^k + 1, that of the contract 513."""


class FixedOutput(Part):
    """An output whose scale the machine decides."""

    scale: Rate
    """Real value of one step."""
    zero_point: Annotated[int, Field(ge=-(2**15), le=2**15)] = 0
    """The integer that stands for zero."""


def _op_kind(value: str) -> str:
    if value not in OP_KINDS:
        raise ValueError(f"'{value}' is not an op kind{nearest(value, OP_KINDS)}")
    return value


class Arithmetic(Part):
    """Everything that decides bits."""

    activations: Activations
    """Types and scales of activations."""
    weights: Weights
    """Types and scales of weights."""
    requantization: Requantization
    """From accumulators to outputs."""
    constant_rounding: ConstantRounding = "half_away"
    """How weights and biases are rounded when they are quantized."""
    bias: Bias
    """Widths of biases."""
    accumulator: Accumulator
    """Widths of sums."""
    tables: Tables
    """Sizes of tables."""
    fixed_outputs: FrozenMapping[str, FrozenMapping[IntegerType, FixedOutput]] = Field(
        default_factory=FrozenDict
    )
    """Op kind to element type to the scale and zero point that its output always has, such as 1/256 for a softmax."""

    @field_validator("fixed_outputs")
    @classmethod
    def _known_ops(cls, value: dict[str, object]) -> dict[str, object]:
        for kind in value:
            _op_kind(kind)
        return value
