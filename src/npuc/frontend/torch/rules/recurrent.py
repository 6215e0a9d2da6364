"""Recurrent layers: a layer of torch's stack is one op, both directions at once.

torch orders the gates of an LSTM i f g o and of a GRU r z n; the IR has i o f c and z r h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import Value, dtype_of, shape_of, top

_LSTM, _GRU, _RNN = (0, 3, 1, 2), (1, 0, 2), (0,)


def _ordered(array: Array, order: Sequence[int]) -> Array:
    parts = np.split(array, len(order))
    return np.concatenate([parts[gate] for gate in order])


def _layer(
    ctx: TorchContext, number: int, order: Sequence[int], directions: int, projects: bool
) -> tuple[Array, Array, Array | None, Array | None]:
    """Input weights, recurrent weights, biases and projections of a layer, a direction each."""
    params = ctx.args["params"]
    biases = ctx.flag("has_biases")
    each = (4 if biases else 2) + projects
    weights, recurrences, sums, projections = [], [], [], []
    for direction in range(directions):
        at = (number * directions + direction) * each
        group = [ctx.known(item, "weight").astype(np.float32) for item in params[at : at + each]]
        weights.append(_ordered(group[0], order))
        recurrences.append(_ordered(group[1], order))
        if biases:
            sums.append(np.concatenate([_ordered(group[2], order), _ordered(group[3], order)]))
        if projects:
            projections.append(group[-1])
    return (
        np.stack(weights),
        np.stack(recurrences),
        np.stack(sums) if biases else None,
        np.stack(projections) if projects else None,
    )


def _state(ctx: TorchContext, item: Any, number: int, directions: int) -> Value | None:
    """The first state of a layer; zeros are the default."""
    if ctx.is_constant(item) and not ctx.known(item).any():
        return None
    value = ctx.value(item, dtype_of("f32"))
    shape = shape_of(value)
    if shape[0] == directions:
        return value
    offset = (number * directions, 0, 0)
    return ctx.emit(top.Slice, value, offset=offset, steps=(1, 1, 1), shape=(directions, *shape[1:])).y


def _stack(
    ctx: TorchContext, kind: Any, order: Sequence[int], states: Sequence[Any], **more: Any
) -> list[Value]:
    """All layers: the sequence of the last, and the last states of every layer."""
    if "data" in ctx.args:
        raise NoTopForm("its sequences are packed")
    cells = ctx.integer("num_layers") * (1 + ctx.flag("bidirectional"))
    projects = len(ctx.args["params"]) == cells * (5 if ctx.flag("has_biases") else 3)
    x = ctx.value("input", dtype_of("f32"))
    first = ctx.flag("batch_first")
    if len(shape_of(x)) != 3:
        raise NoTopForm("its input has no batch axis")
    if first:
        x = ctx.permute(x, (1, 0, 2))
    directions = 2 if ctx.flag("bidirectional") else 1
    finals: list[list[Value]] = [[] for _ in states]
    for number in range(ctx.integer("num_layers")):
        weight, recurrence, bias, projection = _layer(ctx, number, order, directions, projects)
        begins = [_state(ctx, state, number, directions) for state in states]
        op = ctx.emit(
            kind,
            x,
            ctx.literal(weight, f"weight_l{number}"),
            ctx.literal(recurrence, f"recurrence_l{number}"),
            None if bias is None else ctx.literal(bias, f"bias_l{number}"),
            None,
            *begins,
            *([] if projection is None else [None, ctx.literal(projection, f"projection_l{number}")]),
            hidden=recurrence.shape[1] // len(order),
            direction="bidirectional" if directions == 2 else "forward",
            **more,
        )
        steps, _, batch, hidden = shape_of(op.parts[0])
        x = ctx.permute(op.parts[0], (0, 2, 1, 3)) if directions == 2 else op.parts[0]
        x = ctx.reshape(x, (steps, batch, directions * hidden))
        for index, final in enumerate(op.parts[1:]):
            finals[index].append(final)
    y = ctx.permute(x, (1, 0, 2)) if first else x
    last = [group[0] if len(group) == 1 else ctx.emit(top.Concat, group, axis=0).y for group in finals]
    return [y, *last]


@rule("aten.lstm", limits="no packed sequences; weights must be constant")
def lstm(ctx: TorchContext) -> Outcome:
    """Any number of layers, one or both directions."""
    return _stack(ctx, top.LSTM, _LSTM, ctx.args["hx"])


@rule("aten.gru", limits="no packed sequences; weights must be constant")
def gru(ctx: TorchContext) -> Outcome:
    """torch resets the state after its product."""
    return _stack(ctx, top.GRU, _GRU, [ctx.args["hx"]], linear_before_reset=True)


@rule("aten.rnn_tanh", "aten.rnn_relu", limits="no packed sequences; weights must be constant")
def rnn(ctx: TorchContext) -> Outcome:
    """One gate."""
    name = "Tanh" if ctx.op == "aten.rnn_tanh" else "Relu"
    count = 2 if ctx.flag("bidirectional") else 1
    return _stack(ctx, top.RNN, _RNN, [ctx.args["hx"]], activations=(name,) * count)
