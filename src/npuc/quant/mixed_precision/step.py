"""The step of the ladder: more bits where they help most for their time, fewer where they save most for their noise."""

from __future__ import annotations

from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import step
from npuc.quant.mixed_precision.mixing import Mixer

ALLOWED = 0.05
"""Part of the network's cycles that the types may cost more, where nobody asks for a certain accuracy."""
_PARTS = (1.0, 0.5, 0.25, 0.0)
"""Of that: the sum of the layers may promise too much, and noises may not quite add up. The compiler and the judges decide."""


@step("mixed", "types by layer: the least noise for at most 5 % more cycles", 70)
class MixedPrecision:
    """The quietest choice of types within a few more cycles."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The network of that choice; None if nobody says what layers cost, or if all stays as it is."""
        now = None if context.cost_model is None else context.cost_model.network(best.made)
        if context.cost_model is None or now is None:
            return None
        mixer = Mixer(best, context, context.cost_model)
        found: list[Candidate] = []
        tried: set[int | None] = {None}
        for part in _PARTS:
            point = mixer.frontier.quietest(part * ALLOWED * mixer.base_cost)
            picks = [] if point is None or point in tried else mixer.frontier.picks(point)
            tried.add(point)
            if all(pick.is_own for pick in picks):
                continue
            made = mixer.candidate(picks)
            cycles = context.cost_model.network(made.made)
            if cycles is not None and cycles <= (1 + ALLOWED) * now:
                found.append(made)
        return max(found, key=context.score, default=None)
