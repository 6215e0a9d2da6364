"""The step `gptq` of the ladder, with the inputs that the layers read in the integer network."""

from __future__ import annotations

from dataclasses import replace

from npuc.quant.bias_correction import correct_biases
from npuc.quant.gptq.layers import is_dense, rounded, second_moments
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import step
from npuc.quant.layers import integer_layers, replace_integers
from npuc.words import counted

_SAMPLES = 32
_PATIENT_SAMPLES = 96
"""More samples where a step may take minutes: moments of few samples are too much those of these samples."""


@step("gptq", "weights rounded together, by the second moments of their inputs (GPTQ)", 50)
class Gptq:
    """Dense convolutions and products."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The best network with weights rounded together."""
        quantized = best.quantized.copy()
        layers = [
            layer for layer in integer_layers(best.source, quantized, best.scheme_of) if is_dense(layer)
        ]
        if not layers:
            return None
        some = context.fit[: _PATIENT_SAMPLES if context.patient else _SAMPLES]
        moments = second_moments(quantized, layers, some, context.threads)
        count = sum(
            replace_integers(quantized, layer, rounded(layer, moments[layer.name])) for layer in layers
        )
        # The biases were corrected for the previous integers.
        correct_biases(best.source, quantized, some, context.threads, best.scheme_of)
        quantized.verify()
        note = f"rounded the weights of {counted(count, 'layer')} together"
        return replace(
            best, quantized=quantized, sqnr=context.validated_sqnr(quantized), notes=(*best.notes, note)
        )
