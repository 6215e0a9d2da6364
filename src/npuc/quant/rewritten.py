"""What it costs to write a file's numbers in the arithmetic of a target: layer by layer, in steps of the file.

The network runs as the file states it, bit for bit. Each layer of the other form then reads those very tensors, in its own
types, and its result is held against the file's: the difference is that layer's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.engine import IntegerEngine
from npuc.engine.integer import prepare
from npuc.ir import Graph, Value, dtype_of, is_static, shape_of, top, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant.expression import Expression
from npuc.quant.lower import SchemeOf
from npuc.quant.own_arithmetic import OwnArithmetic, own_arithmetic
from npuc.quant.parameters import quantize_array
from npuc.quant.prequantized import Prequantized
from npuc.quant.scheme import SCHEMES
from npuc.target import Target

_SHOWN = 48
"""Characters of a layer's name in a sentence."""
_INPUTS = 2
"""Random inputs that layers are compared on."""
ONE_STEP = 1.0 + 1e-3
"""A difference that counts as one step: reals are compared in float32."""


@dataclass(frozen=True)
class Rewritten:
    """How far the layers of a network are from those of the file, in steps of the file's own types."""

    steps: Mapping[str, float]
    """The largest difference of each layer, by the name of its result."""
    inputs: int
    """Random inputs that it was measured on."""

    @property
    def worst(self) -> tuple[str, float]:
        """The layer that differs most, and by how much."""
        return max(self.steps.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def beyond(self) -> list[str]:
        """The layers that differ by more than one step."""
        return [name for name, steps in self.steps.items() if steps > ONE_STEP]

    def words(self, runtime: str) -> str:
        """One sentence."""
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
class Written:
    """A file's network in the arithmetic of a target."""

    graph: Graph
    notes: tuple[str, ...]
    """What it cost."""


def written_for(
    network: Prequantized, target: Target, scheme_of: SchemeOf, own: OwnArithmetic, *, may_widen: bool
) -> Written:
    """The integer network of a file for a target, and what became of its numbers.

    Layers that 8 bits of the target would move by more than one step read 16 bits, if it has them and `may_widen`.
    """
    expression = Expression(target)
    made = network.lower(scheme_of, expression)
    anew = network.rewritten(expression)
    samples = [] if own.kept and not anew else _random_samples(network)
    if not samples:
        return Written(made, ())
    kind = own_arithmetic(network.follows_tflite)
    reference = network.lower(replace(SCHEMES["int8"], requant=kind.kind))
    found = differences(reference, made, samples)
    notes = []
    linear = network.linear_layers().intersection(anew)
    layers = [name for name in found.beyond if name in linear]
    wide = Expression(target, layers if may_widen else ())
    if wide.wide:
        made = network.lower(scheme_of, wide)
        before, found = found, differences(reference, made, samples)
        count, scheme = len(wide.wide), "uint8" if expression.has_unsigned else "int8"
        notes.append(
            f"{count} layer{'s' * (count != 1)} of them read{'s' * (count == 1)} 16 bits, because the 8 bits of {target.name} "
            f"would move {'its result' if count == 1 else 'a result'} by up to {before.worst[1]:.3g} steps; "
            f"'--scheme {scheme}' keeps 8 bits"
        )
    if anew:
        total = len(network.layers())
        notes.insert(0, f"{len(anew)} of {total} layers are written in numbers that {target.name} has")
    return Written(made, (*notes, found.words(kind.runtime)))


def _random_samples(network: Prequantized) -> list[dict[str, Array]]:
    """Inputs over the whole range of their types; none if the network has inputs of unknown size."""
    samples: list[dict[str, Array]] = []
    ports = network.original.inputs
    if not all(is_static(port.value) for port in ports):
        return samples
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
    reference: Graph, made: Graph, samples: Iterable[Mapping[str, Array]], threads: int = 1
) -> Rewritten:
    """Compare two integer forms of a network, layer by layer, on the tensors of the first."""
    stated = {
        value_name(value): kind for value in _values(reference) if (kind := quant_of(value)) is not None
    }
    ours = {value_name(value) for value in _values(made) if quant_of(value) is not None}
    names = [name for name in stated if name in ours]
    engine = IntegerEngine(reference, fetch=names, threads=threads)
    steps = [(op, prepare(op, made, threads)) for op in made.ops if isinstance(op, TensorOp) and op.operands]
    found: dict[str, float] = {}
    count = 0
    for sample in samples:
        count += 1
        reals = engine.run(sample)
        values: dict[Value, Array] = {}
        for port in made.inputs:
            values[port.value] = np.asarray(sample[port.name])
        for op, run in steps:
            given = [_operand(value, made, values, reals) for value in op.operands]
            for value, array in zip(op.results, run(given), strict=True):
                values[value] = array
                name, kind = value_name(value), quant_of(value)
                if name not in reals or kind is None:
                    continue
                real = kind.scale * (array.astype(np.float64) - kind.zero_point)
                error = float(np.abs(real - reals[name]).max(initial=0.0)) / stated[name].scale
                found[name] = max(found.get(name, 0.0), error)
    return Rewritten(found, count)


def _values(graph: Graph) -> Iterable[Value]:
    return (value for op in graph.ops if not isinstance(op, top.WeightOp) for value in op.results)


def _operand(value: Value, made: Graph, values: Mapping[Value, Array], reals: Mapping[str, Array]) -> Array:
    constant = made.constant(value)
    if constant is not None:
        return constant
    name, kind = value_name(value), quant_of(value)
    if isinstance(kind, QuantType) and name in reals:
        return quantize_array(reals[name], kind)
    return values[value]
