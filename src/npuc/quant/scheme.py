"""A scheme: which integers stand for which reals, and how an accumulator becomes an output.

A scheme is what a target's arithmetic allows, or what a user asks for a layer. The named ones are the field's usual
ones; `SCHEMES["int8"]` is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scales = Literal["affine", "symmetric", "pow2"]
Kind = Literal["double", "single", "single_even", "pow2", "float"]


@dataclass(frozen=True)
class Scheme:
    """How a layer's tensors are represented and rescaled."""

    activation: str = "i8"
    """Storage of activations: i8, ui8 or i16."""
    activation_scales: Scales = "affine"
    weight: str = "i8"
    """Storage of weights: i8, i4 or i16."""
    weight_scales: Literal["symmetric", "pow2"] = "symmetric"
    per_channel: bool = True
    """One weight scale an output channel, or one for the tensor."""
    narrow_weights: bool = True
    """Weights use [-127, 127] rather than [-128, 127]."""
    requant: Kind = "single"
    multiplier_bits: int = 31
    """Magnitude bits of a requantization multiplier: 31, 15 or 7."""

    @property
    def accumulator_bits(self) -> int:
        """Width of the accumulator: 32 bits, or 48 where operands are of 16 bits."""
        return 32 if self.activation != "i16" and self.weight != "i16" else 48


SCHEMES: dict[str, Scheme] = {
    "int8": Scheme(),
    "int8-symmetric": Scheme(activation_scales="symmetric"),
    "uint8": Scheme(activation="ui8", per_channel=False),
    "int16": Scheme(activation="i16", activation_scales="symmetric"),
    "int16-weights": Scheme(activation="i16", activation_scales="symmetric", weight="i16"),
    "int4-weights": Scheme(weight="i4"),
    "pow2": Scheme(
        activation_scales="pow2",
        weight_scales="pow2",
        per_channel=False,
        narrow_weights=False,
        requant="pow2",
    ),
    "dfp16": Scheme(
        activation="i16",
        activation_scales="pow2",
        weight="i16",
        weight_scales="pow2",
        per_channel=False,
        requant="pow2",
    ),
    "tflite": Scheme(requant="double"),
}
"""Schemes by name; `dfp16` is dynamic fixed point, as `pow2` is for 8 bits."""
