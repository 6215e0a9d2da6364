"""From a network to its frontier of types, and from a point of the frontier to a quantized network.

A network is lowered once with each variant for all layers, to get the costs of the layers; the noise of each unit is measured
once. A point of the frontier is then a choice of one variant per unit, from which an integer network is built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.calib.calibration import table_from
from npuc.calib.table import CalibrationTable
from npuc.ir import Graph, shape_of, value_name
from npuc.quant.adaquant.lowering import LearnedLayer, lost, lower_learned
from npuc.quant.bias_correction import correct_biases
from npuc.quant.ladder.context import Candidate, QuantizationContext, Sample
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import IntegerLayer, integer_layers, replace_integers
from npuc.quant.lower import quantize
from npuc.quant.mixed_precision.cost_model import CostModel, LayerCost, exposed
from npuc.quant.mixed_precision.frontier import Frontier, Option, frontier
from npuc.quant.mixed_precision.rerounding import Rerounding
from npuc.quant.mixed_precision.sensitivity import Probe, rounded_weights, tensor_types, with_scheme
from npuc.quant.mixed_precision.units import Unit, find_units, key
from npuc.quant.mixed_precision.variants import (
    FLOAT,
    MACHINE_FLOATS,
    OWN,
    VARIANTS,
    WIDE,
    Variant,
    is_possible,
    scheme_as,
)
from npuc.quant.overflow import LARGEST, reach_of
from npuc.quant.scheme import Scheme

_PROBED = 16
"""The number of samples for measuring noise, evenly spread, because rare clipped values cause much of it."""
_CORRECTED = 32
_ROOM = 2.0
"""The factor by which 16-bit ranges exceed the observed ones: a bit of resolution matters less than a clipped value."""
_FINE = _ROOM**2 * 2.0**-16
"""The share of the noise that remains with 8 more bits."""
_NOISE_OF_FLOATS = {"bf16": 1.0, "f16": 2.0**-6, "f32": 2.0**-32}
"""The noise of a float type, in that of bf16: each bit of its fraction more is a quarter of it."""


@dataclass(frozen=True)
class Pick:
    """The choice for one unit: the type of its tensors and, by name, of the weights of the layers that read them."""

    unit: Unit
    activation: str
    weights: tuple[tuple[str, str], ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether nothing changes."""
        return self.activation == "own" and not self.weights


