"""Ops that return their operand as it is go.

    %y = top.reshape(%x) {shape = <the shape of x>}        %y is %x
    permute, slice, pad, expand, tile, concat of one, split into one, cast to the same type, resize to the same size,
    pools of one pixel, add 0, mul 1, clip without bounds, relu of what cannot be negative, dropout, identity
                                                                                                  →  the same

A reduction over axes of size 1 is a reshape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from xdsl.ir import Operation, SSAValue

from npuc.ir.definition import TopOp, normal_axis
from npuc.ir.dtypes import is_static, shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import (
    Add,
    AvgPool,
    Cast,
    Clip,
    Concat,
    DepthToSpace,
    Div,
    Expand,
    LeakyRelu,
    Max,
    MaxPool,
    Min,
    Mul,
    Onnx,
    Pad,
    Permute,
    Reduce,
    Relu,
    Reshape,
    Resize,
    Scale,
    ShuffleChannel,
    Slice,
    SpaceToDepth,
    Split,
    Sub,
    Tile,
)
from npuc.transform.patterns import (
    GraphPattern,
    has_relu,
    is_float,
    remake,
    replace,
    replace_with_value,
    scalar_operand,
    uniform,
)
from npuc.transform.signs import not_negative

_SAME_COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
)


def _slice(graph: Graph, op: Slice) -> SSAValue | None:
    forward = all(step == 1 or n == 1 for step, n in zip(op.steps, op.shape, strict=True))
    return op.x if forward and shape_of(op.x) == op.shape else None


def _same_shape(graph: Graph, op: Any) -> SSAValue | None:
    return op.x if op.x.type == op.results[0].type else None


def _permute(graph: Graph, op: Permute) -> SSAValue | None:
    return op.x if op.order == tuple(range(len(op.order))) else None


def _pad(graph: Graph, op: Pad) -> SSAValue | None:
    return None if any(op.pads) else op.x


def _tile(graph: Graph, op: Tile) -> SSAValue | None:
    return op.x if all(count == 1 for count in op.repeats) else None


def _concat(graph: Graph, op: Concat) -> SSAValue | None:
    return op.inputs[0] if len(op.inputs) == 1 else None


def _split(graph: Graph, op: Split) -> SSAValue | None:
    return op.x if len(op.sizes) == 1 else None


def _resize(graph: Graph, op: Resize) -> SSAValue | None:
    """At the same size every coordinate falls on a pixel, in all modes but one made for TensorFlow's rounding."""
    same = shape_of(op.x) == op.sizes and all(scale == 1 for scale in op.scales)
    return op.x if same and op.coordinates in _SAME_COORDINATES else None


def _pool(graph: Graph, op: AvgPool | MaxPool) -> SSAValue | None:
    trivial = all(n == 1 for n in (*op.kernel, *op.strides)) and not any(op.pads)
    return op.x if trivial else None


def _block(graph: Graph, op: DepthToSpace | SpaceToDepth) -> SSAValue | None:
    return op.x if op.block == 1 else None


def _shuffle(graph: Graph, op: ShuffleChannel) -> SSAValue | None:
    return op.x if op.group in (1, shape_of(op.x)[1]) else None


def _neutral(graph: Graph, op: Add | Mul) -> SSAValue | None:
    operand = scalar_operand(graph, op) if is_float(op.y) else None
    return operand[0] if operand is not None and operand[1] == (0 if isinstance(op, Add) else 1) else None


def _neutral_second(graph: Graph, op: Sub | Div) -> SSAValue | None:
    if not is_float(op.y) or shape_of(op.a) != shape_of(op.y):
        return None
    return op.a if uniform(graph, op.b) == (0 if isinstance(op, Sub) else 1) else None


def _scale(graph: Graph, op: Scale) -> SSAValue | None:
    return op.x if uniform(graph, op.scale) == 1 and uniform(graph, op.bias) == 0 else None


def _clip(graph: Graph, op: Clip) -> SSAValue | None:
    return op.x if op.min == -math.inf and op.max == math.inf else None


