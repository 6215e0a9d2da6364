"""Recurrent layers, over whole sequences.

Their second bottom says, for every step and sequence, whether the sequence goes on (1) or begins anew (0). Where it is
absent, or a constant that lets every sequence run on, the layer is one op; else it is unrolled, step by step.

Two layers come from branches of Caffe: `Lstm` of caffe-lstm, which has steps and sequences on one axis, and
`ContinuationIndicator` of warpctc-caffe, the marks of sequences that begin at the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top

_MAX_STEPS = 512
_MAX_STATE = 1 << 24


def _sequence(ctx: CaffeContext) -> Value:
    """The input as T x N x features."""
    steps, batch, *rest = ctx.shape()
    return ctx.reshape(ctx.value(), (steps, batch, prod(rest)))


def _goes_on(ctx: CaffeContext, first: int = 1) -> bool:
    """True if no sequence begins at step `first` or later."""
    if ctx.count < 2:
        return True
    known = ctx.scope.graph.constant(ctx.value(1))
    return known is not None and bool((known[first:] == 1).all())


def _static(ctx: CaffeContext, hidden_bottoms: int) -> Value | None:
    """The input that every step gets, if there is one."""
    return ctx.value(2) if ctx.count > 2 + hidden_bottoms else None


def _with_static(ctx: CaffeContext, x: Value, static: Value) -> Value:
    steps, batch, _ = shape_of(x)
    flat = ctx.reshape(static, (1, batch, prod(shape_of(static)) // batch))
    return ctx.emit(top.Concat, [x, ctx.emit(top.Tile, flat, repeats=(steps, 1, 1))], axis=2)


def _weights(ctx: CaffeContext, rows: int, x: Value, static: Value | None) -> tuple[Array, Array, int]:
    """Weight of the input (with that of the constant part beside it), bias, and the next blob."""
    weight, bias = ctx.array(0, (rows, shape_of(x)[2])), ctx.array(1, (rows,), "bias")
    if static is None:
        return weight, bias, 2
    batch = shape_of(x)[1]
    return np.concatenate([weight, ctx.array(2, (rows, prod(shape_of(static)) // batch))], axis=1), bias, 3


def _step(ctx: CaffeContext, value: Value, t: int) -> Value:
    """Step t of T x N x ..., as N x ..."""
    shape = shape_of(value)
    return ctx.reshape(ctx.part(value, 0, t, 1), shape[1:])


@rule("LSTM")
def lstm(ctx: CaffeContext) -> list[Value]:
    """With sequence marks, a constant input and exposed states; at most 512 steps where marks are not constant."""
    given = ctx.parameters("recurrent_param")
    hidden = given.int("num_output")
    exposed = given.bool("expose_hidden")
    x = _sequence(ctx)
    static = _static(ctx, 2 if exposed else 0)
    steps, batch, _ = shape_of(x)
    weight, bias, place = _weights(ctx, 4 * hidden, x, static)
    recurrence = ctx.array(place, (4 * hidden, hidden))
    if static is not None:
        x = _with_static(ctx, x, static)
    if batch * hidden > _MAX_STATE:
        raise ctx.invalid(f"{batch} states of {hidden} numbers")
    states = (
        [ctx.reshape(ctx.value(ctx.count - 2 + i), (batch, hidden)) for i in range(2)]
        if exposed
        else [ctx.literal(np.zeros((batch, hidden), np.float32), "zero")] * 2
    )
    if _goes_on(ctx, 0 if exposed else 1):
        begun = [ctx.reshape(state, (1, batch, hidden)) for state in states]
        whole, last_h, last_c = _one_op(ctx, x, weight, recurrence, bias, begun)
        results = [ctx.reshape(whole, (steps, batch, hidden)), last_h, last_c]
        return results[: len(ctx.layer.outputs)]
    if steps > _MAX_STEPS:
        raise NoForm(f"it would be unrolled into {steps} steps")
    w, r = ctx.literal(weight, "weight"), ctx.literal(recurrence, "recurrence")
    from_input = ctx.emit(top.MatMul, x, w, ctx.literal(bias, "bias"), transpose_b=True)
    marks = ctx.reshape(ctx.value(1), (steps, batch, 1))
    h, c = states
    outputs = []
    for t in range(steps):
        mark = _step(ctx, marks, t)
        kept = ctx.emit(top.Mul, h, mark)
        gates = ctx.emit(
            top.Add, _step(ctx, from_input, t), ctx.emit(top.MatMul, kept, r, None, transpose_b=True)
        )
        parts = ctx.emit_op(top.Split, gates, axis=1, sizes=[hidden] * 4).results
        i, f, o = (ctx.emit(top.Sigmoid, part) for part in parts[:3])
        old = ctx.emit(top.Mul, ctx.emit(top.Mul, f, c), mark)
        c = ctx.emit(top.Add, old, ctx.emit(top.Mul, i, ctx.emit(top.Tanh, parts[3])))
        h = ctx.emit(top.Mul, o, ctx.emit(top.Tanh, c))
        outputs.append(ctx.reshape(h, (1, batch, hidden)))
    joined = ctx.emit(top.Concat, outputs, axis=0) if steps > 1 else outputs[0]
    results = [joined, outputs[-1], ctx.reshape(c, (1, batch, hidden))]
    return results[: len(ctx.layer.outputs)]


def _one_op(
    ctx: CaffeContext, x: Value, weight: Array, recurrence: Array, bias: Array, states: Sequence[Value | None]
) -> Sequence[Value]:
    """The whole sequence, and the last states."""
    hidden = recurrence.shape[1]
    # Caffe's gates are i f o g, ONNX's i o f c.
    order = np.concatenate([np.arange(hidden) + g * hidden for g in (0, 2, 1, 3)])
    both = np.concatenate([bias[order], np.zeros(4 * hidden, np.float32)])
    weights = ((weight[order], "weight"), (recurrence[order], "recurrence"), (both, "bias"))
    constants = [ctx.literal(array[None], role) for array, role in weights]
    return ctx.emit_op(top.LSTM, x, *constants, None, *states, None, hidden=hidden).results


@rule("Lstm")
def lstm_of_a_batch(ctx: CaffeContext) -> Value:
    """Of caffe-lstm: steps times sequences on the first axis, `batch_size` sequences; it begins with a state of zeros."""
    given = ctx.parameters("lstm_param")
    hidden, batch = given.int("num_output"), given.int("batch_size", 1)
    rows, *rest = ctx.shape()
    if batch < 1 or rows % batch or batch * hidden > _MAX_STATE:
        raise ctx.invalid(f"{rows} steps of {batch} sequences with {hidden} states")
    steps, features = rows // batch, prod(rest)
    if ctx.count > 1:
        marks = ctx.scope.graph.constant(ctx.value(1))
        if marks is None or not (marks.reshape(steps, batch)[1:] != 0).all():
            raise NoForm("whether its sequences go on is computed at run time: --constant gives the marks")
    x = ctx.reshape(ctx.value(), (steps, batch, features))
    arrays = (
        ctx.array(0, (4 * hidden, features)),
        ctx.array(1, (4 * hidden, hidden)),
        ctx.array(2, (4 * hidden,), "bias"),
    )
    whole, *_ = _one_op(ctx, x, *arrays, (None, None))
    return ctx.reshape(whole, (rows, hidden))


@rule("ContinuationIndicator")
def continuation_indicator(ctx: CaffeContext) -> Value:
    """A constant: 0 at the first step, then 1."""
    given = ctx.parameters("continuation_indicator_param")
    steps, batch = given.int("time_step"), given.int("batch_size")
    if steps < 1 or batch < 1 or steps * batch > _MAX_STATE:
        raise ctx.invalid(f"{steps} steps of {batch} sequences")
    marks = np.ones((steps, batch), np.float32)
    marks[0] = 0
    return ctx.literal(marks, "marks")


@rule("RNN")
def rnn(ctx: CaffeContext) -> Value:
    """With tanh on state and output and a constant input; sequences that begin anew in the middle are not supported."""
    given = ctx.parameters("recurrent_param")
    hidden = given.int("num_output")
    if not _goes_on(ctx):
        raise NoForm("whether its sequences go on is computed at run time: --constant gives the marks")
    if given.bool("expose_hidden"):
        raise NoForm("its state is exposed")
    x = _sequence(ctx)
    static = _static(ctx, 0)
    steps, batch, _ = shape_of(x)
    weight, bias, place = _weights(ctx, hidden, x, static)
    if static is not None:
        x = _with_static(ctx, x, static)
    recurrence = ctx.weight(place, (1, hidden, hidden))
    both = np.concatenate([bias, np.zeros(hidden, np.float32)])[None]
    operands = [ctx.literal(weight[None], "weight"), recurrence, ctx.literal(both, "bias"), None, None]
    whole = ctx.emit_op(top.RNN, x, *operands, hidden=hidden).results[0]
    states = ctx.reshape(whole, (steps, batch, hidden))
    out = ctx.weight(place + 1, (hidden, hidden))
    y = ctx.emit(top.MatMul, states, out, ctx.weight(place + 2, (hidden,), "bias"), transpose_b=True)
    return ctx.emit(top.Tanh, y)
