"""Normalizations that exporters spell out in primitives become one op.

    %m = top.reduce(%x) {mean, axes = [-1]}
    %d = top.sub(%x, %m)
    %v = top.reduce(top.mul(%d, %d)) {mean, axes = [-1]}
    %n = top.div(%d, top.sqrt(top.add(%v, 1e-5)))
    %y = top.add(top.mul(%n, %scale), %bias)         →   %y = top.layer_norm(%x, %scale, %bias) {axis = -1}

Layer norm (over trailing axes), instance norm (over spatial axes), RMS norm and L2 norm. A factor and a bias after it
are absorbed. A norm between two reshapes is that norm over other axes, or a group norm.
"""

from __future__ import annotations

import dataclasses
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
from npuc.ir.top.normalization import AffineNorm
from npuc.transform.formula import FunctionSymbol, Parameter, Variable, as_sum, is_close, shared, sqrt
from npuc.transform.matching import Build, FormulaPattern, FormulaRule, Match
from npuc.transform.patterns import (
    GraphPattern,
    derived,
    derived_location,
    has_relu,
    insert,
    is_float,
    per_axis,
    replace,
    sole_producer,
    uniform,
)

x, scale, bias = Variable("x"), Variable("scale"), Variable("bias")
axes, epsilon = Parameter("axes"), Parameter("epsilon")
mean, total, norm = FunctionSymbol("mean"), FunctionSymbol("sum"), FunctionSymbol("l2")
sum_square, clip = FunctionSymbol("sum_square"), FunctionSymbol("clip")

m = mean(x, axes=axes)
d = shared(x - m)

deviation = sqrt(mean(d**2, axes=axes) + epsilon)
variance_by_squares = mean(x**2, axes=axes) - m**2
deviations = (
    deviation,
    sqrt(variance_by_squares + epsilon),
    sqrt(clip(variance_by_squares, min=0.0, max=math.inf) + epsilon),
)
root_mean_square = sqrt(mean(x**2, axes=axes) + epsilon)
inverse = shared(1 / deviation)
scaled_inverse = shared(scale / deviation)


@dataclass(frozen=True)
class NormReading:
    """A norm that is still to be made."""

    kind: type[TopOp]
    x: SSAValue
    properties: dict[str, Any]
    scale: SSAValue | None = None
    bias: SSAValue | None = None

    @staticmethod
    def of(graph: Graph, op: AffineNorm) -> NormReading:
        """An op as a norm; a scale of ones and a bias of zeros are none."""
        keep = {
            key: value
            for key, value in op.native_properties().items()
            if key in ("epsilon", "axis", "groups")
        }
        scale = None if uniform(graph, op.scale) == 1 else op.scale
        bias = None if uniform(graph, op.bias) == 0 else op.bias
        return NormReading(type(op), op.x, keep, scale, bias)

    def make(self) -> TopOp:
        """The op."""
        return self.kind.make(self.x, self.scale, self.bias, **self.properties)

    @property
    def is_trailing(self) -> bool:
        """True if its parameters have the shape of the normalized axes, and not one number a channel."""
        return self.kind in (top.LayerNorm, top.RMSNorm)

    @property
    def first_axis(self) -> int:
        """The first normalized axis."""
        return normal_axis(self.properties.get("axis", 2), len(shape_of(self.x)))

    def readings(self) -> list[NormReading]:
        """Layer norm over the axes from 2 on and instance norm are the same: their parameters decide."""
        readings = [self]
        if self.scale is None and self.bias is None and self.first_axis == 2:
            rest = {"epsilon": self.properties["epsilon"]}
            if self.kind is top.LayerNorm:
                readings.append(NormReading(top.InstanceNorm, self.x, rest))
            elif self.kind is top.InstanceNorm:
                readings.append(
                    NormReading(top.LayerNorm, self.x, {**rest, "axis": 2 - len(shape_of(self.x))})
                )
        return readings


