"""The step `round` of the ladder: learned rounding."""

from __future__ import annotations

from dataclasses import replace

from npuc.extras import require_torch
from npuc.quant.bias_correction import correct_biases
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import step
from npuc.quant.layers import integer_layers, replace_integers
from npuc.quant.prequantized import integer_types
from npuc.words import counted

_CORRECTED = 32
"""The number of samples that are used to correct the biases of the chosen integers."""


@step("round", "learned rounding of weights, block by block (AdaRound, QDrop); needs torch", 60)
class LearnRounding:
    """Learns the roundings of all weights, and the biases."""

    def __init__(self, iterations: int | None = None) -> None:
        self._iterations = iterations

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The best network with learned roundings; an error without torch, or if torch cannot run the network."""
        quantized = best.quantized.copy()
        layers = integer_layers(best.source, quantized, best.scheme_of)
        if not layers:
            return None
        require_torch("this needs PyTorch, which is not installed")
        from npuc.quant.rounding.learn import LearningOptions, learn

        options = LearningOptions(seed=context.seed)
        if self._iterations:
            options = replace(options, iterations=self._iterations)
        learned = learn(
            best.source,
            layers,
            integer_types(best.quantized),
            context.fit,
            options,
            context.device,
            context.threads,
        )
        count = sum(replace_integers(quantized, r.layer, r.integers(), r.bias_change()) for r in learned)
        quantized.verify()
        notes = (*best.notes, f"learned the rounding of {counted(count, 'layer')}")
        plain = replace(best, quantized=quantized, sqnr=context.validated_sqnr(quantized), notes=notes)
        fixed = quantized.copy()
        correct_biases(best.source, fixed, context.fit[:_CORRECTED], context.threads, best.scheme_of)
        other = replace(plain, quantized=fixed, sqnr=context.validated_sqnr(fixed))
        return context.best_of([plain, other])
