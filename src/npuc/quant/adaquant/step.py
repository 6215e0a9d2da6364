"""Two steps of the ladder: `adaquant` (learned scales, weights and biases) and `positions` (power-of-two scales alone).

`positions` is what `adaquant` does first under powers of two, without learning: the positions of a block's tensors and weights
are searched together by the output of the block, on few samples. That takes seconds, so the default runs it, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from npuc.calib.table import CalibrationTable, Entry
from npuc.extras import require_torch
from npuc.ir import Graph, value_name
from npuc.quant.adaquant.options import AdaQuantOptions
from npuc.quant.bias_correction import correct_biases
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import WORTH, step
from npuc.quant.layers import IntegerLayer, integer_layers
from npuc.quant.prequantized import integer_types
from npuc.quant.tuning import GOOD
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.quant.adaquant.deltas import LayerDelta

_CORRECTED = 32
"""The number of samples that are used to correct the biases of the learned integers."""
_SEARCHED = 16
"""The number of samples on which positions are searched; a quarter of them checks what each block chose."""
_SLOWER = 0.2
"""The rate of weights of a second try, where what they learned at first does not hold on other samples."""


@step("adaquant", "learned scales, weights and biases, block by block (AdaQuant, LSQ); needs torch", 55)
class AdaQuant:
    """Scales of activations and weights, weights and biases of all layers."""

    most_samples: int | None = None
    """The number of samples to learn from; None for all."""

    def __init__(self, options: AdaQuantOptions | None = None) -> None:
        self._options = options

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The best network with learned parameters; an error without torch, or if torch cannot run the network.

        With few samples, weights can learn what holds for these alone. If nothing is gained on the validation samples of a
        network that needs it, they learn once more, slower and for longer, unless their rate was stated.
        """
        layers = integer_layers(best.source, best.quantized, best.scheme_of)
        if not layers:
            return None
        require_torch("this needs PyTorch, which is not installed")
        options = self._options or context.adaquant
        proposed = self._learned(best, context, layers, options)
        stated = not options.weight_rate or "weight_rate" in options.model_fields_set
        if proposed is None or stated or best.sqnr >= GOOD or context.gain(proposed, best) >= WORTH:
            return proposed
        slower = options.model_copy(
            update={"weight_rate": options.weight_rate * _SLOWER, "iterations": 2 * options.iterations}
        )
        again = self._learned(best, context, layers, slower)
        return proposed if again is None else context.best_of([proposed, again])

    def _learned(
        self,
        best: Candidate,
        context: QuantizationContext,
        layers: Sequence[IntegerLayer],
        options: AdaQuantOptions,
    ) -> Candidate | None:
        """The network with parameters that were learned at these rates."""
        from npuc.quant.adaquant.learn import free_scales, learn, power_scales
        from npuc.quant.adaquant.lowering import lost, lower_learned, type_origins

        types = integer_types(best.quantized)
        origins = type_origins(best.source, best.table, best.scheme_of)
        free = free_scales(origins, {value_name(v): v for v in origins}, types, best.scheme_of)
        powers = power_scales(free, best.scheme_of)
        if not self._applies(powers):
            return None
        result = learn(
            best.source,
            layers,
            types,
            free,
            context.fit[: self.most_samples],
            options,
            context.device,
            context.threads,
            context.seed,
            powers=powers,
            one_by_one=context.patient,
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
        kept = [delta for delta in result.layers if delta not in tight]
        note = self._words(kept, sum(scale.factor != 1.0 for scale in result.scales))
        plain = replace(
            best,
            quantized=quantized,
            table=table,
            sqnr=context.validated_sqnr(quantized),
            notes=(*best.notes, note),
        )
        return context.best_of([plain, _corrected(plain, context)])

    def _applies(self, powers: Collection[str]) -> bool:
        """Whether there is anything to do, given the tensors whose scales are powers of two."""
        return True

    def _words(self, layers: Sequence[LayerDelta], moved: int) -> str:
        """What was done: the layers that kept what they learned, and how many scales of tensors changed."""
        return f"learned the weights of {counted(len(layers), 'layer')} and the scales of {counted(moved, 'tensor')}"


@step("positions", "positions of powers of two, searched together block by block; needs torch", 47)
class Positions(AdaQuant):
    """Power-of-two scales of activations and weights, chosen by the outputs of the blocks that they meet in."""

    most_samples = _SEARCHED

    def __init__(self) -> None:
        super().__init__(AdaQuantOptions(weight_rate=0.0, bias_rate=0.0))

    def _applies(self, powers: Collection[str]) -> bool:
        return bool(powers)

    def _words(self, layers: Sequence[LayerDelta], moved: int) -> str:
        weights = sum(bool(delta.position) for delta in layers)
        return f"moved the positions of {counted(moved, 'tensor')} and of the weights of {counted(weights, 'layer')}"


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
