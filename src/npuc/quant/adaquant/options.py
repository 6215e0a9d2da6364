"""The options of AdaQuant, for the network and for single layers.

adaquant:
  iterations: 500
  weight_rate: 0.01
  layers:
    "stage3.*": {weight_scale_rate: 0}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from npuc.quant.patterns import matches

Rate = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class LayerRates(BaseModel):
    """Learning rates of one layer that differ from those of the network."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    weight_rate: Rate | None = None
    bias_rate: Rate | None = None
    weight_scale_rate: Rate | None = None
    activation_scale_rate: Rate | None = None


class AdaQuantOptions(BaseModel):
    """Learning rates are those of Adam, and decay to zero along a cosine; a rate of 0 disables learning."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    weight_rate: Rate = 0.01
    """The rate of weights, in steps of their scale."""
    bias_rate: Rate = 0.01
    """The rate of biases, in 1/256 of the range of their layer's result."""
    weight_scale_rate: Rate = 0.001
    """The relative rate of weight scales."""
    activation_scale_rate: Rate = 0.001
    """The relative rate of activation scales."""
    iterations: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """Iterations for each block."""
    batch: Annotated[int, Field(ge=1, le=4096)] = 16
    dropped: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """The share of activations that stays float while learning (QDrop)."""
    real_rates: bool = False
    """Whether the rates of weights and biases are in their own units instead: what Adam moves a weight by in one iteration."""
    layers: dict[str, LayerRates] = {}
    """By layer or tensor name; `*` and `?` match any characters, and later entries take precedence."""

    def rates(self, names: Iterable[str]) -> AdaQuantOptions:
        """The options of a layer with these names."""
        changes: dict[str, float] = {}
        known = tuple(names)
        for pattern, level in self.layers.items():
            if matches(pattern, known):
                changes.update(level.model_dump(exclude_none=True))
        return self.model_copy(update=changes)
