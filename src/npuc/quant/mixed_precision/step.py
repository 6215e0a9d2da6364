"""The step `mixed` of the ladder: more bits where they reduce noise most per cycle, fewer where they save most cycles."""

from __future__ import annotations

from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import step
from npuc.quant.mixed_precision.mixing import Mixer

ALLOWED = 0.05
"""The share of additional cycles that the types may cost, if there is no accuracy goal."""
_PARTS = (1.0, 0.5, 0.25, 0.0)
"""Shares of that budget to try: costs and noises of layers do not add up exactly, so compiling and validating decides."""


@step("mixed", "types by layer: the least noise for at most 5 % more cycles", 70)
class MixedPrecision:
    """The choice of types with the least noise, within a few more cycles."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The network of that choice; None if there is no cost model, or if no type changes."""
        now = None if context.cost_model is None else context.cost_model.network(best.quantized)
        if context.cost_model is None or now is None:
            return None
        mixer = Mixer(best, context, context.cost_model)
        candidates: list[Candidate] = []
        tried: set[int | None] = {None}
        for part in _PARTS:
            point = mixer.frontier.quietest(part * ALLOWED * mixer.base_cost)
            picks = [] if point is None or point in tried else mixer.frontier.picks(point)
            tried.add(point)
            if all(pick.is_own for pick in picks):
                continue
            candidate = mixer.candidate(picks)
            cycles = context.cost_model.network(candidate.quantized)
            if cycles is not None and cycles <= (1 + ALLOWED) * now:
                candidates.append(candidate)
        return context.best_of(candidates) if candidates else None
