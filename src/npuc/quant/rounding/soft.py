"""Soft rounding: weights with learnable roundings (AdaRound)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from npuc.quant.layers import IntegerLayer

_STRETCH = 1.1, -0.1
"""The sigmoid is stretched beyond 0 and 1, so that roundings can reach both."""


class SoftRounding(torch.nn.Module):  # type: ignore[misc]
    """The weights of a layer: rounded down, plus a learned value between 0 and 1."""

    def __init__(self, layer: IntegerLayer, device: str) -> None:
        super().__init__()
        self.layer = layer
        scale = torch.tensor(np.broadcast_to(layer.scale, layer.weight.shape).copy(), dtype=torch.float64)
        ratio = layer.weight / layer.scale
        # Weights that are clipped by more than one step keep their clipped value.
        below = np.clip(np.floor(ratio), layer.lowest, layer.highest - 1)
        rest = np.clip(ratio - below, 0.01, 0.99)
        high, low = _STRETCH
        logit = -np.log((high - low) / (rest - low) - 1)
        self.register_buffer("scale", scale.to(device))
        self.register_buffer("below", torch.tensor(below, dtype=torch.float64, device=device))
        self.alpha = torch.nn.Parameter(torch.tensor(logit, dtype=torch.float64, device=device))
        self.bias: Any = None
        if layer.bias is not None and layer.real_bias is not None:
            self.bias = torch.nn.Parameter(torch.tensor(layer.real_bias, dtype=torch.float64, device=device))

    def part(self) -> Any:
        """The learned value between 0 and 1 that is added to each rounded-down weight."""
        high, low = _STRETCH
        return (torch.sigmoid(self.alpha) * (high - low) + low).clamp(0, 1)

    def soft(self) -> Any:
        """The weights while learning."""
        return (self.below + self.part()) * self.scale

    def hard(self) -> Any:
        """The weights of the integer network."""
        return (self.below + (self.part() >= 0.5).double()) * self.scale

    def integers(self) -> Any:
        """The chosen integers."""
        return (self.below + (self.part() >= 0.5).double()).detach().cpu().numpy().astype(np.float64)

    def bias_change(self) -> Any:
        """The change of the bias, in steps of the accumulator."""
        layer = self.layer
        if self.bias is None or layer.bias is None:
            return None
        return self.bias.detach().cpu().numpy().astype(np.float64) / layer.unit - layer.bias

    def undecided(self, sharpness: float) -> Any:
        """The regularization term: how far the roundings are from 0 and 1."""
        return (1 - (2 * self.part() - 1).abs().pow(sharpness)).sum()
