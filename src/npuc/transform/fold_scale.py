"""Multiplications and additions by constants go into the convolution or matrix product beside them.

    %0 = top.conv(%x, %w, %b)                  %y = top.conv(%x, %w', %b')
    %y = top.scale(%0, %s, %t)        →        w' = w * s, b' = b * s + t   (a row of w an output channel)

    %0 = top.scale(%x, %s, %t)                 %y = top.conv(%x, %w', %b')
    %y = top.conv(%0, %w, %b)         →        w' = w * s, b' = b + Σ w * t (a column of w an input channel)

The second only where no padding takes part, because a border of zeros was not scaled: t is 0 or all pads are. Scales
that find no such neighbour merge with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue

from npuc.arrays import Array
from npuc.ir.definition import ShapeError, TopOp, broadcast
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Add, Conv, Deconv, Div, MatMul, Mul, Neg, Scale, Sub, Unary
from npuc.transform.affine import Affine, affine_of
from npuc.transform.patterns import (
    GraphPattern,
    activation_of,
    derived,
    exact,
    has_one_use,
    has_relu,
    insert_weight,
    is_float,
    remake,
    replace,
)

Linear = Conv | Deconv | MatMul
Spelled = Unary | Mul | Add | Sub | Div
"""The ops that `affine_of` may know; of the unary ones, `scale` and `neg`."""


def scale_outputs(op: Linear, weight: Array, factor: Array) -> Array:
    """The weight of an op that multiplies its output channels by `factor`."""
    if isinstance(op, Conv):
        return weight * factor.reshape((-1,) + (1,) * (weight.ndim - 1))
    if isinstance(op, Deconv):
        grouped = weight.reshape((op.group, weight.shape[0] // op.group, *weight.shape[1:]))
        scaled = grouped * factor.reshape((op.group, 1, -1) + (1,) * (weight.ndim - 2))
        return scaled.reshape(weight.shape)
    return weight * (factor[:, None] if op.transpose_b else factor)


def scale_inputs(op: Linear, weight: Array, factor: Array) -> Array:
    """The weight of an op that first multiplies its input channels by `factor`."""
    if isinstance(op, Conv):
        grouped = weight.reshape((op.group, weight.shape[0] // op.group, *weight.shape[1:]))
        scaled = grouped * factor.reshape((op.group, 1, -1) + (1,) * (weight.ndim - 2))
        return scaled.reshape(weight.shape)
    if isinstance(op, Deconv):
        return weight * factor.reshape((-1,) + (1,) * (weight.ndim - 1))
    return weight * (factor if op.transpose_b else factor[:, None])


def offset_inputs(op: Conv | MatMul, weight: Array, offset: Array) -> Array:
    """What a constant `offset` of the input channels adds to each output channel, without padding."""
    if isinstance(op, Conv):
        taps = weight.reshape((*weight.shape[:2], -1)).sum(axis=2)
        grouped = taps.reshape((op.group, -1, weight.shape[1]))
        added: Array = np.einsum("goi,gi->go", grouped, offset.reshape((op.group, -1)))
        return added.reshape(-1)
    product: Array = weight @ offset if op.transpose_b else offset @ weight
    return product


def linear_before(value: SSAValue) -> Linear | None:
    """The convolution or matrix product that computes a value for one use, without a relu."""
    op = value.op if isinstance(value, OpResult) else None
    if isinstance(op, Conv | Deconv | MatMul) and has_one_use(value) and not op.relu and is_float(value):
        return op
    return None


class IntoProducer(GraphPattern):
    """conv + scale → conv, and matmul + scale → matmul, of which an added bias is the simplest case."""

    may_multiply: ClassVar[bool] = True

    @rewrites
    def match_and_rewrite(self, op: Spelled, rewriter: PatternRewriter) -> None:
        """The op before has no other use, and its parameters are constants."""
        before = next(
            (producer for value in op.operands if (producer := linear_before(value)) is not None), None
        )
        affine = affine_of(self.graph, op) if before is not None else None
        if affine is None or before is None or affine.x is not before.results[0]:
            return
        vectors = affine.along(-1 if isinstance(before, MatMul) else 1)
        if vectors is None:
            return
        factor, offset = vectors
        weight_value: SSAValue = before.operands[1]
        scaled: Array | None = None
        if not affine.only_adds:
            weight = exact(self.graph, weight_value) if self.may_multiply else None
            if weight is None:
                return
            scaled = _rounded(scale_outputs(before, weight, factor), weight_value)
            if scaled is None:
                return
        bias = exact(self.graph, before.bias) if before.bias is not None else np.zeros(())
        if bias is None:
            return
        new_bias = _rounded(np.broadcast_to(bias * factor + offset, offset.shape), before.results[0])
        if new_bias is None:
            return
        if scaled is not None:
            weight_value = insert_weight(self.graph, rewriter, derived(op.results[0], "weight"), scaled)
        bias_value: SSAValue | None = before.bias
        if before.bias is not None or not affine.only_multiplies:
            bias_value = insert_weight(self.graph, rewriter, derived(op.results[0], "bias"), new_bias)
        new = remake(before, before.operands[0], weight_value, bias_value, **activation_of(op))
        replace(rewriter, op, new)


class BiasIntoProducer(IntoProducer):
    """The case that only adds: it costs nothing and never touches a weight."""

    may_multiply: ClassVar[bool] = False


class IntoConsumer(GraphPattern):
    """scale + conv → conv, and scale + matmul → matmul."""

    @rewrites
    def match_and_rewrite(self, op: Conv | Deconv | MatMul, rewriter: PatternRewriter) -> None:
        """The scale has no other use and no relu."""
        value = op.operands[0]
        before = value.op if isinstance(value, OpResult) else None
        if before is None or not has_one_use(value) or has_relu(before) or not is_float(value):
            return
        affine = affine_of(self.graph, before)
        vectors = affine.along(-1 if isinstance(op, MatMul) else 1) if affine is not None else None
        weight = exact(self.graph, op.operands[1]) if vectors is not None else None
        if affine is None or vectors is None or weight is None:
            return
        factor, offset = vectors
        bias_value: SSAValue | None = op.bias
        new_bias: Array | None = None
        if not affine.only_multiplies:
            bias = exact(self.graph, op.bias) if op.bias is not None else np.zeros(())
            if bias is None or isinstance(op, Deconv) or not _takes_offset(op, weight):
                return
            new_bias = _rounded(bias + offset_inputs(op, weight, offset), op.results[0])
            if new_bias is None:
                return
        scaled = None if affine.only_adds else _rounded(scale_inputs(op, weight, factor), op.operands[1])
        if not affine.only_adds and scaled is None:
            return
        weight_value = op.operands[1]
        if scaled is not None:
            weight_value = insert_weight(self.graph, rewriter, derived(op.results[0], "weight"), scaled)
        if new_bias is not None:
            bias_value = insert_weight(self.graph, rewriter, derived(op.results[0], "bias"), new_bias)
        replace(rewriter, op, remake(op, affine.x, weight_value, bias_value))


def _takes_offset(op: Conv | MatMul, weight: Array) -> bool:
    return not any(op.pads) if isinstance(op, Conv) else weight.ndim == 2


def _rounded(array: Array, like: SSAValue) -> Array | None:
    """The array in the element type of a value; None where that cannot hold it."""
    from npuc.transform.patterns import dtype

    with np.errstate(over="ignore"):
        out: Array = np.asarray(array).astype(dtype(like).numpy)
    return out if bool(np.isfinite(out).all()) else None


class MergeScales(GraphPattern):
    """Two affine ops in a row are one: a product, a sum, or a per-channel scale."""

    @rewrites
    def match_and_rewrite(self, op: Spelled, rewriter: PatternRewriter) -> None:
        """The first has no other use and no relu."""
        first = next((value.op for value in op.operands if _may_merge(value)), None)  # type: ignore[attr-defined]
        second = affine_of(self.graph, op) if first is not None else None
        affine = affine_of(self.graph, first) if second is not None else None
        if affine is None or second is None or second.x is not affine.op.results[0]:
            return
        try:
            shapes = [broadcast(affine.factor.shape, second.factor.shape)]
            shapes.append(broadcast(affine.offset.shape, second.factor.shape, second.offset.shape))
        except ShapeError:
            return
        largest = max(a.size for a in (affine.factor, affine.offset, second.factor, second.offset))
        if any(np.prod(shape, dtype=np.int64) > largest for shape in shapes):
            return
        factor = affine.factor * second.factor
        offset = affine.offset * second.factor + second.offset
        make = _spelling(Affine(op, affine.x, factor, offset))
        if make is not None:
            make(self.graph, rewriter, op)


def _may_merge(value: SSAValue) -> bool:
    if not isinstance(value, OpResult) or not has_one_use(value):
        return False
    return isinstance(value.op, Scale | Neg | Mul | Add | Sub | Div) and not has_relu(value.op)


Spell = Callable[[Graph, PatternRewriter, Operation], None]


def _spelling(affine: Affine) -> Spell | None:
    """How to write an affine function as one op; None if there is no such op."""
    like = affine.x
    factor, offset = _rounded(_smallest(affine.factor), like), _rounded(_smallest(affine.offset), like)
    if factor is None or offset is None:
        return None
    vectors = affine.along(1) if len(affine.shape) >= 2 else None

    def write(graph: Graph, rewriter: PatternRewriter, op: Operation) -> None:
        def weight(what: str, array: Array) -> SSAValue:
            return insert_weight(graph, rewriter, derived(op.results[0], what), array, like)

        new: TopOp
        if affine.only_multiplies:
            new = Mul.make(affine.x, weight("scale", factor), **activation_of(op))
        elif affine.only_adds:
            new = Add.make(affine.x, weight("bias", offset), **activation_of(op))
        else:
            assert vectors is not None
            scale, bias = weight("scale", vectors[0]), weight("bias", vectors[1])
            new = Scale.make(affine.x, scale, bias, **activation_of(op))
        replace(rewriter, op, new)

    possible = affine.only_multiplies or affine.only_adds or vectors is not None
    return write if possible else None


def _smallest(array: Array) -> Array:
    """A constant of one repeated number is kept as that number."""
    flat = array.reshape(-1)
    return flat[0].reshape(()) if flat.size > 1 and bool((flat == flat[0]).all()) else array


@register_pass
@dataclass(frozen=True)
class FoldScale(Pass):
    """Affine ops into their neighbours."""

    name: ClassVar[str] = "fold-scale"

    def run(self, graph: Graph) -> None:
        """First with each other, so that a large weight is rewritten once for a chain of them."""
        apply_patterns(graph, [MergeScales(graph)])
        apply_patterns(graph, [IntoProducer(graph)])
        apply_patterns(graph, [IntoConsumer(graph), IntoProducer(graph), MergeScales(graph)])
