"""Activation functions that exporters spell out in primitives become one op.

    %s = top.sigmoid(%x)
    %y = top.mul(%x, %s)      →   %y = top.silu(%x)

Each rule below is the formula of the activation, and stands for every spelling of that formula (see `formula`). What is
inside must have no other user. `x * sigmoid(1.702 * x)` is not GELU, only near it, and stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from npuc.ir import top
from npuc.ir.definition import TopOp
from npuc.ir.graph import Graph
from npuc.ir.names import value_name
from npuc.ir.passes import Pass, apply_patterns, register_pass
from npuc.transform.formula import (
    FunctionCall,
    FunctionSymbol,
    Operand,
    Parameter,
    Variable,
    as_sum,
    is_close,
    sqrt,
)
from npuc.transform.matching import Build, FormulaPattern, FormulaRule, Match

x, slope = Variable("x"), Variable("slope")
a, b, c, s = Parameter("a"), Parameter("b"), Parameter("c"), Parameter("s")
high = Parameter("high")

absolute, exp, log, erf = (
    FunctionSymbol("abs"),
    FunctionSymbol("exp"),
    FunctionSymbol("log"),
    FunctionSymbol("erf"),
)
sigmoid, tanh, softplus = FunctionSymbol("sigmoid"), FunctionSymbol("tanh"), FunctionSymbol("softplus")
clip, hard_sigmoid, elu = FunctionSymbol("clip"), FunctionSymbol("hard_sigmoid"), FunctionSymbol("elu")
maximum, if_positive, positive = (
    FunctionSymbol("max"),
    FunctionSymbol("if_positive"),
    FunctionSymbol("positive"),
)

ROUNDED = 1e-3
"""Tolerance for irrational constants, which models state with a few digits."""


def relu(value: Operand) -> FunctionCall:
    """max(value, 0)"""
    return clip(value, min=0.0, max=math.inf)


def becomes(kind: type[TopOp], **properties: Any) -> Build:
    """The op of x, with properties that are numbers or found by parameters."""

    def build(match: Match) -> TopOp | None:
        values = {
            key: match[value] if isinstance(value, Parameter) else value for key, value in properties.items()
        }
        return kind.make(match[x], **values)

    return build


def where(condition: Callable[[Match], bool], build: Build) -> Build:
    """A further condition on what was found."""
    return lambda match: build(match) if condition(match) else None


def _hard_sigmoid(match: Match) -> TopOp | None:
    """s * clip(a * x + b, 0, high) where s * high is 1."""
    scale = match[s]
    if not is_close(scale * match[high], 1.0, 1e-5) or scale <= 0 or match[a] == 0:
        return None
    return top.HardSigmoid.make(match[x], alpha=scale * match[a], beta=scale * match[b])


def _prelu(match: Match) -> TopOp | None:
    return top.PRelu.make(match[x], match[slope])


def _prelu_of_negative(match: Match) -> Sequence[TopOp] | None:
    """The slope with its sign changed, as one more constant."""
    values = match.graph.constant(match[slope])
    if values is None:
        return None
    weight = match.graph.add_weight(f"{value_name(match[slope])}/negative", -values)
    return weight, top.PRelu.make(match[x], weight.output)


def _selu(match: Match) -> TopOp | None:
    """c * x above zero, a * e^x - a below it."""
    if not is_close(match[a], -match[b], 1e-5) or match[c] == 0:
        return None
    return top.Selu.make(match[x], alpha=match[a] / match[c], gamma=match[c])


def _celu(match: Match) -> TopOp | None:
    """s * elu(x / s); with s = 1 it is elu itself."""
    if isinstance(match.root, top.Elu):
        return None
    return top.Celu.make(match[x], alpha=match[s]) if is_close(match[s] * match[a], 1.0, 1e-5) else None


RULES = (
    # Sigmoid and its relatives
    FormulaRule(as_sum(1 / (1 + exp(-x))), becomes(top.Sigmoid)),
    FormulaRule(as_sum(x / (1 + exp(-x))), becomes(top.SiLU)),
    FormulaRule(as_sum(x * sigmoid(x)), becomes(top.SiLU)),
    FormulaRule(as_sum(log(1 + exp(x))), becomes(top.Softplus)),
    FormulaRule(as_sum(x * tanh(softplus(x))), becomes(top.Mish)),
    FormulaRule(as_sum(x / (1 + absolute(x))), becomes(top.Softsign)),
    # Hard sigmoid: clip(x + 3, 0, 6) / 6, or clip(alpha * x + beta, 0, 1)
    FormulaRule(as_sum(s * clip(a * x + b, min=0.0, max=high)), _hard_sigmoid),
    FormulaRule(as_sum(x * clip(x + 3, min=0.0, max=6.0) / 6), becomes(top.HardSwish)),
    FormulaRule(as_sum(x * clip(x / 6 + 0.5, min=0.0, max=1.0)), becomes(top.HardSwish)),
    FormulaRule(as_sum(x * hard_sigmoid(x, alpha=1 / 6, beta=0.5)), becomes(top.HardSwish)),
    # GELU
    FormulaRule(as_sum(0.5 * x * (1 + erf(x / math.sqrt(2)))), becomes(top.Gelu), ROUNDED),
    FormulaRule(
        as_sum(0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        becomes(top.Gelu, tanh=True),
        ROUNDED,
    ),
    # Relu and its relatives
    FormulaRule(as_sum(if_positive(x, x, 0.0)), becomes(top.Relu)),
    FormulaRule(as_sum(x * positive(x)), becomes(top.Relu)),
    FormulaRule(as_sum(if_positive(x, x, a * x)), becomes(top.LeakyRelu, alpha=a)),
    FormulaRule(
        as_sum(maximum(x, a * x)), where(lambda match: 0 <= match[a] <= 1, becomes(top.LeakyRelu, alpha=a))
    ),
    FormulaRule(as_sum(relu(x) + a * relu(-x)), lambda match: top.LeakyRelu.make(match[x], alpha=-match[a])),
    FormulaRule(as_sum(if_positive(x, x, slope * x)), _prelu),
    FormulaRule(as_sum(relu(x) - slope * relu(-x)), _prelu),
    FormulaRule(as_sum(relu(x) + slope * relu(-x)), _prelu_of_negative),
    FormulaRule(as_sum(relu(x) + slope * clip(x, min=-math.inf, max=0.0)), _prelu),
    FormulaRule(as_sum(relu(x) + 0.5 * slope * (x - absolute(x))), _prelu),
    FormulaRule(
        as_sum(if_positive(x, x, a * exp(x) + b)),
        where(lambda match: is_close(match[a], -match[b], 1e-5), becomes(top.Elu, alpha=a)),
    ),
    FormulaRule(as_sum(if_positive(x, c * x, a * exp(x) + b)), _selu),
    FormulaRule(as_sum(s * elu(a * x, alpha=1.0)), _celu),
    FormulaRule(
        as_sum(1 / sqrt(x)), where(lambda match: not isinstance(match.root, top.Rsqrt), becomes(top.Rsqrt))
    ),
)


@register_pass
@dataclass(frozen=True)
class RecognizeActivations(Pass):
    """Activation functions spelled out in primitives become one op."""

    name: ClassVar[str] = "recognize-activations"

    def run(self, graph: Graph) -> None:
        """All rules together: the parts of some activations are activations themselves."""
        apply_patterns(graph, [FormulaPattern(graph, RULES)])
