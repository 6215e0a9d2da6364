"""Learned rounding of weights (AdaRound): each weight goes to the integer below or to the one above, whichever serves the loss.

The weights and their scales stay. A weight w of scale s is (floor(w / s) + h) * s with

    h = clamp(1.2 * sigmoid(sharpness * u / s) - 0.1, 0, 1)

and u is learned, in units of weights, so that it takes the learning rates of weights. At the begin h is the fraction of w / s:
the network computes with its float weights. The sharpness grows while the network is trained, and h becomes 0 or 1; what is
deployed is 1 where u >= 0. For w / s = 2.3: h = 0.3, u = -0.69 s, and untrained it is rounded to 2, the nearest.
"""

from __future__ import annotations

from typing import Any

import torch

_SPREAD = 0.1
"""How far the sigmoid is stretched beyond 0 and 1, where it has no gradient any more."""
_SHARPEST = 30.0


class LearnedRounding(torch.nn.Module):  # type: ignore[misc]
    """The rounding of the weights of a layer."""

    def __init__(self, weight: Any, scale: Any, lowest: int, highest: int) -> None:
        super().__init__()
        self.limits = lowest, highest
        steps = weight / scale
        fraction = (steps - torch.floor(steps) + _SPREAD) / (1 + 2 * _SPREAD)
        self.place = torch.nn.Parameter(torch.logit(fraction) * scale)
        self.register_buffer("sharpness", torch.ones(()))

    def anneal(self, progress: float) -> None:
        """Sharpen it, from the begin of training (0) to its end (1)."""
        self.sharpness.fill_(_SHARPEST**progress)

    def forward(self, weight: Any, scale: Any) -> Any:
        """The weights, between the integers below and above as far as sharpness allows; the gradient goes to the rounding."""
        share = torch.sigmoid(self.sharpness * self.place / scale) * (1 + 2 * _SPREAD) - _SPREAD
        return self._rounded(weight, scale, share.clamp(0, 1))

    def deployed(self, weight: Any, scale: Any) -> Any:
        """The weights as they are rounded in the end."""
        return self._rounded(weight, scale, (self.place >= 0).to(weight.dtype))

    def _rounded(self, weight: Any, scale: Any, share: Any) -> Any:
        return (torch.floor(weight / scale) + share).clamp(*self.limits) * scale
