"""Control flow that is known at compile time: `If` is folded, `Loop` and `Scan` are unrolled.

What depends on data stays a `top.onnx` op with its subgraphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from npuc.errors import InvalidModelError, ResourceLimitError
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.scope import Meaning, NodeContext, Scope
from npuc.ir import Weight, dtype_of, is_static, shape_of, top
from npuc.ir.definition import normal_axis

RunBody = Callable[[onnx.GraphProto, Scope], None]
_MAX_NODES = 200_000
"""An unrolled loop may become this many nodes; a larger one is not unrolled."""


def _constant(array: np.ndarray) -> Weight:  # type: ignore[type-arg]
    return Weight(dtype_of(array.dtype), array.shape, array)


def _body(ctx: NodeContext, graph: onnx.GraphProto, tag: str, inputs: Sequence[Meaning], run: RunBody) -> list[Meaning]:
    """Import a subgraph in place; returns what its outputs mean."""
    if len(inputs) > len(graph.input):
        raise InvalidModelError(f"{ctx.node.label}: its subgraph takes {len(graph.input)} inputs, not {len(inputs)}")
    scope = ctx.scope.child(tag)
    for info, meaning in zip(graph.input, inputs, strict=False):
        scope.define(info.name, meaning)
    run(graph, scope)
    outputs = []
    for info in graph.output:
        meaning = scope.lookup(info.name)
        if meaning is None:
            raise InvalidModelError(f"{ctx.node.label}: the output '{info.name}' of its subgraph is not defined")
        outputs.append(meaning)
    return outputs


def _meanings(ctx: NodeContext) -> list[Meaning]:
    found = []
    for index, name in enumerate(ctx.node.inputs):
        if not name:
            raise NoTopForm(f"its input {index} is left out")
        meaning = ctx.scope.lookup(name)
        if meaning is None:
            raise InvalidModelError(f"{ctx.node.label}: its input '{name}' is not defined anywhere before it")
        found.append(meaning)
    return found


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
    return values[0] if len(values) == 1 else ctx.emit(top.Concat, values, axis=axis).y  # type: ignore[no-any-return]


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
    if trips is not None:
        _check_size(ctx, max(0, trips), body)
    scanned: list[list[Meaning]] = [[] for _ in body.output[1 + len(carried) :]]
    count = 0
    while going and (trips is None or count < trips):
        start = [_constant(np.array(count, np.int64)), _constant(np.array(True))]
        outputs = _body(ctx, body, f"{ctx.node.proto.name or ctx.node.op_type}[{count}]/", [*start, *carried], run)
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


def unroll_scan(ctx: NodeContext, run: RunBody) -> list[Meaning]:
    """A `Scan`: its length is a shape, and so is known."""
    node = ctx.node
    if ctx.opset < 9:
        raise NoTopForm("its old form has a batch axis")
    body = node.graph("body")
    count = node.int("num_scan_inputs")
    meanings = _meanings(ctx)
    states, inputs = meanings[: len(meanings) - count], meanings[len(meanings) - count :]
    outputs_scanned = len(body.output) - len(states)
    in_axes = node.ints("scan_input_axes", (0,) * count)
    out_axes = node.ints("scan_output_axes", (0,) * outputs_scanned)
    in_back = node.ints("scan_input_directions", (0,) * count)
    out_back = node.ints("scan_output_directions", (0,) * outputs_scanned)
    values = [ctx.scope.value(meaning) for meaning in inputs]
    if not values or not all(is_static(value) for value in values):
        raise NoTopForm("the length of its inputs depends on data")
    axes = [normal_axis(axis, len(shape_of(value))) for axis, value in zip(in_axes, values, strict=True)]
    lengths = {shape_of(value)[axis] for axis, value in zip(axes, values, strict=True)}
    if len(lengths) != 1:
        raise InvalidModelError(f"{node.label}: its inputs have different lengths {sorted(lengths)}")
    length = lengths.pop()
    _check_size(ctx, length, body)
    if length > 100_000:
        raise ResourceLimitError(f"{node.label}: {length} iterations")
    scanned: list[list[Meaning]] = [[] for _ in range(outputs_scanned)]
    for step in range(length):
        slices: list[Meaning] = []
        for value, axis, back in zip(values, axes, in_back, strict=True):
            shape = shape_of(value)
            at = length - 1 - step if back else step
            piece = ctx.emit(
                top.Slice,
                value,
                offset=tuple(at if i == axis else 0 for i in range(len(shape))),
                steps=(1,) * len(shape),
                shape=tuple(1 if i == axis else n for i, n in enumerate(shape)),
            ).y
            slices.append(ctx.emit(top.Reshape, piece, shape=tuple(n for i, n in enumerate(shape) if i != axis)).y)
        outputs = _body(ctx, body, f"{node.proto.name or node.op_type}[{step}]/", [*states, *slices], run)
        states = outputs[: len(states)]
        for parts, part in zip(scanned, outputs[len(states) :], strict=True):
            parts.append(part)
    if scanned and not length:
        raise NoTopForm("it runs no iteration")
    joined = []
    for parts, axis, back in zip(scanned, out_axes, out_back, strict=True):
        joined.append(_stack(ctx, parts[::-1] if back else parts, axis))
    return [*states, *joined]


CONTROL = {"If": fold_if, "Loop": unroll_loop, "Scan": unroll_scan}
