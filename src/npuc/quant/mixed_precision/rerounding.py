"""Weights of fewer bits, rounded together (GPTQ) for the layers that get them.

The nearest of sixteen values is far away, and the errors of the inputs of a layer can make up for each other. What a
layer reads hardly depends on the types of the others, so its inputs are looked at once, in the network before the choice,
and integers are kept for all choices that give it the same steps.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from npuc.arrays import Array
from npuc.quant.gptq.layers import is_dense, rounded, second_moments
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.layers import IntegerLayer, integer_layers

_SAMPLES = 32


class Rerounding:
    """The weights of one network, rounded together for types that its layers may get."""

    def __init__(self, best: Candidate, context: QuantizationContext) -> None:
        self._best, self._shop = best, context
        self._before = {
            layer.name: layer
            for layer in integer_layers(best.source, best.made, best.scheme_of)
            if is_dense(layer)
        }
        self._found: dict[tuple[str, str, bytes], Array] = {}

    def integers(self, layers: Iterable[IntegerLayer]) -> dict[str, Array]:
        """By name, for layers as they are to be; those that this is not for are left out."""
        able = [layer for layer in layers if layer.name in self._before]
        new = [layer for layer in able if _key(layer) not in self._found]
        if new:
            # One pass over the samples for all of them; the moments are large, and not kept.
            read = [self._before[name] for name in dict.fromkeys(layer.name for layer in new)]
            moments = second_moments(self._best.made, read, self._shop.fit[:_SAMPLES], self._shop.threads)
            for layer in new:
                self._found[_key(layer)] = rounded(layer, moments[layer.name]).astype(np.int32)
        return {layer.name: self._found[_key(layer)] for layer in able}


def _key(layer: IntegerLayer) -> tuple[str, str, bytes]:
    return layer.name, layer.scheme.weight, np.asarray(layer.scale, np.float32).tobytes()