def _norm(kind: type[TopOp], scale: Variable | None = None, bias: Variable | None = None) -> Build:
    """The norm over the axes found, with the parameters found."""

    def build(match: Match) -> Sequence[TopOp] | None:
        shape = shape_of(match[x])
        first = len(shape) - len(match[axes])
        if not match[axes] or match[axes] != tuple(range(first, len(shape))) or match[epsilon] < 0:
            return None
        if kind is top.LayerNorm and first == 2 and len(shape) >= 4:
            bare = NormReading(top.InstanceNorm, match[x], {"epsilon": match[epsilon]})
        else:
            bare = NormReading(kind, match[x], {"epsilon": match[epsilon], "axis": first - len(shape)})
        parameters = {"scale": scale, "bias": bias}
        chosen = {key: match[value] for key, value in parameters.items() if value is not None}
        return _with_parameters(match.graph, bare, chosen, match.root)

    return build


def _l2_norm(root: bool = False, bounded: bool = True) -> Build:
    """The L2 norm along the one axis found; where the square is bounded, epsilon is the root of that bound."""

    def build(match: Match) -> TopOp | None:
        bound = match[epsilon] if bounded else 0.0
        if len(match[axes]) != 1 or bound < 0:
            return None
        return top.L2Norm.make(match[x], axis=match[axes][0], epsilon=math.sqrt(bound) if root else bound)

    return build


SQUARES = (total(x**2, axes=axes), sum_square(x, axes=axes))
AT_LEAST_EPSILON = {"min": epsilon, "max": math.inf}

RULES = (
    # Zero mean, unit variance
    FormulaRule(as_sum(d / deviation), _norm(top.LayerNorm)),
    FormulaRule(as_sum(d * scale / deviation), _norm(top.LayerNorm, scale)),
    *(FormulaRule(as_sum((x - m) / each), _norm(top.LayerNorm)) for each in deviations),
    *(FormulaRule(as_sum((x - m) * scale / each), _norm(top.LayerNorm, scale)) for each in deviations),
    # TensorFlow's batch normalization with the moments of the input
    FormulaRule(as_sum(x * inverse - m * inverse), _norm(top.LayerNorm)),
    FormulaRule(as_sum(x * inverse - m * inverse + bias), _norm(top.LayerNorm, bias=bias)),
    FormulaRule(as_sum(x * scaled_inverse - m * scaled_inverse), _norm(top.LayerNorm, scale)),
    FormulaRule(as_sum(x * scaled_inverse - m * scaled_inverse + bias), _norm(top.LayerNorm, scale, bias)),
    # Unit root mean square
    FormulaRule(as_sum(x / root_mean_square), _norm(top.RMSNorm)),
    FormulaRule(as_sum(x * scale / root_mean_square), _norm(top.RMSNorm, scale)),
    # Unit length
    FormulaRule(as_sum(x / clip(norm(x, axes=axes), **AT_LEAST_EPSILON)), _l2_norm()),
    *(FormulaRule(as_sum(x / clip(sqrt(square), **AT_LEAST_EPSILON)), _l2_norm()) for square in SQUARES),
    *(
        FormulaRule(as_sum(x / sqrt(clip(square, **AT_LEAST_EPSILON))), _l2_norm(root=True))
        for square in SQUARES
    ),
    FormulaRule(as_sum(x / norm(x, axes=axes)), _l2_norm(bounded=False)),
    *(FormulaRule(as_sum(x / sqrt(square)), _l2_norm(bounded=False)) for square in SQUARES),
)


