"""Normalizations that exporters spell out in primitives become one op.

    %m = top.reduce(%x) {mean, axes = [-1]}
    %d = top.sub(%x, %m)
    %v = top.reduce(top.mul(%d, %d)) {mean, axes = [-1]}
    %n = top.div(%d, top.sqrt(top.add(%v, 1e-5)))
    %y = top.add(top.mul(%n, %scale), %bias)         →   %y = top.layer_norm(%x, %scale, %bias) {axis = -1}

Layer norm (over trailing axes), instance norm (over spatial axes), RMS norm and L2 norm. A factor and a bias that follow are
absorbed. A norm between two reshapes is that norm under another axis, or a group norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import SSAValue

from npuc.ir import top
from npuc.ir.definition import TopOp, normal_axis
from npuc.ir.dtypes import dtype_of, shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.transform.formula import Function, Parameter, Variable, as_sum, shared, sqrt
from npuc.transform.matching import Build, FormulaPattern, Match, Rule
from npuc.transform.patterns import (
    GraphPattern,
    derived,
    has_relu,
    insert,
    is_float,
    per_axis,
    remake,
    replace,
    sole_producer,
    uniform,
)

x, scale, bias = Variable("x"), Variable("scale"), Variable("bias")
axes, epsilon = Parameter("axes"), Parameter("epsilon")
mean, total, norm = Function("mean"), Function("sum"), Function("l2")
sum_square, clip = Function("sum_square"), Function("clip")

m = mean(x, axes=axes)
d = shared(x - m)

deviation = sqrt(mean(d**2, axes=axes) + epsilon)
deviation_by_squares = sqrt(mean(x**2, axes=axes) - m**2 + epsilon)
root_mean_square = sqrt(mean(x**2, axes=axes) + epsilon)
inverse = shared(1 / deviation)
scaled_inverse = shared(scale / deviation)

AffineNorm = top.LayerNorm | top.RMSNorm | top.InstanceNorm | top.GroupNorm


def _norm(kind: type[TopOp], scale: Variable | None = None, bias: Variable | None = None) -> Build:
    """The norm over the axes found, with the parameters found."""

    def build(found: Match) -> Sequence[TopOp] | None:
        shape = shape_of(found[x])
        first = len(shape) - len(found[axes])
        if not found[axes] or found[axes] != tuple(range(first, len(shape))) or found[epsilon] < 0:
            return None
        properties: dict[str, Any] = {"epsilon": found[epsilon]}
        if kind is top.LayerNorm and first == 2 and len(shape) >= 4:
            bare: TopOp = top.InstanceNorm.make(found[x], **properties)
        else:
            bare = kind.make(found[x], axis=first - len(shape), **properties)
        name = derived(found.root.results[0], "")
        parameters = [(key, found[value]) for key, value in (("scale", scale), ("bias", bias)) if value is not None]
        return _with_parameters(found.graph, bare, dict(parameters), name)

    return build


def _l2_norm(root: bool = False, bounded: bool = True) -> Build:
    """The L2 norm along the one axis found; where the square is bounded, epsilon is the root of that bound."""

    def build(found: Match) -> TopOp | None:
        bound = found[epsilon] if bounded else 0.0
        if len(found[axes]) != 1 or bound < 0:
            return None
        return top.L2Norm.make(found[x], axis=found[axes][0], epsilon=math.sqrt(bound) if root else bound)

    return build


SQUARES = (total(x**2, axes=axes), sum_square(x, axes=axes))
AT_LEAST_EPSILON = {"min": epsilon, "max": math.inf}

RULES = (
    # Zero mean, unit variance
    Rule(as_sum(d / deviation), _norm(top.LayerNorm)),
    Rule(as_sum((x - m) / deviation), _norm(top.LayerNorm)),
    Rule(as_sum((x - m) / deviation_by_squares), _norm(top.LayerNorm)),
    Rule(as_sum(d / deviation_by_squares), _norm(top.LayerNorm)),
    # TensorFlow's batch normalization with the moments of the input
    Rule(as_sum(x * inverse - m * inverse), _norm(top.LayerNorm)),
    Rule(as_sum(x * inverse - m * inverse + bias), _norm(top.LayerNorm, bias=bias)),
    Rule(as_sum(x * scaled_inverse - m * scaled_inverse), _norm(top.LayerNorm, scale)),
    Rule(as_sum(x * scaled_inverse - m * scaled_inverse + bias), _norm(top.LayerNorm, scale, bias)),
    # Unit root mean square
    Rule(as_sum(x / root_mean_square), _norm(top.RMSNorm)),
    # Unit length
    Rule(as_sum(x / clip(norm(x, axes=axes), **AT_LEAST_EPSILON)), _l2_norm()),
    *(Rule(as_sum(x / clip(sqrt(square), **AT_LEAST_EPSILON)), _l2_norm()) for square in SQUARES),
    *(Rule(as_sum(x / sqrt(clip(square, **AT_LEAST_EPSILON))), _l2_norm(root=True)) for square in SQUARES),
    Rule(as_sum(x / norm(x, axes=axes)), _l2_norm(bounded=False)),
    *(Rule(as_sum(x / sqrt(square)), _l2_norm(bounded=False)) for square in SQUARES),
)


def _trailing(graph: Graph, value: SSAValue, inner: tuple[int, ...]) -> SSAValue | np.ndarray[Any, Any] | None:
    """A parameter of the shape of the normalized axes: as it is, or as a new constant."""
    shape = shape_of(value)
    if shape == inner:
        return value
    array = graph.constant(value)
    if array is None or array.size > math.prod(inner):
        return None
    if array.ndim > len(inner):
        if any(n != 1 for n in shape[: array.ndim - len(inner)]):
            return None
        array = array.reshape(shape[array.ndim - len(inner) :])
    fits = all(n in (1, full) for n, full in zip(array.shape, inner[len(inner) - array.ndim :], strict=True))
    return np.broadcast_to(array, inner) if fits else None


def _per_channel(graph: Graph, value: SSAValue, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    """A constant that varies along the channels alone, as one number a channel."""
    array = graph.constant(value)
    return None if array is None else per_axis(array, shape, 1)


def _with_parameters(
    graph: Graph, op: TopOp, parameters: dict[str, SSAValue], name: str
) -> Sequence[TopOp] | None:
    """A norm with more parameters, after the constants that it needs; None if they do not fit it.

    Without parameters, layer norm over all axes from 2 on and instance norm are the same: the parameters decide.
    """
    value = op.operands[0]
    shape = shape_of(value)
    kinds: list[tuple[type[TopOp], dict[str, Any]]] = [(type(op), {})]
    plain = len(op.operands) == 1
    if plain and isinstance(op, top.LayerNorm) and normal_axis(op.axis, len(shape)) == 2:
        kinds.append((top.InstanceNorm, {}))
    elif plain and isinstance(op, top.InstanceNorm):
        kinds.append((top.LayerNorm, {"axis": 2 - len(shape)}))
    for kind, extra in kinds:
        ops: list[TopOp] = []
        chosen: dict[str, SSAValue | None] = {"scale": getattr(op, "scale", None), "bias": getattr(op, "bias", None)}
        for key, parameter in parameters.items():
            fitted: SSAValue | np.ndarray[Any, Any] | None
            if issubclass(kind, top.LayerNorm | top.RMSNorm):
                axis = extra.get("axis", getattr(op, "axis", -1))
                fitted = _trailing(graph, parameter, shape[normal_axis(axis, len(shape)) :])
            else:
                fitted = _per_channel(graph, parameter, shape)
            if fitted is None:
                break
            if not isinstance(fitted, SSAValue):
                weight = graph.add_weight(f"{name}{key}", np.array(fitted, dtype_of(value.type).numpy))
                ops.append(weight)
                fitted = weight.output
            chosen[key] = fitted
        else:
            properties = {
                key: number for key, number in op.native_properties().items() if key in ("epsilon", "groups", "axis")
            }
            if kind is not type(op):
                properties.pop("axis", None)
            return [*ops, kind.make(value, chosen["scale"], chosen["bias"], **{**properties, **extra})]
    return None


def _is_neutral(graph: Graph, value: SSAValue | None, number: float) -> bool:
    return value is None or uniform(graph, value) == number


class AbsorbParameter(GraphPattern):
    """mul(norm(x), scale) and add(norm(x), bias) → norm(x, scale, bias)"""

    @rewrites
    def match_and_rewrite(self, op: top.Mul | top.Add, rewriter: PatternRewriter) -> None:
        """The norm has no other user and no such parameter yet."""
        if has_relu(op) or not is_float(op.y):
            return
        for value, parameter in ((op.a, op.b), (op.b, op.a)):
            before = _sole_norm(value)
            if before is None or shape_of(value) != shape_of(op.y):
                continue
            if not _is_neutral(self.graph, before.bias, 0.0) or isinstance(before, top.RMSNorm) and isinstance(op, top.Add):
                continue
            key = "scale" if isinstance(op, top.Mul) else "bias"
            if key == "scale" and not _is_neutral(self.graph, before.scale, 1.0):
                continue
            stripped = _strip_neutral(self.graph, before)
            new = _with_parameters(self.graph, stripped, {key: parameter}, derived(op.y, ""))
            if new is not None:
                for weight in new[:-1]:
                    insert(rewriter, weight)
                replace(rewriter, op, new[-1])
                return


def _sole_norm(value: SSAValue) -> AffineNorm | None:
    for kind in (top.LayerNorm, top.RMSNorm, top.InstanceNorm, top.GroupNorm):
        found = sole_producer(value, kind)
        if found is not None:
            return found  # type: ignore[return-value]
    return None


def _strip_neutral(graph: Graph, op: AffineNorm) -> TopOp:
    """The norm without a scale of ones and a bias of zeros."""
    kept_scale = None if _is_neutral(graph, op.scale, 1.0) else op.scale
    kept_bias = None if _is_neutral(graph, op.bias, 0.0) else op.bias
    return op if (kept_scale, kept_bias) == (op.scale, op.bias) else remake(op, op.x, kept_scale, kept_bias)


class NormBetweenReshapes(GraphPattern):
    """reshape(norm(reshape(x))) → norm(x) over other axes, or group_norm(x)"""

    @rewrites
    def match_and_rewrite(self, op: top.Reshape, rewriter: PatternRewriter) -> None:
        """The second reshape undoes the first."""
        inner = _sole_norm(op.x)
        before = sole_producer(inner.x, top.Reshape) if inner is not None else None
        if inner is None or before is None or before.x.type != op.y.type or not is_float(op.y):
            return
        new = self._grouped(inner, before.x, op) or self._over_other_axes(inner, before.x, op)
        if new is not None:
            for weight in new[:-1]:
                insert(rewriter, weight)
            replace(rewriter, op, new[-1])

    def _grouped(self, inner: TopOp, value: SSAValue, op: top.Reshape) -> Sequence[TopOp] | None:
        """Each group of channels is one channel inside: its parameters hold for all channels of the group."""
        shape, folded = shape_of(value), shape_of(inner.operands[0])
        if not isinstance(inner, top.InstanceNorm | top.LayerNorm) or len(folded) < 3 or len(shape) < 3:
            return None
        groups = folded[1]
        if folded[0] != shape[0] or groups == 0 or shape[1] % groups:
            return None
        if isinstance(inner, top.LayerNorm):
            if normal_axis(inner.axis, len(folded)) != 2 or len(inner.operands) != 1:
                return None
        properties = {"epsilon": inner.epsilon}
        if groups == shape[1]:
            bare: TopOp = top.InstanceNorm.make(value, **properties)
        else:
            bare = top.GroupNorm.make(value, groups=groups, **properties)
        weights: list[TopOp] = []
        chosen: list[SSAValue | None] = []
        for key, parameter, neutral in (("scale", inner.scale, 1.0), ("bias", inner.bias, 0.0)):
            if _is_neutral(self.graph, parameter, neutral):
                chosen.append(None)
                continue
            array = self.graph.constant(parameter)
            if array is None:
                return None
            weight = self.graph.add_weight(derived(op.y, key), np.repeat(array, shape[1] // groups))
            weights.append(weight)
            chosen.append(weight.output)
        return [*weights, remake(bare, value, *chosen)]

    def _over_other_axes(self, inner: TopOp, value: SSAValue, op: top.Reshape) -> Sequence[TopOp] | None:
        """The normalized axes are the last ones inside; so many elements must be the last axes outside."""
        if not isinstance(inner, top.LayerNorm | top.RMSNorm):
            return None
        shape, folded = shape_of(value), shape_of(inner.x)
        count = math.prod(folded[normal_axis(inner.axis, len(folded)) :])
        first = len(shape) - 1
        while first > 0 and math.prod(shape[first:]) < count:
            first -= 1
        if math.prod(shape[first:]) != count:
            return None
        weights: list[TopOp] = []
        chosen: list[SSAValue | None] = []
        for key, parameter in (("scale", inner.scale), ("bias", inner.bias)):
            if parameter is None or shape_of(parameter) == shape[first:]:
                chosen.append(parameter)
                continue
            array = self.graph.constant(parameter)
            if array is None:
                return None
            weight = self.graph.add_weight(derived(op.y, key), array.reshape(shape[first:]))
            weights.append(weight)
            chosen.append(weight.output)
        return [*weights, type(inner).make(value, *chosen, axis=first - len(shape), epsilon=inner.epsilon)]


@register_pass
@dataclass(frozen=True)
class RecognizeNorms(Pass):
    """Normalizations spelled out in primitives become one op."""

    name: ClassVar[str] = "recognize-norms"

    def run(self, graph: Graph) -> None:
        """The norm itself first, then what may be absorbed into it."""
        apply_patterns(graph, [FormulaPattern(graph, RULES), AbsorbParameter(graph), NormBetweenReshapes(graph)])
