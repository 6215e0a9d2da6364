"""What a machine computes with: cores, clock, the matrix array, the vector unit, the table units."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from npuc.arithmetic.machine import (
    MAX_CORES,
    MAX_LANES,
    carried_types,
    checked_clock,
    checked_patterns,
    checked_rate,
)
from npuc.target.base import ElementType, Part
from npuc.target.frozen import FrozenMapping
from npuc.target.units import Frequency, Pattern, Rate

Lanes = Annotated[int, Field(ge=1, le=MAX_LANES)]


class MatrixArray(Part):
    """The array that multiplies: each cycle, so many input channels × output channels × pixels."""

    input_channels: Lanes
    """Input channels that are summed in one cycle."""
    output_channels: Lanes
    """Output channels that are made in one cycle."""
    pixels: Lanes
    """Pixels that are worked on in one cycle."""
    rates: FrozenMapping[
        ElementType, FrozenMapping[ElementType, Annotated[Rate, AfterValidator(checked_rate)]]
    ]
    """Activation type to weight type to the share of the array's multiplications done in a cycle: 1 is all of them,
    1/4 a quarter. A pair that is not there cannot be multiplied. Activations of 9 to 15 bits are elements of i16 in
    instructions: where i16 has a rate, they have the same."""
    depthwise: Literal["idle_input_lanes", "full", "vector"] = "idle_input_lanes"
    """How a depthwise convolution fares: only one input lane of each output channel works (`idle_input_lanes`), all
    lanes find work (`full`), or the vector unit does it (`vector`)."""

    @property
    def multiplications(self) -> int:
        """Multiply-adds a cycle at rate 1."""
        return self.input_channels * self.output_channels * self.pixels

    def rate(self, activation: str, weight: str) -> Fraction | None:
        """The rate of a pair of types, or None if the array cannot multiply them."""
        rates: list[Fraction] = [
            self.rates[name][weight]
            for name in carried_types(activation)
            if name in self.rates and weight in self.rates[name]
        ]
        return rates[0] if rates else None


class Compute(Part):
    """The engines of the machine."""

    cores: Annotated[int, Field(ge=1, le=MAX_CORES)]
    """Cores, each with an array, a vector unit and a local memory of its own."""
    clock: Annotated[Frequency, AfterValidator(checked_clock)]
    """The one clock that all cycles count."""
    array: MatrixArray
    """The matrix array of a core."""
    vector_lanes: Lanes
    """Elements that a core's vector unit works on in a cycle."""
    table_units: Annotated[int, Field(ge=0, le=MAX_LANES)]
    """Table look-ups of a core in a cycle; 0 if it has no tables."""
    sparsity: Annotated[tuple[Pattern, ...], Field(strict=False), AfterValidator(checked_patterns)] | None = (
        None
    )
    """Patterns N:M of zeros among weights that the matrix array skips: where at most N of every M input channels are not
    zero, it does N/M of the multiplications (docs/weight-sparsity.md). Absent if it skips none."""
