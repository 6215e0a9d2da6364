"""The step of the ladder that learns scales, weights and biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from npuc.calib.table import CalibrationTable, Entry
from npuc.extras import require_torch
from npuc.ir import Graph, value_name
from npuc.quant.adaquant.options import AdaQuantOptions
from npuc.quant.bias_correction import correct_biases
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import step
from npuc.quant.layers import integer_layers
from npuc.quant.prequantized import integer_types
from npuc.words import counted

_CORRECTED = 32
"""Samples that show what biases the learned integers need."""
_ON_CUDA = {"iterations": 300, "batch": 32}
"""Where a GPU makes them cheap, and nothing else is asked for."""


@step("adaquant", "learned scales, weights and biases, block by block (AdaQuant, LSQ); needs torch", 55)
class AdaQuant:
    """Scales of activations and weights, weights and biases of all layers."""

    def __init__(self, options: AdaQuantOptions | None = None) -> None:
        self._options = options

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The best network, learned; an error without torch, or where the network has no form in it."""
        layers = integer_layers(best.source, best.made, best.scheme_of)
        if not layers:
            return None
        require_torch("this needs PyTorch, which is not installed")
        from npuc.quant.adaquant.learn import free_scales, learn
        from npuc.quant.adaquant.lowering import lost, lower_learned, type_origins

        options = self._options or context.adaquant
        if context.device != "cpu":
            asked = options.model_fields_set
            options = options.model_copy(update={k: v for k, v in _ON_CUDA.items() if k not in asked})
        types = integer_types(best.made)
        origins = type_origins(best.source, best.table, best.scheme_of)
        free = free_scales(origins, {value_name(v): v for v in origins}, types, best.scheme_of)
        found = learn(
            best.source,
            layers,
            types,
            free,
            context.fit,
            options,
            context.device,
            context.threads,
            context.seed,
        )
        table = _rescaled(best.table, {scale.name: scale.factor for scale in found.scales})
        learned = {delta.layer.real: delta.learned() for delta in found.layers}
        made = lower_learned(best.source, table, best.scheme_of, learned)
        # Sums that no longer fit their accumulators: those layers stay as they were.
        gone = lost(made, best.made)
        tight = [delta for delta in found.layers if delta.layer.name in gone]
        if tight:
            learned.update({delta.layer.real: delta.begun() for delta in tight})
            made = lower_learned(best.source, table, best.scheme_of, learned)
        if lost(made, best.made):
            return None
        made.verify()
        scales = counted(len(found.scales), "tensor")
        note = (
            f"learned the weights of {counted(len(layers) - len(tight), 'layer')} and the scales of {scales}"
        )
        plain = replace(
            best,
            made=made,
            table=table,
            sqnr=context.judged(made),
            notes=(*best.notes, note),
        )
        return max(plain, _corrected(plain, context), key=context.score)


def _rescaled(table: CalibrationTable, factors: Mapping[str, float]) -> CalibrationTable:
    """The same ranges, some wider or narrower."""
    entries = {
        name: _scaled(entry, factors[name]) if factors.get(name, 1.0) != 1.0 else entry
        for name, entry in table.entries.items()
    }
    return CalibrationTable(entries, table.comments, table.notes)


def _scaled(entry: Entry, factor: float) -> Entry:
    return replace(
        entry,
        threshold=entry.threshold * factor,
        min=entry.min * factor,
        max=entry.max * factor,
        method="learned",
    )


def _corrected(found: Candidate, context: QuantizationContext) -> Candidate:
    fixed: Graph = found.made.copy()
    correct_biases(found.source, fixed, context.fit[:_CORRECTED], context.threads, found.scheme_of)
    return replace(found, made=fixed, sqnr=context.judged(fixed))
