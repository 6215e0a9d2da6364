"""The step `ranges` of the ladder: ranges chosen by the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from npuc.arithmetic.kinds import Scales
from npuc.calib.table import CalibrationTable, Entry
from npuc.engine.rounded import output_noise
from npuc.ir import Graph, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import step
from npuc.quant.parameters import activation_type
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import Scheme
from npuc.quant.validation import slice_noise
from npuc.words import counted

_SAMPLES = 2
_NARROWER = (0.8, 0.64, 0.5)
_HALVED = (0.5, 0.25)
"""Factors of a range; the next is tried if the one before was better. Power-of-two ranges can only be halved."""
_BETTER = 0.98
"""A narrower range has to reduce the noise to this share; a smaller gain may be chance."""


@step("ranges", "the range of each tensor by what its rounding does to the outputs", 45)
class OutputRanges:
    """Narrower ranges where they improve the outputs."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The same float network, with some ranges narrower."""
        types = integer_types(best.quantized)
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
    """The scheme of the layer that computes each tensor."""
    schemes = {}
    for op in graph.ops:
        scheme = scheme_of(op)
        if scheme is not None:
            schemes.update({value_name(value): scheme for value in op.results})
    return schemes


def _narrowed(
    best: Candidate,
    context: QuantizationContext,
    types: Mapping[str, QuantType],
    schemes: Mapping[str, Scheme],
) -> dict[str, Entry]:
    samples = context.fit[:_SAMPLES]
    names = list(schemes)
    measure = slice_noise(best.source, context.validator.slices)
    before = output_noise(best.source, [[n] for n in names], types, samples, context.threads, measure)
    noise = dict(zip(names, before, strict=True))
    narrowed: dict[str, Entry] = {}
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
                noise[name], narrowed[name] = value, trial[name][0]
                names.append(name)
        if not names:
            break
    return narrowed


def _scaled(entry: Entry, part: float) -> Entry:
    return replace(
        entry, threshold=entry.threshold * part, min=entry.min * part, max=entry.max * part, method="output"
    )


def _type(entry: Entry, scheme: Scheme) -> QuantType:
    affine = scheme.activation_scales == "affine"
    low, high = (entry.min, entry.max) if affine else (-entry.threshold, entry.threshold)
    return activation_type(low, high, scheme)
