"""Masks: steps of a sequence that a layer marks as absent, and that later layers skip.

npuc has no masks. Where nothing listens, a mask is forgotten, as Keras does; where a layer would skip steps, it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuc.frontend.keras.registry import KerasContext, tensors_in
from npuc.frontend.layout import LayoutTensor

_LISTENERS = (
    "LSTM",
    "GRU",
    "SimpleRNN",
    "RNN",
    "Bidirectional",
    "ConvLSTM2D",
    "MultiHeadAttention",
    "Attention",
    "AdditiveAttention",
    "GlobalAveragePooling1D",
    "Softmax",
)
_PASSERS = (
    "Activation",
    "Add",
    "AlphaDropout",
    "Average",
    "BatchNormalization",
    "Concatenate",
    "Dense",
    "Dropout",
    "ELU",
    "Embedding",
    "GaussianDropout",
    "GaussianNoise",
    "LayerNormalization",
    "LeakyReLU",
    "Maximum",
    "Multiply",
    "PReLU",
    "ReLU",
    "SpatialDropout1D",
    "Subtract",
    "TimeDistributed",
    "UnitNormalization",
)


class Masks:
    """The tensors that have one."""

    def __init__(self) -> None:
        self._masked: dict[int, LayoutTensor] = {}

    def _is_masked(self, ctx: KerasContext) -> bool:
        return any(id(x) in self._masked for x in tensors_in([ctx.arguments, ctx.keywords]))

    def check(self, ctx: KerasContext) -> None:
        """Refuse a layer that would skip steps."""
        if ctx.kind in _LISTENERS and self._is_masked(ctx):
            raise ctx.refuse(
                "it skips the steps that a mask leaves out (Masking, or an Embedding with mask_zero), and there are no "
                "masks here",
                "Build the model without the mask (mask_zero=False) and copy its weights, or cut before it with --outputs",
            )

    def note(self, ctx: KerasContext, outputs: Sequence[LayoutTensor]) -> None:
        """Remember the masks that a layer makes or hands on."""
        makes = ctx.kind == "Masking" or (ctx.kind == "Embedding" and ctx.config.get("mask_zero") is True)
        if makes or (ctx.kind in _PASSERS and self._is_masked(ctx)):
            self._masked.update({id(x): x for x in outputs})