def _trailing(
    graph: Graph, value: SSAValue, inner: tuple[int, ...]
) -> SSAValue | np.ndarray[Any, Any] | None:
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
    graph: Graph, bare: NormReading, parameters: dict[str, SSAValue], root: TopOp
) -> Sequence[TopOp] | None:
    """A norm with more parameters, after the constants that it needs; None if they do not fit it."""
    shape = shape_of(bare.x)
    for norm in bare.readings():
        arrays: dict[str, SSAValue | np.ndarray[Any, Any] | None] = {
            key: _trailing(graph, value, shape[norm.first_axis :])
            if norm.is_trailing
            else _per_channel(graph, value, shape)
            for key, value in parameters.items()
        }
        if all(array is not None for array in arrays.values()):
            return _made(graph, norm, arrays, root)
    return None


def _made(
    graph: Graph,
    norm: NormReading,
    parameters: dict[str, SSAValue | np.ndarray[Any, Any] | None],
    root: TopOp,
) -> Sequence[TopOp]:
    """The norm with these parameters, after new constants for those that are arrays."""
    weights: list[TopOp] = []
    values: dict[str, Any] = {}
    for key, parameter in parameters.items():
        if isinstance(parameter, np.ndarray):
            array = np.array(parameter, dtype_of(norm.x.type).numpy)
            weights.append(graph.add_weight(derived(root.results[0], key), array))
            parameter = weights[-1].results[0]
        values[key] = parameter
    return [*weights, dataclasses.replace(norm, **values).make()]


def _sole_norm(value: SSAValue) -> AffineNorm | None:
    for kind in (top.LayerNorm, top.RMSNorm, top.InstanceNorm, top.GroupNorm):
        norm = sole_producer(value, kind)
        if norm is not None:
            return norm
    return None


def _finish(rewriter: PatternRewriter, op: TopOp, new: Sequence[TopOp]) -> None:
    for weight in new[:-1]:
        insert(rewriter, weight)
    replace(rewriter, op, new[-1])


class SumToMean(GraphPattern):
    """mul(sum(x), 1/n) → mean(x), for n the number of elements that are added"""

    @rewrites
    def match_and_rewrite(self, op: top.Mul | top.Div, rewriter: PatternRewriter) -> None:
        """Nothing else uses the sum."""
        before = sole_producer(op.a, top.Reduce)
        number = uniform(self.graph, op.b)
        if before is None or not number or before.kind != "sum" or has_relu(op) or not is_float(op.y):
            return
        count = math.prod(shape_of(before.x)) / max(1, math.prod(shape_of(before.y)))
        factor = number if isinstance(op, top.Mul) else 1 / number
        if before.y.type == op.y.type and is_close(factor * count, 1.0, 1e-6):
            mean_of = top.Reduce.make(before.x, kind="mean", axes=before.axes, keepdims=before.keepdims)
            replace(rewriter, op, mean_of)


class AbsorbParameter(GraphPattern):
    """mul(norm(x), scale) and add(norm(x), bias) → norm(x, scale, bias)"""

    @rewrites
    def match_and_rewrite(self, op: top.Mul | top.Add, rewriter: PatternRewriter) -> None:
        """The norm has no other user and no such parameter yet."""
        if has_relu(op) or not is_float(op.y):
            return
        key = "scale" if isinstance(op, top.Mul) else "bias"
        for value, parameter in ((op.a, op.b), (op.b, op.a)):
            before = _sole_norm(value)
            if before is None or shape_of(value) != shape_of(op.y):
                continue
            norm = NormReading.of(self.graph, before)
            if norm.bias is not None or (key == "scale" and norm.scale is not None):
                continue
            if key == "bias" and norm.kind is top.RMSNorm:
                continue
            new = _with_parameters(self.graph, norm, {key: parameter}, op)
            if new is not None:
                _finish(rewriter, op, new)
                return


