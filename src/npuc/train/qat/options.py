"""The options of quantization-aware training that are not those of every training run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QatOptions:
    """What is learned, and with which noise."""

    learn_scales: bool = True
    """Scales of weights and activations are learned (LSQ; TQT for powers of two); else they stay as calibrated."""
    learn_inputs: bool = False
    """The scales of network inputs are learned too; callers that quantize inputs themselves rely on them."""
    scale_rate: float = 1.0
    """The learning rate of scales, relative to that of weights."""
    weight_noise: float = 0.0
    """The share of weights that are rounded at random in each step (Quant-Noise); 0 rounds all to the nearest."""
    learn_rounding: bool = False
    """Weights and their scales stay, and what is learned is whether each weight is rounded down or up (AdaRound), beside biases
    and the scales of activations. It sharpens while the network is trained: `fit` does that, loops of one's own call `anneal`."""
