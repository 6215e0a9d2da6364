"""Question 1 of a target, from its data alone: can this op run here, natively, after a rewrite, or not, and why not?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from npuc.target.limits import Rewrite
from npuc.target.model import Target
from npuc.target.vocabulary import OP_KINDS, nearest

Parameters = Mapping[str, Any]
"""Values of an op's parameters by the names of `OP_KINDS`; `activation` is the name of a fused function, if any."""


@dataclass(frozen=True)
class LimitFailure:
    """A limit that an op does not meet."""

    op: str
    """The op kind."""
    rule: str
    """The field of the target that says so, such as `limits.rules.conv.weight_bank`."""
    sentence: str
    """The target's words."""
    explanation: str
    """What the condition asks for and what there is; empty where there is no condition."""

    def __str__(self) -> str:
        sentence = self.sentence.rstrip(".")
        return f"{sentence}: {self.explanation}." if self.explanation else f"{sentence}."


@dataclass(frozen=True)
class Support:
    """Whether an op can run on a machine."""

    verdict: Literal["native", "rewrite", "no"]
    runs_as: str
    """The op kind that it runs as: its own, or what it is rewritten to."""
    parameters: Mapping[str, Any]
    """The parameters of that op kind."""
    failures: tuple[LimitFailure, ...] = ()
    """What stands against it, for the verdict `no`."""

    def __bool__(self) -> bool:
        return self.verdict != "no"


def check_op(target: Target, op_kind: str, parameters: Parameters) -> list[LimitFailure]:
    """Every limit that an op fails on a target; an empty list means that it runs there.

    >>> from npuc.target import load_target
    >>> check_op(load_target("edge-4t"), "relu", {"ic": 64})
    []
    """
    return list(support(target, op_kind, parameters).failures)


def support(target: Target, op_kind: str, parameters: Parameters) -> Support:
    """Whether, and as what, an op runs on a target."""
    if op_kind not in OP_KINDS:
        raise ValueError(f"'{op_kind}' is not an op kind{nearest(op_kind, OP_KINDS)}")
    unknown = [name for name in parameters if name not in OP_KINDS[op_kind] and name != "activation"]
    if unknown:
        raise ValueError(
            f"'{op_kind}' has no parameter '{unknown[0]}'{nearest(unknown[0], OP_KINDS[op_kind])}"
        )
    rewrite = target.limits.rewrites.get(op_kind)
    if rewrite is None:
        failures = tuple(_native(target, op_kind, parameters))
        return Support("no" if failures else "native", op_kind, parameters, failures)
    own = tuple(_rules(target, op_kind, parameters))
    changed = _rewritten(target, op_kind, rewrite, parameters)
    failures = own or tuple(_native(target, rewrite.to, changed))
    return Support("no" if failures else "rewrite", rewrite.to, changed, failures)


def _native(target: Target, op: str, parameters: Parameters) -> list[LimitFailure]:
    limits = target.limits
    if op in limits.unsupported:
        return [LimitFailure(op, f"limits.unsupported.{op}", limits.unsupported[op], "")]
    if limits.ops != "all" and op not in limits.ops:
        return [LimitFailure(op, "limits.ops", f"{target.name} has no '{op}'", "")]
    return [*_rules(target, op, parameters), *_fused(target, op, parameters)]


def _rules(target: Target, op: str, parameters: Parameters) -> list[LimitFailure]:
    rules = target.limits.rules.get(op)
    if not rules:
        return []
    values = {**target.figures, **target.limits.constants, **parameters}
    return [
        LimitFailure(op, f"limits.rules.{op}.{name}", rule.because, explanation)
        for name, rule in rules.items()
        if (explanation := rule.require.explain(values))
    ]


def _fused(target: Target, op: str, parameters: Parameters) -> list[LimitFailure]:
    activation = parameters.get("activation")
    allowed = target.limits.fused.get(op)
    if activation is None or allowed is None or activation in allowed:
        return []
    sentence = f"{target.name} cannot apply {activation} in the output stage of '{op}'"
    return [LimitFailure(op, f"limits.fused.{op}", sentence, f"it can apply {', '.join(allowed) or 'none'}")]


def _rewritten(target: Target, op: str, rewrite: Rewrite, parameters: Parameters) -> dict[str, Any]:
    values = {**target.figures, **target.limits.constants, **parameters}
    kept = {
        name: value
        for name, value in parameters.items()
        if name in OP_KINDS[rewrite.to] or name == "activation"
    }
    return kept | {name: expression.number(values) for name, expression in rewrite.parameters.items()}
