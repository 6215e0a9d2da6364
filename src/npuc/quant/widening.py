"""Sixteen bits where eight cost the network too much.

A few tensors can spoil a whole network: channels of very different sizes under one scale, most often near the input. What
the rounding of each tensor alone does to the outputs is measured; the noises add up, so the worst few are known at once.
A tensor has 16 bits if the layer that makes it and those that read it compute with them. On a machine they take time: they
are used where the worst slice of the outputs gains 3 dB or more for at most 10 % more cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from npuc.arithmetic.kinds import Scales
from npuc.arrays import Array
from npuc.engine.rounded import output_noise
from npuc.ir import Graph, Value, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.ir.top.functions import FUNCTIONS
from npuc.quant.from_target import fitted, misfit
from npuc.quant.judging import Noise
from npuc.quant.mixed_precision.cost_model import CostModel
from npuc.quant.scheme import Scheme

if TYPE_CHECKING:
    from npuc.target import Target

SchemeOf = Callable[[Any], Scheme | None]

GAIN = 3.0
"""Decibels of the worst slice that 16 bits, or a join in float, have to gain where they cost something."""
MOST_CYCLES = 0.10
"""Part of the cycles that 16 bits may cost more."""
_SHARE = 0.05
"""A tensor that makes less of the noise than this part is left alone."""
MOST = 0.1
"""At most this part of the tensors gets 16 bits."""


@dataclass(frozen=True)
class Price:
    """What a change takes on a machine."""

    before: int
    after: int
    machine: str

    @property
    def share(self) -> float:
        """How many cycles more, as a part of those before."""
        return self.after / max(1, self.before) - 1

    def __str__(self) -> str:
        if self.after <= self.before:
            return f"no more cycles on {self.machine} ({self.before:,} to {self.after:,})"
        return f"{100 * self.share:.1f} % more cycles on {self.machine} ({self.before:,} to {self.after:,})"


@dataclass(frozen=True)
class Widening:
    """Which form of 16 bits there is, and what it costs; without a machine, any form at no price."""

    target: Target | None = None
    prices: CostModel | None = None
    is_allowed: bool = True
    """Whether 16 bits may be used at all; without them, outputs may still be joined in float."""

    @property
    def is_free(self) -> bool:
        """Whether nobody asks for cycles."""
        return self.prices is None

    @property
    def machine(self) -> str:
        """Its name."""
        return self.target.name if self.target is not None else ""

    def wide(self, scheme: Scheme) -> Scheme:
        """The same scheme with activations of 16 bits, as the machine has them; the same if it has none."""
        made = wider(scheme)
        if self.target is None or not scheme.needs_ranges:
            return made if scheme.needs_ranges else scheme
        made = fitted(made, self.target)
        return scheme if misfit(made, self.target) is not None else made

    def price(self, before: Graph, after: Graph) -> Price | None:
        """What one network takes more than another; None if one of them does not compile."""
        if self.prices is None:
            return None
        old, new = self.prices.network(before), self.prices.network(after)
        return None if old is None or new is None else Price(old, new, self.prices.machine)


def wider(scheme: Scheme) -> Scheme:
    """The same scheme with activations of 16 bits."""
    powers = scheme.activation_scales is Scales.POWER_OF_TWO
    scales = Scales.POWER_OF_TWO if powers else Scales.SYMMETRIC
    return replace(scheme, activation="i16", activation_scales=scales)


def sensitive_tensors(
    graph: Graph,
    types: Mapping[str, QuantType],
    samples: Sequence[Mapping[str, Array]],
    goal: float,
    threads: int = 1,
    measure: Noise | None = None,
    *,
    most: float = MOST,
    share: float = _SHARE,
) -> list[tuple[Value, ...]]:
    """The 8-bit tensors that have to go for the outputs to reach `goal` decibels, or those worth it, the worst first.

    A tensor is with the operand or result of the function beside it; `measure` is what makes noise of outputs. At most the part
    `most` of the tensors is taken, and none that makes less than the part `share` of the noise.
    """
    units = list(
        dict.fromkeys(
            _unit(value)
            for op in graph.ops
            if not isinstance(op, top.WeightOp)
            for value in op.results
            if (kind := types.get(value_name(value))) is not None and kind.dtype.itemsize == 1
        )
    )
    sets = [[name for value in unit if (name := value_name(value)) in types] for unit in units]
    noise = np.array(list(output_noise(graph, sets, types, samples, threads, measure)))
    total = left = float(noise.sum())
    chosen: list[tuple[Value, ...]] = []
    for index in np.argsort(-noise, kind="stable")[: max(1, int(most * len(units)))]:
        if left <= 10 ** (-goal / 10) or noise[index] < share * total:
            break
        chosen.append(units[index])
        left -= float(noise[index])
    return chosen


def widened(scheme_of: SchemeOf, tensors: Collection[Value], wide: Callable[[Scheme], Scheme]) -> SchemeOf:
    """The same schemes, but wide ones for the layers that make or read some tensors."""
    ops = {use.operation for value in tensors for use in value.uses}
    ops |= {value.owner for value in tensors}

    def choose(op: Any) -> Scheme | None:
        scheme = scheme_of(op)
        return wide(scheme) if scheme is not None and op in ops else scheme

    return choose


def _unit(value: Value) -> tuple[Value, ...]:
    """A tensor; with the operand or result of the function beside it, if that is all there is between them."""
    owner = value.owner
    if type(owner) in FUNCTIONS and owner.operands[0].has_one_use():  # type: ignore[union-attr]
        return (owner.operands[0], value)  # type: ignore[union-attr]
    reader = next(iter(value.uses)).operation if value.has_one_use() else None
    return (value, reader.results[0]) if type(reader) in FUNCTIONS else (value,)  # type: ignore[union-attr]
