"""As few layers in float as the outputs need: the worst of a list, one after the other, until a cosine is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from npuc.arrays import Array
from npuc.compare.layers import ErrorMeter
from npuc.engine import FloatEngine, IntegerEngine
from npuc.ir import Graph


def float_layers_for(
    cosine: float,
    candidates: Sequence[str],
    quantize: Callable[[tuple[str, ...]], Graph],
    source: Graph,
    samples: Sequence[Mapping[str, Array]],
) -> tuple[tuple[str, ...], float]:
    """The first of the candidates whose float arithmetic brings every output to a cosine, and the least cosine that it has then.

    `quantize` gives the integer network with some layers in float; all candidates are returned if even they do not suffice.
    """
    engine = FloatEngine(source)
    expected = [engine.run(sample) for sample in samples]
    for count in range(len(candidates) + 1):
        chosen = tuple(candidates[:count])
        reached = _least_cosine(IntegerEngine(quantize(chosen)), samples, expected)
        if reached >= cosine:
            break
    return chosen, reached


def _least_cosine(
    engine: IntegerEngine, samples: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]]
) -> float:
    meters: dict[str, ErrorMeter] = {}
    for sample, reference in zip(samples, expected, strict=True):
        for name, array in engine.run(sample).items():
            meters.setdefault(name, ErrorMeter()).add(array, reference[name])
    return min((meter.figures().cosine for meter in meters.values()), default=1.0)
