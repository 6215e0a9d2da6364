"""The step `adaquant` of the ladder: learned scales, weights and biases."""

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
"""The number of samples that are used to correct the biases of the learned integers."""
_ON_CUDA = {"iterations": 300, "batch": 32}
"""The defaults on a GPU, where iterations are cheap."""


@step("adaquant", "learned scales, weights and biases, block by block (AdaQuant, LSQ); needs torch", 55)
class AdaQuant:
    """Scales of activations and weights, weights and biases of all layers."""

    def __init__(self, options: AdaQuantOptions | None = None) -> None:
        self._options = options

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The best network with learned parameters; an error without torch, or if torch cannot run the network."""
        layers = integer_layers(best.source, best.quantized, best.scheme_of)
        if not layers:
            return None
        require_torch("this needs PyTorch, which is not installed")
        from npuc.quant.adaquant.learn import free_scales, learn, power_scales
        from npuc.quant.adaquant.lowering import lost, lower_learned, type_origins

        options = self._options or context.adaquant
        if context.device != "cpu":
            explicit = options.model_fields_set
            options = options.model_copy(update={k: v for k, v in _ON_CUDA.items() if k not in explicit})
        types = integer_types(best.quantized)
        origins = type_origins(best.source, best.table, best.scheme_of)
        free = free_scales(origins, {value_name(v): v for v in origins}, types, best.scheme_of)
        result = learn(
            best.source,
            layers,
            types,
            free,
            context.fit,
            options,
            context.device,
            context.threads,
            context.seed,
            powers=power_scales(free, best.scheme_of),
        )
        table = _rescaled(best.table, {scale.name: scale.factor for scale in result.scales})
        learned = {delta.layer.float_op: delta.learned() for delta in result.layers}
        quantized = lower_learned(best.source, table, best.scheme_of, learned)
        # Layers whose sums no longer fit their accumulators keep their previous parameters.
        gone = lost(quantized, best.quantized)
        tight = [delta for delta in result.layers if delta.layer.name in gone]
        if tight:
            learned.update({delta.layer.float_op: delta.begun() for delta in tight})
            quantized = lower_learned(best.source, table, best.scheme_of, learned)
        if lost(quantized, best.quantized):
            return None
        quantized.verify()
        scales = counted(sum(scale.factor != 1.0 for scale in result.scales), "tensor")
        note = (
            f"learned the weights of {counted(len(layers) - len(tight), 'layer')} and the scales of {scales}"
        )
        plain = replace(
            best,
            quantized=quantized,
            table=table,
            sqnr=context.validated_sqnr(quantized),
            notes=(*best.notes, note),
        )
        return context.best_of([plain, _corrected(plain, context)])


def _rescaled(table: CalibrationTable, factors: Mapping[str, float]) -> CalibrationTable:
    """The table with some ranges scaled by factors."""
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


def _corrected(candidate: Candidate, context: QuantizationContext) -> Candidate:
    fixed: Graph = candidate.quantized.copy()
    correct_biases(candidate.source, fixed, context.fit[:_CORRECTED], context.threads, candidate.scheme_of)
    return replace(candidate, quantized=fixed, sqnr=context.validated_sqnr(fixed))