class NormBetweenReshapes(GraphPattern):
    """reshape(norm(reshape(x))) → norm(x) over other axes, or group_norm(x)"""

    @rewrites
    def match_and_rewrite(self, op: top.Reshape, rewriter: PatternRewriter) -> None:
        """The second reshape undoes the first."""
        inner = _sole_norm(op.x)
        before = sole_producer(inner.x, top.Reshape) if inner is not None else None
        if inner is None or before is None or not is_float(op.y):
            return
        norm = NormReading.of(self.graph, inner)
        if before.x.type == op.y.type:
            new = (
                self._with_channels_kept(norm, before.x)
                or self._grouped(norm, before.x, op)
                or self._over_other_axes(norm, before.x, op)
            )
        else:
            new = self._grouped(norm, before.x, op)
        if new is not None:
            _finish(rewriter, op, new)

    def _with_channels_kept(self, inner: NormReading, value: SSAValue) -> Sequence[TopOp] | None:
        """Only spatial axes are reshaped, and those are all alike to the norm."""
        if inner.is_trailing or shape_of(value)[:2] != shape_of(inner.x)[:2] or len(shape_of(value)) < 3:
            return None
        return [dataclasses.replace(inner, x=value).make()]

    def _grouped(self, inner: NormReading, value: SSAValue, op: top.Reshape) -> Sequence[TopOp] | None:
        """Each group of channels is one channel inside: its parameters hold for all channels of the group.

        If the last shape is not that of the value, the value is reshaped to it first.
        """
        shape, folded = op.shape, shape_of(inner.x)
        norm = next((norm for norm in inner.readings() if norm.kind is top.InstanceNorm), None)
        if norm is None or len(folded) < 3 or len(shape) < 3:
            return None
        groups = folded[1]
        if folded[0] != shape[0] or groups == 0 or shape[1] % groups:
            return None
        if shape_of(value) != shape and groups == shape[1]:
            return None
        parameters: dict[str, SSAValue | np.ndarray[Any, Any] | None] = {}
        for key, parameter in (("scale", norm.scale), ("bias", norm.bias)):
            array = self.graph.constant(parameter)
            if array is None and parameter is not None:
                return None
            parameters[key] = None if array is None else np.repeat(array, shape[1] // groups)
        first: list[TopOp] = []
        if shape_of(value) != shape:
            first = [top.Reshape.make(value, shape=shape, loc=derived_location(op, "channels"))]
            value = first[0].results[0]
        epsilon = norm.properties["epsilon"]
        outer = NormReading(top.GroupNorm, value, {"epsilon": epsilon, "groups": groups})
        if groups == shape[1]:
            outer = NormReading(top.InstanceNorm, value, {"epsilon": epsilon})
        return [*first, *_made(self.graph, outer, parameters, op)]

    def _over_other_axes(
        self, inner: NormReading, value: SSAValue, op: top.Reshape
    ) -> Sequence[TopOp] | None:
        """The normalized axes are the last ones inside; as many elements must be the last axes outside."""
        if not inner.is_trailing:
            return None
        shape = shape_of(value)
        count = math.prod(shape_of(inner.x)[inner.first_axis :])
        first = len(shape) - 1
        while first > 0 and math.prod(shape[first:]) < count:
            first -= 1
        if math.prod(shape[first:]) != count:
            return None
        parameters: dict[str, SSAValue | np.ndarray[Any, Any] | None] = {}
        for key, parameter in (("scale", inner.scale), ("bias", inner.bias)):
            if parameter is None or shape_of(parameter) == shape[first:]:
                parameters[key] = parameter
                continue
            array = self.graph.constant(parameter)
            if array is None:
                return None
            parameters[key] = array.reshape(shape[first:])
        outer = NormReading(inner.kind, value, {**inner.properties, "axis": first - len(shape)})
        return _made(self.graph, outer, parameters, op)


@register_pass
@dataclass(frozen=True)
class RecognizeNorms(Pass):
    """Normalizations spelled out in primitives become one op."""

    name: ClassVar[str] = "recognize-norms"

    def run(self, graph: Graph) -> None:
        """The norm itself first, then what may be absorbed into it."""
        patterns = [
            SumToMean(graph),
            FormulaPattern(graph, RULES),
            AbsorbParameter(graph),
            NormBetweenReshapes(graph),
        ]
        apply_patterns(graph, patterns)
