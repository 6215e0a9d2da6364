"""Activations in the forms that hardware has, on request or because a target states them.

    hard-sigmoid     sigmoid(x)              →   hard_sigmoid(x) {alpha = 1/6, beta = 1/2}
    hard-swish       silu(x)                 →   hard_swish(x)
    relu6-to-relu    relu(x) {limit = 6}     →   relu(x), also where it is a property of another op
    leaky-26-256     leaky_relu(x) {0.1}     →   leaky_relu(x) {alpha = 26/256}

Unlike the passes of the canonical form this one changes what a network computes: what it changed is among the notes of the graph,
and `npuc.quant.activation_forms` measures what it cost. It belongs before training or fine-tuning, or where the change is known
to be small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from npuc.errors import PassError
from npuc.ir.graph import Graph
from npuc.ir.names import shown_name
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import HardSigmoid, HardSwish, LeakyRelu, Relu, Sigmoid, SiLU
from npuc.transform.fuse_relu import Fusable
from npuc.transform.patterns import GraphPattern, is_float, replace, set_properties
from npuc.words import counted

LEAKY_SLOPE = 26 / 256
"""The slope that hardware with 8 fractional bits has for 0.1."""
_LEAKY_NEAR = 0.005
"""How far a slope may be from 0.1 to be taken for it."""
_SHOWN = 3


class _Recording(GraphPattern):
    """A pattern that keeps the names of the layers that it changed."""

    def __init__(self, graph: Graph, changed: list[str]) -> None:
        super().__init__(graph)
        self.changed = changed


class HardSigmoids(_Recording):
    """sigmoid → hard sigmoid"""

    @rewrites
    def match_and_rewrite(self, op: Sigmoid, rewriter: PatternRewriter) -> None:
        """Of real numbers."""
        if is_float(op.x):
            self.changed.append(shown_name(op))
            replace(rewriter, op, HardSigmoid.make(op.x, alpha=1 / 6, beta=0.5))


class HardSwishes(_Recording):
    """silu → hard swish"""

    @rewrites
    def match_and_rewrite(self, op: SiLU, rewriter: PatternRewriter) -> None:
        """Of real numbers."""
        if is_float(op.x):
            self.changed.append(shown_name(op))
            replace(rewriter, op, HardSwish.make(op.x))


class UnlimitedRelus(_Recording):
    """relu6 → relu"""

    @rewrites
    def match_and_rewrite(self, op: Relu | Fusable, rewriter: PatternRewriter) -> None:
        """An op of its own, or fused to another."""
        limit = op.limit if isinstance(op, Relu) else op.relu_limit if op.relu else 0.0
        if limit != 6.0:
            return
        self.changed.append(shown_name(op))
        if isinstance(op, Relu):
            replace(rewriter, op, Relu.make(op.x, limit=0.0))
        else:
            set_properties(rewriter, op, relu_limit=0.0)


class LeakySlopes(_Recording):
    """leaky relu of slope 0.1 → of slope 26/256"""

    @rewrites
    def match_and_rewrite(self, op: LeakyRelu, rewriter: PatternRewriter) -> None:
        """Slopes that hardware with one fixed slope stands for."""
        if is_float(op.x) and op.alpha != LEAKY_SLOPE and abs(op.alpha - 0.1) <= _LEAKY_NEAR:
            self.changed.append(shown_name(op))
            replace(rewriter, op, LeakyRelu.make(op.x, alpha=LEAKY_SLOPE))


FORMS: dict[str, tuple[Callable[[Graph, list[str]], Any], str]] = {
    "hard-sigmoid": (HardSigmoids, "sigmoid became hard_sigmoid"),
    "hard-swish": (HardSwishes, "silu became hard_swish"),
    "relu6-to-relu": (UnlimitedRelus, "relu6 became relu"),
    "leaky-26-256": (LeakySlopes, "leaky_relu got the slope 26/256"),
}
"""Forms by name (`npuc.target.vocabulary.ACTIVATION_FORMS`): the pattern, and the note."""


@register_pass
@dataclass(frozen=True)
class HardwareActivations(Pass):
    """Activations in the forms that hardware has; changes what a network computes, and says where."""

    name: ClassVar[str] = "hardware-activations"
    forms: tuple[str, ...] = tuple(FORMS)

    def run(self, graph: Graph) -> None:
        """Apply the forms that were asked for."""
        for form in self.forms:
            if form not in FORMS:
                raise PassError(
                    f"there is no hardware form of an activation '{form}'",
                    fix=f"There are {', '.join(FORMS)}",
                )
            pattern, words = FORMS[form]
            changed: list[str] = []
            apply_patterns(graph, [pattern(graph, changed)])
            if changed:
                more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
                layers = f"{', '.join(changed[:_SHOWN])}{more}"
                graph.notes.append(f"{words} in {counted(len(changed), 'layer')}: {layers}")
