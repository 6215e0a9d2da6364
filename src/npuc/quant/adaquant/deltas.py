"""The parameters of AdaQuant: weights, biases and weight scales of a layer, and the scale of an activation tensor."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch

from npuc.arithmetic.kinds import Scales
from npuc.arrays import Array
from npuc.ir import Value
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant.adaquant.lowering import LearnedLayer
from npuc.quant.layers import IntegerLayer
from npuc.quant.reconstruction.fake import fake_quantized, rounded

_FURTHEST = log(32.0)
"""The largest change of a scale, as the logarithm of a factor."""


class LayerDelta:
    """The learnable weights, bias and weight scales of a layer, starting from its current integers."""

    def __init__(self, layer: IntegerLayer, device: str) -> None:
        self.layer = layer
        steps = layer.weight / layer.scale
        # Weights that an earlier step has rounded to another integer than the nearest start at that integer.
        chosen = layer.integers.astype(np.float64)
        steps = np.where(np.clip(np.rint(steps), layer.lowest, layer.highest) == chosen, steps, chosen)
        self._weight = _tensor(steps * layer.scale, device)
        self._scale = _tensor(layer.scale, device)
        self.delta = torch.zeros_like(self._weight, requires_grad=True)
        """The change of the weights, in steps of the initial scale."""
        self._free = 1.0 if layer.pruned is None else _tensor(~layer.pruned, device)
        """0 for pruned weights, which stay zero."""
        self.log_scale = torch.zeros_like(self._scale, requires_grad=True)
        self.position = torch.zeros((), device=device)
        """The change of power-of-two scales, as their logarithm to base 2."""
        self.bias: Any = None
        """The bias as a real value."""
        place = layer.float_op.bias
        if layer.bias is not None and layer.real_bias is not None and place.has_one_use():
            self.bias = _tensor(layer.bias * layer.unit, device).requires_grad_()

    @property
    def moves_scale(self) -> bool:
        """Whether the weight scales are learned by gradient; power-of-two scales are searched (`position`)."""
        return self.layer.scheme.weight_scales is not Scales.POWER_OF_TWO

    @property
    def mean_step(self) -> float:
        """The step of the weights before learning, on average over the channels."""
        return float(np.mean(self.layer.scale))

    @property
    def bias_unit(self) -> float:
        """1/256 of the range of the layer's result."""
        kind = quant_of(self.layer.integer_op.results[0])
        if kind is None:
            return float(np.mean(self.layer.unit))
        least, most = kind.dtype.limits
        return kind.scale * (most - least) / 256

    def _moved(self) -> tuple[Any, Any]:
        """The weights before they are rounded, and their scale."""
        change = (
            self.log_scale.clamp(-_FURTHEST, _FURTHEST).exp() if self.moves_scale else self.position.exp2()
        )
        scale = self._scale * change
        return self._weight + self.delta * self._scale * self._free, scale

    def quantized(self) -> Any:
        """The dequantized weights, with gradients."""
        weight, scale = self._moved()
        return rounded(weight / scale).clamp(self.layer.lowest, self.layer.highest) * scale

    def learned(self) -> LearnedLayer:
        """The learned layer, for the integer network."""
        with torch.no_grad():
            weight, scale = self._moved()
        bias = None if self.bias is None else _array(self.bias)
        return LearnedLayer(_array(weight), _array(scale).reshape(-1), bias)

    def begun(self) -> LearnedLayer:
        """The layer before learning."""
        layer = self.layer
        bias = None if self.bias is None or layer.bias is None else layer.bias * layer.unit
        return LearnedLayer(_array(self._weight), layer.scale.reshape(-1), bias)


@dataclass(frozen=True)
class TensorScale:
    """The learnable scale of an activation tensor, and of the tensors that share its type."""

    name: str
    """The name of the tensor whose range determines the scale."""
    kind: QuantType
    values: tuple[Value, ...]
    """The tensor that defines the type, then those that inherit it."""
    log_factor: Any
    """The logarithm of its change: to base 2 if it is a power of two, which is searched."""
    is_power: bool = False

    @staticmethod
    def of(
        name: str, kind: QuantType, values: tuple[Value, ...], device: str, *, is_power: bool = False
    ) -> TensorScale:
        """The initial scale."""
        log_factor = torch.zeros((), device=device, requires_grad=not is_power)
        return TensorScale(name, kind, values, log_factor, is_power)

    def _factor(self) -> Any:
        if self.is_power:
            return self.log_factor.exp2()
        return self.log_factor.clamp(-_FURTHEST, _FURTHEST).exp()

    def quantized(self, tensor: Any, keep: Any = None) -> Any:
        """A tensor quantized and dequantized with this scale, with gradients, but for the elements where `keep` is 1."""
        return fake_quantized(tensor, self.kind, self._factor() * self.kind.scale, keep)

    @property
    def factor(self) -> float:
        """The learned factor of the scale."""
        return float(self._factor().detach())

    @property
    def learned(self) -> QuantType:
        """The learned type of the tensors."""
        return QuantType.of(
            self.kind.dtype.name, float(np.float32(self.kind.scale * self.factor)), self.kind.zero_point
        )


def _tensor(array: Array, device: str) -> Any:
    return torch.tensor(np.asarray(array, np.float64), device=device)


def _array(tensor: Any) -> Array:
    array: Array = tensor.detach().cpu().numpy().astype(np.float64)
    return array
