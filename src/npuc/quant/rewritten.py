"""The error of converting a prequantized network to the arithmetic of a target, per layer, in steps of the file's types.

The network runs exactly as the file states it. Each layer of the converted form then reads those same tensors, in its own
types, and its result is compared with the file's, so the difference is caused by that layer alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value, dtype_of, is_static, shape_of, top, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.own_arithmetic import OwnArithmetic, own_arithmetic
from npuc.quant.parameters import quantize_array
from npuc.quant.prequantized import Prequantized
from npuc.quant.scheme import SCHEMES
from npuc.quant.target_encoding import TargetEncoding
from npuc.target import Target

_SHOWN = 48
"""The longest layer name in a message, in characters."""
_INPUTS = 2
"""The number of random inputs on which layers are compared."""
ONE_STEP = 1.0 + 1e-3
"""The largest difference that counts as one step; values are compared in float32."""


@dataclass(frozen=True)
class LayerDifferences:
    """How far the layers of a converted network are from those of the file, in steps of the file's types."""

    steps: Mapping[str, float]
    """The largest difference of each layer, by the name of its result."""
    inputs: int
    """The number of random inputs on which it was measured."""

    @property
    def worst(self) -> tuple[str, float]:
        """The layer that differs most, and by how much."""
        return max(self.steps.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def beyond(self) -> list[str]:
        """The layers that differ by more than one step."""
        return [name for name, steps in self.steps.items() if steps > ONE_STEP]

    def words(self, runtime: str) -> str:
        """The differences in one sentence."""
        name, steps = self.worst
        shown = name if len(name) <= _SHOWN else f"{name[: _SHOWN // 2]}…{name[-_SHOWN // 2 :]}"
        where = f" ('{shown}')" if steps > ONE_STEP else ""
        some = self.beyond
        more = (
            f"; {len(some)} {'layer differs' if len(some) == 1 else 'layers differ'} by more than one"
            if some
            else ""
        )
        return (
            f"the results of single layers differ from {runtime}'s by at most {steps:.3g} "
            f"step{'s' * (steps > ONE_STEP)}{where} on {self.inputs} random inputs{more}"
        )


@dataclass(frozen=True)
class RewrittenNetwork:
    """A prequantized network in the arithmetic of a target."""

    graph: Graph
    notes: tuple[str, ...]
    """The conversions and their errors, in sentences."""


def rewrite_for(
    network: Prequantized, target: Target, scheme_of: LayerSchemes, own: OwnArithmetic, *, may_widen: bool
) -> RewrittenNetwork:
    """The integer network of a prequantized file for a target, with notes on the conversions.

    Layers whose results would move by more than one step with the target's 8-bit types read 16 bits instead, if the target
    has them and `may_widen` is set.
    """
    encoding = TargetEncoding(target)
    graph = network.lower(scheme_of, encoding)
    changed = network.rewritten(encoding)
    samples = [] if own.kept and not changed else _random_samples(network)
    if not samples:
        return RewrittenNetwork(graph, ())
    own_kind = own_arithmetic(network.follows_tflite, stated=network.stated)
    reference = network.lower(replace(SCHEMES["int8"], **own_kind.scheme))
    errors = differences(reference, graph, samples)
    notes = []
    linear = network.linear_layers().intersection(changed)
    layers = [name for name in errors.beyond if name in linear]
    wide = TargetEncoding(target, layers if may_widen else ())
    if wide.wide:
        graph = network.lower(scheme_of, wide)
        errors_before, errors = errors, differences(reference, graph, samples)
        count, scheme = len(wide.wide), "uint8" if encoding.has_unsigned else "int8"
        notes.append(
            f"{count} layer{'s' * (count != 1)} of them read{'s' * (count == 1)} 16 bits, because the 8 bits of {target.name} "
            f"would move {'its result' if count == 1 else 'a result'} by up to {errors_before.worst[1]:.3g} steps; "
            f"'--scheme {scheme}' keeps 8 bits"
        )
    if changed:
        total = len(network.layers())
        notes.insert(0, f"{len(changed)} of {total} layers are written in numbers that {target.name} has")
    return RewrittenNetwork(graph, (*notes, errors.words(own_kind.runtime)))


def _random_samples(network: Prequantized) -> list[dict[str, Array]]:
    """Random inputs over the whole range of their types; none if the network has inputs of unknown size."""
    samples: list[dict[str, Array]] = []
    ports = network.original.inputs
    if not all(is_static(port.value) for port in ports):
        return samples
    # Engines and images are loaded where a network has to be rewritten at all.
    from npuc.calib.random_inputs import random_inputs

    for seed in range(_INPUTS):
        sample = random_inputs(network.original, seed)
        random = np.random.default_rng(seed)
        for port in ports:
            kind = dtype_of(port.type)
            if kind.name in ("i8", "ui8", "i16"):
                least, most = kind.limits
                sample[port.name] = random.integers(least, most + 1, shape_of(port.value)).astype(kind.numpy)
            elif kind.name == "f32" and (own := network.input_type(port.name)) is not None:
                least, most = own.dtype.limits
                codes = random.integers(least, most + 1, shape_of(port.value)) - own.zero_point
                sample[port.name] = (own.scale * codes).astype(np.float32)
        samples.append(sample)
    return samples


def differences(
    reference: Graph, rewritten: Graph, samples: Iterable[Mapping[str, Array]], threads: int = 1
) -> LayerDifferences:
    """Compare two integer forms of a network layer by layer, on the tensors of the first."""
    from npuc.engine.integer import IntegerEngine, prepare

    stated = {
        value_name(value): kind for value in _values(reference) if (kind := quant_of(value)) is not None
    }
    ours = {value_name(value) for value in _values(rewritten) if quant_of(value) is not None}
    names = [name for name in stated if name in ours]
    engine = IntegerEngine(reference, fetch=names, threads=threads)
    steps = [
        (op, prepare(op, rewritten, threads))
        for op in rewritten.ops
        if isinstance(op, TensorOp) and op.operands
    ]
    largest: dict[str, float] = {}
    count = 0
    for sample in samples:
        count += 1
        reals = engine.run(sample)
        values: dict[Value, Array] = {}
        for port in rewritten.inputs:
            values[port.value] = np.asarray(sample[port.name])
        for op, run in steps:
            operands = [_operand(value, rewritten, values, reals) for value in op.operands]
            for value, array in zip(op.results, run(operands), strict=True):
                values[value] = array
                name, kind = value_name(value), quant_of(value)
                if name not in reals or kind is None:
                    continue
                real = kind.scale * (array.astype(np.float64) - kind.zero_point)
                error = float(np.abs(real - reals[name]).max(initial=0.0)) / stated[name].scale
                largest[name] = max(largest.get(name, 0.0), error)
    return LayerDifferences(largest, count)


def _values(graph: Graph) -> Iterable[Value]:
    return (value for op in graph.ops if not isinstance(op, top.WeightOp) for value in op.results)


def _operand(
    value: Value, rewritten: Graph, values: Mapping[Value, Array], reals: Mapping[str, Array]
) -> Array:
    constant = rewritten.constant(value)
    if constant is not None:
        return constant
    name, kind = value_name(value), quant_of(value)
    if isinstance(kind, QuantType) and name in reals:
        return quantize_array(reals[name], kind)
    return values[value]
