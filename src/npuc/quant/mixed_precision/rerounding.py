"""Weights of fewer bits, rounded together (GPTQ) for the layers that get them.

With only sixteen values the rounding errors are large, and the errors of the weights of a layer can compensate each other. The
inputs of a layer hardly depend on the types of the others, so they are measured once, in the network before the choice, and
the integers are cached for all choices that give the layer the same scale.
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
    """Rounds the weights of one network together, for the types that its layers may get."""

    def __init__(self, best: Candidate, context: QuantizationContext) -> None:
        self._best, self._context = best, context
        self._before = {
            layer.name: layer
            for layer in integer_layers(best.source, best.quantized, best.scheme_of)
            if is_dense(layer)
        }
        self._integers: dict[tuple[str, str, bytes], Array] = {}

    def integers(self, layers: Iterable[IntegerLayer]) -> dict[str, Array]:
        """The integers of layers with their new types, by name; layers that GPTQ does not support are left out."""
        able = [layer for layer in layers if layer.name in self._before]
        new = [layer for layer in able if _key(layer) not in self._integers]
        if new:
            # One pass over the samples for all of them; the moments are large and not cached.
            read = [self._before[name] for name in dict.fromkeys(layer.name for layer in new)]
            moments = second_moments(
                self._best.quantized, read, self._context.fit[:_SAMPLES], self._context.threads
            )
            for layer in new:
                self._integers[_key(layer)] = rounded(layer, moments[layer.name]).astype(np.int32)
        return {layer.name: self._integers[_key(layer)] for layer in able}


def _key(layer: IntegerLayer) -> tuple[str, str, bytes]:
    return layer.name, layer.scheme.weight, np.asarray(layer.scale, np.float32).tobytes()