def _leaky(graph: Graph, op: LeakyRelu) -> SSAValue | None:
    return op.x if op.alpha == 1 else None


def _extremum(graph: Graph, op: Max | Min) -> SSAValue | None:
    return op.a if op.a is op.b else None


def _relu(graph: Graph, op: Relu) -> SSAValue | None:
    return op.x if op.limit <= 0 and is_float(op.x) and not_negative(op.x) else None


_RULES: dict[type[TopOp], Callable[[Graph, Any], SSAValue | None]] = {
    Reshape: _same_shape,
    Expand: _same_shape,
    Cast: _same_shape,
    Permute: _permute,
    Slice: _slice,
    Pad: _pad,
    Tile: _tile,
    Concat: _concat,
    Split: _split,
    Resize: _resize,
    AvgPool: _pool,
    MaxPool: _pool,
    DepthToSpace: _block,
    SpaceToDepth: _block,
    ShuffleChannel: _shuffle,
    Add: _neutral,
    Mul: _neutral,
    Sub: _neutral_second,
    Div: _neutral_second,
    Scale: _scale,
    Clip: _clip,
    Relu: _relu,
    LeakyRelu: _leaky,
    Max: _extremum,
    Min: _extremum,
}


class RemoveIdentity(GraphPattern):
    """An op that returns its operand is replaced by it; a fused relu remains."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        """By the rule of its kind."""
        rule = _RULES.get(type(op))  # type: ignore[arg-type]
        value = rule(self.graph, op) if rule is not None else None
        if value is None:
            return
        if has_relu(op):
            replace(rewriter, op, Relu.make(value, limit=cast(Any, op).relu_limit))
        else:
            replace_with_value(rewriter, op, value)


class RemoveOnnxIdentity(GraphPattern):
    """Identity, and Dropout at inference."""

    @rewrites
    def match_and_rewrite(self, op: Onnx, rewriter: PatternRewriter) -> None:
        """A mask that somebody uses keeps a dropout; so does a training mode that is not known to be off."""
        if op.domain not in ("", "ai.onnx") or op.op_type not in ("Identity", "Dropout") or op.captures:
            return
        if op.op_type == "Dropout" and len(op.arguments) > 2 and op.arguments[2] >= 0:
            training = self.graph.constant(op.operands[op.arguments[2]])
            if training is None or bool(training.any()):
                return
        value = op.operands[op.arguments[0]]
        if op.results[0].type != value.type or op.outputs_used[0] != 0:
            return
        if all(result.first_use is None for result in op.results[1:]):
            replace_with_value(rewriter, op, [value] * len(op.results))


class ReduceToReshape(GraphPattern):
    """A reduction over axes of size 1, or none, only reshapes."""

    @rewrites
    def match_and_rewrite(self, op: Reduce, rewriter: PatternRewriter) -> None:
        """Of the kinds that return a lone value as it is."""
        shape = shape_of(op.x)
        alone = all(shape[normal_axis(axis, len(shape))] == 1 for axis in op.axes)
        if alone and op.kind in ("mean", "sum", "max", "min", "prod") and is_static(op.x):
            replace(rewriter, op, Reshape.make(op.x, shape=shape_of(op.y)))


class DropEmptyParts(GraphPattern):
    """concat without the operands that have no elements"""

    @rewrites
    def match_and_rewrite(self, op: Concat, rewriter: PatternRewriter) -> None:
        """At least one operand stays."""
        axis = normal_axis(op.axis, len(shape_of(op.y)))
        parts = [value for value in op.inputs if shape_of(value)[axis] != 0]
        if 0 < len(parts) < len(op.inputs):
            replace(rewriter, op, remake(op, parts))


@register_pass
@dataclass(frozen=True)
class RemoveIdentities(Pass):
    """Remove ops that return their operand."""

    name: ClassVar[str] = "remove-identities"

    def run(self, graph: Graph) -> None:
        """All rules together."""
        patterns = [
            RemoveOnnxIdentity(graph),
            DropEmptyParts(graph),
            ReduceToReshape(graph),
            RemoveIdentity(graph),
        ]
        apply_patterns(graph, patterns)
