"""The step of the ladder that chooses ranges by the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from npuc.arithmetic.kinds import Scales
from npuc.calib.table import CalibrationTable, Entry
from npuc.engine.rounded import output_noise
from npuc.ir import Graph, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.judging import slice_noise
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import step
from npuc.quant.parameters import activation_type
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import Scheme
from npuc.words import counted

_SAMPLES = 2
_NARROWER = (0.8, 0.64, 0.5)
_HALVED = (0.5, 0.25)
"""Parts of a range, the next one tried where the one before was better. Powers of two have no steps between."""
_BETTER = 0.98
"""Of the noise: less of a gain may be chance."""


@step("ranges", "the range of each tensor by what its rounding does to the outputs", 45)
class OutputRanges:
    """Narrower ranges where the outputs gain by them."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The same float network, with some ranges narrower."""
        types = integer_types(best.made)
        schemes = _schemes(best.source, best.scheme_of)
        names = [
            name
            for name, scheme in schemes.items()
            if name in best.table and name in types and types[name].dtype.itemsize == 1 and scheme is not None
        ]
        if not names:
            return None
        chosen = _narrowed(best, context, types, {name: schemes[name] for name in names})
        if not chosen:
            return None
        entries = {name: chosen.get(name, entry) for name, entry in best.table.entries.items()}
        table = CalibrationTable(entries, best.table.comments, best.table.notes)
        note = f"narrowed the ranges of {counted(len(chosen), 'tensor')}, by the outputs"
        return context.from_table(best.source, table, best.scheme_of, (*best.notes, note))


def _schemes(graph: Graph, scheme_of: Any) -> dict[str, Scheme]:
    """The scheme of the layer that makes each tensor."""
    found = {}
    for op in graph.ops:
        scheme = scheme_of(op)
        if scheme is not None:
            found.update({value_name(value): scheme for value in op.results})
    return found


def _narrowed(
    best: Candidate,
    context: QuantizationContext,
    types: Mapping[str, QuantType],
    schemes: Mapping[str, Scheme],
) -> dict[str, Entry]:
    samples = context.fit[:_SAMPLES]
    names = list(schemes)
    measure = slice_noise(best.source, context.judge.slices)
    before = output_noise(best.source, [[n] for n in names], types, samples, context.threads, measure)
    noise = dict(zip(names, before, strict=True))
    found: dict[str, Entry] = {}
    pow2 = {name for name in names if schemes[name].activation_scales is Scales.POWER_OF_TWO}
    for round_ in range(len(_NARROWER)):
        trial: dict[str, tuple[Entry, QuantType]] = {}
        for name in names:
            parts = _HALVED if name in pow2 else _NARROWER
            if round_ < len(parts):
                entry = _scaled(best.table[name], parts[round_])
                trial[name] = entry, _type(entry, schemes[name])
        kinds = {name: kind for name, (_, kind) in trial.items()}
        after = output_noise(
            best.source, [[name] for name in kinds], kinds, samples, context.threads, measure
        )
        names = []
        for name, value in zip(kinds, after, strict=True):
            if value < _BETTER * noise[name]:
                noise[name], found[name] = value, trial[name][0]
                names.append(name)
        if not names:
            break
    return found


def _scaled(entry: Entry, part: float) -> Entry:
    return replace(
        entry, threshold=entry.threshold * part, min=entry.min * part, max=entry.max * part, method="output"
    )


def _type(entry: Entry, scheme: Scheme) -> QuantType:
    affine = scheme.activation_scales == "affine"
    low, high = (entry.min, entry.max) if affine else (-entry.threshold, entry.threshold)
    return activation_type(low, high, scheme)