class Mixer:
    """Chooses types for one network."""

    def __init__(
        self,
        best: Candidate,
        context: QuantizationContext,
        cost_model: CostModel,
        *,
        variants: Sequence[Variant] | None = None,
        probed: int = _PROBED,
    ) -> None:
        """`variants` limits the types that layers may get, `probed` the samples on which noise is measured."""
        self.best, self.context, self.cost_model = best, context, cost_model
        self._probed = probed
        self._schemes = best.scheme_of
        self._types = tensor_types(best.quantized)
        self._rerounding = Rerounding(best, context)
        self.units = find_units(best.source, self._types)
        self._floats: list[Variant] = []
        if variants is None:
            self._floats = [variant for variant in MACHINE_FLOATS if self._compiles(variant)] or [FLOAT]
        tried = [v for v in (*(variants or VARIANTS), *self._floats) if self._is_used(v)]
        self._layer_cost = {variant: cost_model.layers(self._lowered(variant)) for variant in tried}
        own = self._layer_cost[OWN]
        self._exposed = exposed(own)
        self.base_cost = sum(map(self._cycles, own.values()))

    # Costs

    def _is_used(self, variant: Variant) -> bool:
        return variant == OWN or any(self._may(op, variant) for unit in self.units for op in unit.readers)

    def _may(self, op: Any, variant: Variant) -> bool:
        scheme = self._schemes(op)
        if scheme is None or not scheme.needs_ranges:
            return False
        return variant == OWN or is_possible(scheme, variant, self.context.target)

    def _compiles(self, variant: Variant) -> bool:
        """Whether the target computes with a float type, and the compiler supports it there."""
        return self._is_used(variant) and self.cost_model.network(self._lowered(variant)) is not None

    def _lowered(self, variant: Variant) -> Graph:
        """The network with one variant for all layers."""
        if variant == OWN:
            return self.best.quantized
        target = self.context.target
        schemes = self._schemes.changed(lambda op, scheme: scheme_as(scheme, variant, target))
        return quantize(self.best.source, self.best.table, schemes)

    def _cycles(self, layer_cost: LayerCost) -> float:
        return layer_cost.engine + self._exposed * layer_cost.load

    def _extra(self, op: Any, variant: Variant) -> float:
        """The additional cycles of a variant of one layer."""
        name = key(op)
        now, then = self._layer_cost[OWN].get(name), self._layer_cost[variant].get(name)
        return 0.0 if now is None or then is None else self._cycles(then) - self._cycles(now)

    # Noise

    @cached_property
    def frontier(self) -> Frontier:
        """The Pareto-optimal choices; costs are additional cycles, noises are error over signal."""
        probe = Probe.of(self.best.source, _spread(self.context.fit, self._probed), self.context.threads)
        noise = probe.tensors(self.units, self._types)
        bf16 = dtype_of("bf16")
        short = [0.0] * len(self.units)
        has_floats = any(variant.is_machine_float for variant in self._floats)
        if has_floats:
            short = probe.tensors(self.units, dict.fromkeys(self._types, bf16))
        layers = {
            layer.name: layer
            for layer in integer_layers(self.best.source, self.best.quantized, self._schemes)
        }
        shorter = [self._with(op, layers.get(key(op)), "i4") for unit in self.units for op in unit.weighted]
        self._rerounding.integers(layer for layer in shorter if layer is not None)
        units = []
        for unit, tensors, rounded in zip(self.units, noise, short, strict=True):
            weights: dict[str, dict[str, float]] = {}
            in_bf16 = rounded
            for op in unit.weighted:
                if (layer := layers.get(key(op))) is None:
                    continue
                weights[key(op)] = self._weight_noise(op, layer, probe)
                if has_floats:
                    in_bf16 += probe.weights(op, layer.weight.astype(bf16.numpy))
            units.append([*self._options(unit, tensors, weights), *self._float_options(unit, in_bf16)])
        return frontier(units)

    def _weight_noise(self, op: Any, layer: IntegerLayer, probe: Probe) -> dict[str, float]:
        """The noise of the weights of a layer, by their type."""
        own = probe.weights(op, rounded_weights(layer))
        noise = {"own": own, "i16": own * _FINE}
        if (longer := self._with(op, layer, "i8")) is not None:
            noise["i8"] = probe.weights(op, rounded_weights(longer))
        if (shorter := self._with(op, layer, "i4")) is not None:
            forms = [shorter]
            forms += [replace(shorter, integers=i) for i in self._rerounding.integers(forms).values()]
            noise["i4"] = min(probe.weights(op, rounded_weights(form)) for form in forms)
        return noise

    def _with(self, op: Any, layer: IntegerLayer | None, weight: str) -> IntegerLayer | None:
        """A layer with another weight type; None if it is not possible, or if fewer bits save no cycles."""
        able = [v for v in self._layer_cost if v.weight == weight and self._may(op, v)]
        saves = any(self._extra(op, v) < self._extra(op, self._like(v)) for v in able)
        if layer is None or not able or not (saves or weight == "i8"):
            return None
        scheme = scheme_as(layer.scheme, able[0], self.context.target)
        return None if scheme is None else with_scheme(layer, scheme)

    def _like(self, variant: Variant) -> Variant:
        """The variant with the same activations and the network's own weights, or `OWN` if there is none."""
        alike = Variant(variant.activation)
        return alike if alike in self._layer_cost else OWN

    def _options(
        self, unit: Unit, tensors: float, weights: Mapping[str, Mapping[str, float]]
    ) -> list[Option]:
        """The options of one unit."""
        options: list[Option] = []
        wide = bool(unit.narrow) and self._able(unit, WIDE)
        for activation, left in (("own", 1.0), *((("i16", _FINE),) if wide else ())):
            rows = [
                [
                    Option(noises[v.weight], self._extra(op, v), (key(op), v.weight))
                    for v in self._layer_cost
                    if v.activation == activation and v.weight in noises and (v == OWN or self._may(op, v))
                ]
                for op in unit.weighted
                if (noises := weights.get(key(op))) is not None
            ]
            others = [op for op in unit.readers if key(op) not in weights]
            start = sum(self._extra(op, WIDE) for op in others) if activation == "i16" else 0.0
            start += self._back(unit) if activation == "i16" else 0.0
            # First the frontier of the weights of its readers, which are few.
            best = frontier([row for row in rows if row])
            for point in range(len(best)):
                changed = tuple(pick for pick in best.picks(point) if pick[1] != "own")
                pick = Pick(unit, activation, changed)
                options.append(
                    Option(left * tensors + float(best.noise[point]), start + float(best.cost[point]), pick)
                )
        return options

    def _float_options(self, unit: Unit, in_bf16: float) -> list[Option]:
        """The float types that one unit may have, at the cycles of its layers and of the conversions around them."""
        options = []
        for variant in self._floats:
            if not self._able(unit, variant):
                continue
            around = self._conversions(unit, variant) if variant != FLOAT else self.cost_model.switch()
            cost = around + sum(self._extra(op, variant) for op in _layers(unit))
            noise = in_bf16 * _NOISE_OF_FLOATS.get(variant.activation, 0.0)
            options.append(Option(noise, cost, Pick(unit, variant.activation)))
        return options

    def _conversions(self, unit: Unit, variant: Variant) -> float:
        """The cycles to convert what the layers of a unit exchange with layers of integers: by f32, to and from the type."""
        inside, steps = set(unit.values), 1 if variant.activation == "f32" else 2
        values = dict.fromkeys(value for op in _layers(unit) for value in (*op.operands, *op.results))
        crossing = [value for value in values if value not in inside and value_name(value) in self._types]
        return sum(steps * self.cost_model.requant(prod(shape_of(value))) for value in crossing)

    def _able(self, unit: Unit, variant: Variant) -> bool:
        ops = [op for op in unit.ops if self._schemes(op) is not None]
        if variant.activation == "f16":
            reach = max((reach_of(op, self.best.source, self.best.table.entries) for op in ops), default=0.0)
            if reach > LARGEST:
                return False
        return variant in self._layer_cost and bool(ops) and all(self._may(op, variant) for op in ops)

    def _back(self, unit: Unit) -> float:
        """The cycles to requantize the readers' results for layers of 8 bits."""
        results = [value for op in unit.readers for value in op.results if value not in unit.values]
        narrow = [
            v for v in results if (k := self._types.get(value_name(v))) is not None and k.dtype.itemsize == 1
        ]
        return sum(self.cost_model.requant(prod(shape_of(value))) for value in narrow)

    # From a choice to a network

    @cached_property
    def _full_ranges(self) -> CalibrationTable:
        observed = table_from(self.context.statistics(self.best.source), "max")
        return CalibrationTable(
            {
                name: replace(
                    entry, threshold=_ROOM * entry.threshold, min=_ROOM * entry.min, max=_ROOM * entry.max
                )
                for name, entry in observed.entries.items()
            }
        )

    def candidate(self, picks: Sequence[Pick]) -> Candidate:
        """The integer network of a choice, which keeps the integers of layers where they still fit."""
        chosen = [pick for pick in picks if not pick.is_own]
        if not chosen:
            return self.best
        scheme_of = self.schemes(chosen)
        entries = dict(self.best.table.entries)
        for pick in chosen:
            if pick.activation == "i16":
                names = [value_name(value) for value in pick.unit.values]
                entries |= {
                    name: self._full_ranges.entries[name]
                    for name in names
                    if name in self._full_ranges.entries
                }
        table = CalibrationTable(entries, self.best.table.comments, self.best.table.notes)
        plain = self._kept(quantize(self.best.source, table, scheme_of), table, scheme_of)
        plain.verify()
        words = describe(chosen)
        forms = [(plain, words), (self._corrected(plain, scheme_of), words)]
        together = plain.copy()
        if count := self._round_together(together, scheme_of):
            together.verify()
            together.notes = plain.notes
            forms.append((self._corrected(together, scheme_of), f"{words}; {count} rounded together"))
        tried = [
            Candidate(
                self.best.source,
                quantized,
                table,
                scheme_of,
                self.context.validated_sqnr(quantized),
                (*self.best.notes, note),
            )
            for quantized, note in forms
        ]
        return self.context.best_of(tried)

    def _corrected(self, quantized: Graph, scheme_of: LayerSchemes) -> Graph:
        fixed = quantized.copy()
        correct_biases(
            self.best.source, fixed, self.context.fit[:_CORRECTED], self.context.threads, scheme_of
        )
        fixed.notes = quantized.notes
        return fixed

    def _round_together(self, quantized: Graph, scheme_of: LayerSchemes) -> int:
        """Round the weights that now have 4 bits together (GPTQ); returns the number of layers."""
        changed = [
            layer
            for layer in integer_layers(self.best.source, quantized, scheme_of)
            if layer.scheme.weight == "i4" and self._scheme_before(layer).weight != "i4"
        ]
        integers = self._rerounding.integers(changed)
        return sum(
            replace_integers(quantized, layer, integers[layer.name])
            for layer in changed
            if layer.name in integers
        )

    def _scheme_before(self, layer: IntegerLayer) -> Scheme:
        return self._schemes(layer.float_op) or Scheme()

    def schemes(self, chosen: Sequence[Pick]) -> LayerSchemes:
        """The schemes of the layers with a choice."""
        wide = {op for pick in chosen if pick.activation == "i16" for op in pick.unit.ops}
        floats = {
            op: variant
            for variant in self._floats
            for pick in chosen
            if pick.activation == variant.activation
            for op in pick.unit.ops
        }
        weights = {name: weight for pick in chosen for name, weight in pick.weights}
        schemes: dict[Any, Any] = {}
        for op, scheme in self._schemes.by_op.items():
            activation: Any = "i16" if op in wide else "own"
            weight: Any = weights.get(key(op), "own") if op.results else "own"
            variant = floats.get(op) or Variant(activation, weight)
            schemes[op] = scheme if variant == OWN else scheme_as(scheme, variant, self.context.target)
        return LayerSchemes(schemes)

    def _kept(self, quantized: Graph, table: CalibrationTable, scheme_of: LayerSchemes) -> Graph:
        """The network of a choice, with the tuned integers, scales and biases kept where weights keep their type."""
        source = self.best.source
        before = {layer.name: layer for layer in integer_layers(source, self.best.quantized, self._schemes)}
        own = {
            layer.float_op: LearnedLayer.of(old)
            for layer in integer_layers(source, quantized, scheme_of)
            if (old := before.get(layer.name)) is not None
            and old.scheme.weight == layer.scheme.weight
            and old.scale.shape == layer.scale.shape
        }
        while own:
            lowered = lower_learned(source, table, scheme_of, own)
            gone = lost(lowered, quantized)
            if not gone:
                return lowered
            # With wider inputs, the sums of some layers do not fit: those are quantized again.
            fewer = {op: layer for op, layer in own.items() if key(op) not in gone}
            own = fewer if len(fewer) < len(own) else {}
        return quantized


def _layers(unit: Unit) -> dict[Any, None]:
    """The layers of a unit in a fixed order."""
    return dict.fromkeys((*unit.makers, *unit.readers))


def _spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """`count` samples, evenly spread."""
    return [samples[index] for index in sorted({int(i) for i in np.linspace(0, len(samples) - 1, count)})]


def describe(picks: Sequence[Pick]) -> str:
    """A choice in words."""
    changed = [pick for pick in picks if not pick.is_own]
    if not changed:
        return "types as they were"
    parts = []
    kinds = {"i16": "16 bits for", "float": "float for"}
    for activation, words in (kinds | {name: f"{name} for" for name in _NOISE_OF_FLOATS}).items():
        names = [pick.unit.name for pick in changed if pick.activation == activation]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            parts.append(f"{words} {', '.join(names[:3])}{more}")
    weights = Counter(weight for pick in changed for _, weight in pick.weights)
    for weight, count in sorted(weights.items()):
        parts.append(f"{weight} weights for {count} layer{'s' * (count != 1)}")
    return "; ".join(parts)
