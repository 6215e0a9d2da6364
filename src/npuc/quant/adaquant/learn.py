"""Learning scales, weights and biases, block by block."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npuc.arithmetic.kinds import Scales
from npuc.arrays import Array
from npuc.ir import Graph, Value
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.quant.adaquant.deltas import LayerDelta, TensorScale
from npuc.quant.adaquant.options import AdaQuantOptions
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import IntegerLayer
from npuc.quant.lowering.registry import keeps_type
from npuc.quant.patterns import layer_names
from npuc.quant.reconstruction.blocks import LayerBlock
from npuc.quant.reconstruction.learner import Learner
from npuc.quant.reconstruction.learning import Pace, Report, reconstruct
from npuc.quant.reconstruction.student import Student


@dataclass(frozen=True)
class Learned:
    """The learned parameters of all blocks."""

    layers: list[LayerDelta]
    scales: list[TensorScale]


def learn(
    source: Graph,
    layers: Sequence[IntegerLayer],
    types: Mapping[str, QuantType],
    free: Mapping[str, tuple[Value, ...]],
    samples: Sequence[Mapping[str, Array]],
    options: AdaQuantOptions,
    device: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    report: Report = lambda done, total: None,
    powers: Collection[str] = (),
    *,
    one_by_one: bool = True,
) -> Learned:
    """Learn the parameters of all blocks.

    `types` are the types of the integer network's tensors, by name; `free` the scales that may change (`free_scales`), and
    `powers` the names of those that are powers of two. `one_by_one` allows networks whose shapes are those of one sample.
    """
    by_op = {layer.float_op: layer for layer in layers}
    first = {values[0]: name for name, values in free.items()}
    learned = Learned([], [])

    def make(student: Student, block: LayerBlock) -> Learner | None:
        deltas = [LayerDelta(by_op[step.op], device) for step in block.steps if step.op in by_op]
        results = [
            value for step in block.steps for value in step.results if value not in student.rounded_on_read
        ]
        names = [first.pop(value) for value in (*block.inputs, *results) if value in first]
        scales = [
            TensorScale.of(name, student.types[free[name][0]], free[name], device, is_power=name in powers)
            for name in names
        ]
        learned.layers.extend(deltas)
        learned.scales.extend(scales)
        return _BlockLearner(student, block, deltas, scales, options) if deltas or scales else None

    pace = Pace(options.iterations, options.batch, options.dropped, seed)
    reconstruct(
        source, by_op, types, samples, pace, make, device, threads, report, round_on_read=True, one_by_one=one_by_one
    )  # fmt: skip
    return learned


def free_scales(
    origins: Mapping[Value, str],
    named: Mapping[str, Value],
    types: Mapping[str, QuantType],
    scheme_of: LayerSchemes,
) -> dict[str, tuple[Value, ...]]:
    """The ranges whose scales may be learned, each with the tensors of its type, the one that defines it first.

    They are those of 8-bit tensors that a layer computes, if all other tensors of the type inherit it; the operands of a
    concat share a type across blocks, and are left out. Inputs of the network keep their types, because callers rely on them.
    """
    members: dict[str, list[Value]] = {}
    for value, name in origins.items():
        members.setdefault(name, []).append(value)
    free = {}
    for name, values in members.items():
        own, kind = named.get(name), types.get(name)
        op: Any = None if own is None else own.owner
        if own not in values or kind is None or kind.dtype.itemsize != 1 or not isinstance(op, TopOp):
            continue
        scheme = scheme_of(op)
        others = [value for value in values if value is not own]
        passed_on = all(keeps_type(value.owner) for value in others)
        if scheme is not None and not keeps_type(op) and passed_on:
            free[name] = (own, *others)
    return free


def power_scales(free: Mapping[str, tuple[Value, ...]], scheme_of: LayerSchemes) -> set[str]:
    """Those of the free scales that are powers of two."""
    schemes = {name: scheme_of(values[0].owner) for name, values in free.items()}
    return {
        name
        for name, scheme in schemes.items()
        if scheme is not None and scheme.activation_scales is Scales.POWER_OF_TWO
    }


class _BlockLearner(Learner):
    """Learns the scales, weights and biases of a block."""

    fades = True
    checked = True

    def __init__(
        self,
        student: Student,
        block: LayerBlock,
        deltas: Sequence[LayerDelta],
        scales: Sequence[TensorScale],
        options: AdaQuantOptions,
    ) -> None:
        super().__init__(student, block)
        self._deltas, self._scales, self._options = deltas, scales, options
        self._scale_of = {value: scale for scale in scales for value in scale.values}

    def groups(self) -> list[dict[str, Any]]:
        return [{"params": [parameter], "lr": rate} for parameter, rate in self._rated()]

    def _rated(self) -> Iterator[tuple[Any, float]]:
        for delta in self._deltas:
            rates = self._options.rates(layer_names(delta.layer.float_op))
            real = self._options.real_rates
            yield delta.delta, rates.weight_rate / (delta.mean_step if real else 1.0)
            if delta.moves_scale:
                yield delta.log_scale, rates.weight_scale_rate
            if delta.bias is not None:
                yield delta.bias, rates.bias_rate * (1.0 if real else delta.bias_unit)
        for scale in self._scales:
            if not scale.is_power:
                rates = self._options.rates(layer_names(scale.values[0].owner))
                yield scale.log_factor, rates.activation_scale_rate

    @property
    def positions(self) -> list[Any]:
        rates = self._options.rates
        own = [
            scale.log_factor
            for scale in self._scales
            if scale.is_power and rates(layer_names(scale.values[0].owner)).activation_scale_rate
        ]
        return own + [
            delta.position
            for delta in self._deltas
            if not delta.moves_scale and rates(layer_names(delta.layer.float_op)).weight_scale_rate
        ]

    def weights(self, hard: bool) -> dict[str, Any]:
        refs = self.student.module.refs
        weights = {}
        for delta in self._deltas:
            op = delta.layer.float_op
            weights[refs[op.operands[1]]] = delta.quantized()
            if delta.bias is not None:
                weights[refs[op.bias]] = delta.bias
        return weights

    def after(self, value: Value, tensor: Any, keep: Any = None) -> Any:
        scale = self._scale_of.get(value)
        return self.student.after(value, tensor, keep) if scale is None else scale.quantized(tensor, keep)

    @property
    def changed(self) -> dict[Value, QuantType]:
        known = self.student.types
        return {value: scale.learned for value, scale in self._scale_of.items() if value in known}
