"""As few layers in float as the outputs need: the worst of a list, one after the other, until a cosine is reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuc.ir import Graph
from npuc.quant.output_similarity import OutputSimilarity


def float_layers_for(
    cosine: float,
    candidates: Sequence[str],
    quantize: Callable[[tuple[str, ...]], Graph],
    similarity: OutputSimilarity,
) -> tuple[tuple[str, ...], float]:
    """The first of the candidates whose float arithmetic brings every output to a cosine, and the least cosine that it has then.

    `quantize` gives the integer network with some layers in float; all candidates are returned if even they do not suffice.
    """
    for count in range(len(candidates) + 1):
        chosen = tuple(candidates[:count])
        reached = similarity.of(quantize(chosen)).least_cosine
        if reached >= cosine:
            break
    return chosen, reached
