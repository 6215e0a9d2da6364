"""Widening: 16 bits for tensors whose 8-bit rounding degrades the outputs too much.

A few tensors can degrade a whole network: those whose channels differ much in magnitude under one scale, most often near the
input. The noise that rounding each tensor alone causes at the outputs is measured; such noises add up, so the most sensitive
tensors are known directly. A tensor has 16 bits if the layers that write and read it compute with 16 bits. On a target that
costs cycles: it is done if the worst slice of the outputs gains 3 dB or more for at most 10 % more cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from npuc.arithmetic.kinds import Scales
from npuc.arrays import Array
from npuc.engine.rounded import output_noise
from npuc.ir import Graph, Value, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.ir.top.functions import FUNCTIONS
from npuc.quant.from_target import fitted, misfit
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.mixed_precision.cost_model import CostModel
from npuc.quant.scheme import Scheme
from npuc.quant.validation import Noise

if TYPE_CHECKING:
    from npuc.target import Target


GAIN = 3.0
"""The decibels that the worst slice has to gain by 16 bits, or by a concat in float, if they cost cycles."""
MOST_CYCLES = 0.10
"""The share of additional cycles that 16 bits may cost."""
_SHARE = 0.05
"""A tensor that causes less than this share of the noise is not widened."""
MOST = 0.1
"""The largest share of tensors that get 16 bits."""


@dataclass(frozen=True)
class CycleChange:
    """The cycles of a network on a target before and after a change."""

    before: int
    after: int
    machine: str

    @property
    def share(self) -> float:
        """The additional cycles as a share of those before."""
        return self.after / max(1, self.before) - 1

    def __str__(self) -> str:
        if self.after <= self.before:
            return f"no more cycles on {self.machine} ({self.before:,} to {self.after:,})"
        return f"{100 * self.share:.1f} % more cycles on {self.machine} ({self.before:,} to {self.after:,})"


@dataclass(frozen=True)
class Widening:
    """The 16-bit types of a target and their cost; without a target, any type is allowed and free."""

    target: Target | None = None
    cost_model: CostModel | None = None
    is_allowed: bool = True
    """Whether 16 bits may be used at all; if not, outputs may still be concatenated in float."""

    @property
    def is_free(self) -> bool:
        """Whether cycles are not counted."""
        return self.cost_model is None

    @property
    def machine(self) -> str:
        """The name of the target."""
        return self.target.name if self.target is not None else ""

    def wide(self, scheme: Scheme) -> Scheme:
        """The scheme with 16-bit activations of the target; unchanged if it has none."""
        wide_scheme = wider(scheme)
        if self.target is None or not scheme.needs_ranges:
            return wide_scheme if scheme.needs_ranges else scheme
        wide_scheme = fitted(wide_scheme, self.target)
        return scheme if misfit(wide_scheme, self.target) is not None else wide_scheme

    def cycle_change(self, before: Graph, after: Graph) -> CycleChange | None:
        """The change in cycles from one network to another; None if one of them does not compile."""
        return None if self.cost_model is None else cycle_change(self.cost_model, before, after)


def cycle_change(cost_model: CostModel, before: Graph, after: Graph) -> CycleChange | None:
    """The change in cycles from one network to another; None if one of them does not compile."""
    old, new = cost_model.network(before), cost_model.network(after)
    return None if old is None or new is None else CycleChange(old, new, cost_model.machine)


def cost_in_words(cost_model: CostModel, before: Graph, after: Graph) -> str:
    """What a change of types costs."""
    change = cycle_change(cost_model, before, after)
    return "at a cost that is not known, because it does not compile" if change is None else f"for {change}"


def wider(scheme: Scheme) -> Scheme:
    """The scheme with 16-bit activations."""
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
    """The 8-bit tensors that need more bits for the outputs to reach `goal` decibels, the most sensitive first.

    A tensor is grouped with the operand or result of an adjacent elementwise function; `measure` computes the noise of
    outputs. At most the share `most` of the tensors is returned, and none that causes less than `share` of the noise.
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


def widened(
    scheme_of: LayerSchemes, tensors: Collection[Value], wide: Callable[[Scheme], Scheme]
) -> LayerSchemes:
    """The same schemes, but with wide ones for the layers that write or read some tensors."""
    ops = {use.operation for value in tensors for use in value.uses}
    ops |= {value.owner for value in tensors}
    return scheme_of.changed(lambda op, scheme: wide(scheme) if op in ops else scheme)


def _unit(value: Value) -> tuple[Value, ...]:
    """A tensor, together with the operand or result of an adjacent elementwise function if nothing else reads it."""
    owner = value.owner
    if type(owner) in FUNCTIONS and owner.operands[0].has_one_use():  # type: ignore[union-attr]
        return (owner.operands[0], value)  # type: ignore[union-attr]
    reader = next(iter(value.uses)).operation if value.has_one_use() else None
    return (value, reader.results[0]) if type(reader) in FUNCTIONS else (value,)  # type: ignore[union-attr]
