"""The step of the ladder that learns roundings."""

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
"""Samples that show what biases the chosen integers need."""
_ON_CUDA = 1000
"""Iterations a block where a GPU makes them cheap."""


@step("round", "learned rounding of weights, block by block (AdaRound, QDrop); needs torch", 60)
class LearnRounding:
    """Roundings of all weights, and biases."""

    def __init__(self, iterations: int | None = None) -> None:
        self._iterations = iterations

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The best network with learned integers; an error without torch, or where the network has no form in it."""
        made = best.made.copy()
        layers = integer_layers(best.source, made, best.scheme_of)
        if not layers:
            return None
        require_torch("this needs PyTorch, which is not installed")
        from npuc.quant.rounding.learn import LearningOptions, learn

        options = LearningOptions(seed=context.seed)
        if context.device != "cpu":
            options = replace(options, iterations=_ON_CUDA, batch=32)
        if self._iterations:
            options = replace(options, iterations=self._iterations)
        found = learn(
            best.source,
            layers,
            integer_types(best.made),
            context.fit,
            options,
            context.device,
            context.threads,
        )
        count = sum(replace_integers(made, r.layer, r.integers(), r.bias_change()) for r in found)
        made.verify()
        notes = (*best.notes, f"learned the rounding of {counted(count, 'layer')}")
        plain = replace(best, made=made, sqnr=context.judged(made), notes=notes)
        fixed = made.copy()
        correct_biases(best.source, fixed, context.fit[:_CORRECTED], context.threads, best.scheme_of)
        other = replace(plain, made=fixed, sqnr=context.judged(fixed))
        return max(plain, other, key=context.score)
