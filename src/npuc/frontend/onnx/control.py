"""Control flow that is known at compile time: `If` is folded, `Loop` and `Scan` are unrolled.

What depends on data stays a `top.onnx` op with its subgraphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.scope import Meaning, NodeContext, OnnxScope
from npuc.ir import Value, Weight, is_static, shape_of, top
from npuc.ir.definition import normal_axis

RunBody = Callable[[onnx.GraphProto, OnnxScope], None]
_MAX_NODES = 50_000
"""An unrolled loop may become this many nodes; a larger one is not unrolled."""


def _body(
    ctx: NodeContext, graph: onnx.GraphProto, tag: str, inputs: Sequence[Meaning], run: RunBody
) -> list[Meaning]:
    """Import a subgraph in place; returns what its outputs mean."""
    if len(inputs) > len(graph.input):
        raise InvalidModelError(
            f"{ctx.node.label}: its subgraph takes {len(graph.input)} inputs, not {len(inputs)}"
        )
    scope = ctx.scope.child(tag)
    for info, given in zip(graph.input, inputs, strict=False):
        scope.define(info.name, given)
    run(graph, scope)
    outputs = []
    for info in graph.output:
        meaning = scope.lookup(info.name)
        if meaning is None:
            raise InvalidModelError(
                f"{ctx.node.label}: the output '{info.name}' of its subgraph is not defined"
            )
        outputs.append(meaning)
    return outputs


def _meanings(ctx: NodeContext, first: int) -> list[Meaning]:
    meanings = []
    for index, name in list(enumerate(ctx.node.inputs))[first:]:
        if not name:
            raise NoTopForm(f"its input {index} is left out")
        meaning = ctx.scope.lookup(name)
        if meaning is None:
            raise InvalidModelError(f"{ctx.node.label}: its input '{name}' is not defined anywhere before it")
        meanings.append(meaning)
    return meanings


def _size(graph: onnx.GraphProto) -> int:
    return max(1, len(graph.node)) + sum(
        _size(attribute.g) for node in graph.node for attribute in node.attribute if attribute.HasField("g")
    )


def _check_size(ctx: NodeContext, trips: int, graph: onnx.GraphProto) -> None:
    if trips * _size(graph) > _MAX_NODES:
        raise NoTopForm(f"its {trips} iterations are too many to unroll")


def fold_if(ctx: NodeContext, run: RunBody) -> list[Meaning]:
    """The branch that a constant condition takes."""
    condition = ctx.known(0, "condition")
    name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return _body(ctx, ctx.node.graph(name), "", [], run)


def _stack(ctx: NodeContext, parts: list[Meaning], axis: int) -> Meaning:
    """Per-iteration values joined along a new axis."""
    values = []
    for part in parts:
        value = ctx.scope.value(part)
        if not is_static(value):
            raise NoTopForm("a scanned value has a shape that depends on data")
        shape = shape_of(value)
        at = normal_axis(axis, len(shape) + 1)
        values.append(ctx.emit(top.Reshape, value, shape=(*shape[:at], 1, *shape[at:])).y)
    return values[0] if len(values) == 1 else ctx.emit(top.Concat, values, axis=axis).y


def unroll_loop(ctx: NodeContext, run: RunBody) -> list[Meaning]:
    """A `Loop` with a constant trip count whose condition stays constant."""
    body = ctx.node.graph("body")
    trips = int(ctx.known(0, "trip count").reshape(-1)[0]) if ctx.has(0) else None
    going = bool(ctx.known(1, "condition").reshape(-1)[0]) if ctx.has(1) else True
    carried: list[Meaning] = []
    for index in range(2, len(ctx.node.inputs)):
        meaning = ctx.scope.lookup(ctx.node.inputs[index])
        if meaning is None:
            raise InvalidModelError(f"{ctx.node.label}: its input '{ctx.node.inputs[index]}' is not defined")
        carried.append(meaning)
    if len(body.output) <= len(carried):
        raise InvalidModelError(
            f"{ctx.node.label}: its body has {len(body.output)} outputs, not {len(carried) + 1} or more"
        )
    if trips is not None:
        _check_size(ctx, max(0, trips), body)
    scanned: list[list[Meaning]] = [[] for _ in body.output[1 + len(carried) :]]
    count = 0
    while going and (trips is None or count < trips):
        start = [Weight.of(np.array(count, np.int64)), Weight.of(np.array(True))]
        outputs = _body(
            ctx, body, f"{ctx.node.proto.name or ctx.node.op_type}[{count}]/", [*start, *carried], run
        )
        condition = outputs[0]
        if not isinstance(condition, Weight):
            raise NoTopForm("its condition is computed at run time")
        going = bool(condition.array().reshape(-1)[0])
        carried = outputs[1 : 1 + len(carried)]
        for parts, part in zip(scanned, outputs[1 + len(carried) :], strict=True):
            parts.append(part)
        count += 1
        if trips is None:
            _check_size(ctx, count, body)
    if scanned and not count:
        raise NoTopForm("it runs no iteration")
    return [*carried, *(_stack(ctx, parts, 0) for parts in scanned)]


@dataclass(frozen=True)
class _ScanPlan:
    """How a `Scan` walks: the axis and the direction of each scanned input and output."""

    body: onnx.GraphProto
    states: int
    in_axes: tuple[int, ...]
    in_back: tuple[int, ...]
    out_axes: tuple[int, ...]
    out_back: tuple[int, ...]


def _index(ctx: NodeContext, value: Value, axis: int, at: int) -> Value:
    """value[..., at, ...] along an axis, which disappears."""
    shape = shape_of(value)
    piece = ctx.emit(
        top.Slice,
        value,
        offset=tuple(at if i == axis else 0 for i in range(len(shape))),
        steps=(1,) * len(shape),
        shape=tuple(1 if i == axis else n for i, n in enumerate(shape)),
    ).y
    return ctx.emit(top.Reshape, piece, shape=tuple(n for i, n in enumerate(shape) if i != axis)).y


def _scan(
    ctx: NodeContext, run: RunBody, plan: _ScanPlan, meanings: list[Meaning], tag: str
) -> list[Meaning]:
    states = meanings[: plan.states]
    values = [ctx.scope.value(meaning) for meaning in meanings[plan.states :]]
    if not values or not all(is_static(value) for value in values):
        raise NoTopForm("the length of its inputs depends on data")
    axes = [normal_axis(axis, len(shape_of(value))) for axis, value in zip(plan.in_axes, values, strict=True)]
    lengths = {shape_of(value)[axis] for axis, value in zip(axes, values, strict=True)}
    if len(lengths) != 1:
        raise InvalidModelError(f"{ctx.node.label}: its inputs have different lengths {sorted(lengths)}")
    length = lengths.pop()
    _check_size(ctx, length, plan.body)
    scanned: list[list[Meaning]] = [[] for _ in plan.out_axes]
    if scanned and not length:
        raise NoTopForm("it runs no iteration")
    for step in range(length):
        slices: list[Meaning] = [
            _index(ctx, value, axis, length - 1 - step if back else step)
            for value, axis, back in zip(values, axes, plan.in_back, strict=True)
        ]
        outputs = _body(ctx, plan.body, f"{tag}[{step}]/", [*states, *slices], run)
        states = outputs[: plan.states]
        for parts, part in zip(scanned, outputs[plan.states :], strict=True):
            parts.append(part)
    joined = [
        _stack(ctx, parts[::-1] if back else parts, axis)
        for parts, axis, back in zip(scanned, plan.out_axes, plan.out_back, strict=True)
    ]
    return [*states, *joined]


def unroll_scan(ctx: NodeContext, run: RunBody) -> list[Meaning]:
    """A `Scan`: its length is a shape, and so is known. Opset 8 scans each sample of a batch by itself."""
    node = ctx.node
    body, count = node.graph("body"), node.int("num_scan_inputs")
    tag = node.proto.name or node.op_type
    batched = ctx.opset < 9
    if batched and ctx.has(0):
        raise NoTopForm("its sequences have lengths of their own")
    meanings = _meanings(ctx, 1 if batched else 0)
    states = len(meanings) - count
    outputs = len(body.output) - states
    if states < 0 or outputs < 0:
        raise InvalidModelError(f"{node.label}: its subgraph does not fit its inputs")
    plan = _ScanPlan(
        body,
        states,
        node.ints("scan_input_axes", (0,) * count),
        node.ints("directions" if batched else "scan_input_directions", (0,) * count),
        node.ints("scan_output_axes", (0,) * outputs),
        node.ints("scan_output_directions", (0,) * outputs),
    )
    if not batched:
        return _scan(ctx, run, plan, meanings, tag)
    values = [ctx.scope.value(meaning) for meaning in meanings]
    if not values or not all(is_static(value) and shape_of(value) for value in values):
        raise NoTopForm("the size of its batch depends on data")
    samples = []
    for sample in range(shape_of(values[0])[0]):
        own: list[Meaning] = [_index(ctx, value, 0, sample) for value in values]
        samples.append(_scan(ctx, run, plan, own, f"{tag}[{sample}]"))
    if not samples:
        raise NoTopForm("its batch is empty")
    return [_stack(ctx, list(parts), 0) for parts in zip(*samples, strict=True)]


CONTROL = {"If": fold_if, "Loop": unroll_loop, "Scan": unroll_scan}
