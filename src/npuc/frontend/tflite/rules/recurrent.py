"""Recurrent layers over whole sequences, float, from a state of zeros.

TFLite keeps the state of such a layer in variables, which are zero when a model is loaded. A network here has no memory
from one run to the next, so each run is the first.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.tflite.integer_lstm import integer_lstm
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.schema import ActivationFunctionType as Fused
from npuc.frontend.tflite.scope import TfliteContext
from npuc.frontend.tflite.view import FlatbufferView
from npuc.ir import Value, shape_of, top


def _sequence(ctx: TfliteContext, options: FlatbufferView) -> Value:
    """The input as time x batch x features."""
    if ctx.rank(0) != 3:
        raise InvalidModelError(f"{ctx.label}: its input has rank {ctx.rank(0)}, not 3")
    if ctx.is_integer:
        raise ctx.refuse("it is an integer layer")
    x = ctx.real(0)
    return x if options.number("TimeMajor") else ctx.emit(top.Permute, x, order=(1, 0, 2)).y


def _unfolded(ctx: TfliteContext, whole: Value, options: FlatbufferView) -> Value:
    """The results of every step, in the order of the input."""
    steps, _, batch, hidden = shape_of(whole)
    y = ctx.emit(top.Reshape, whole, shape=(steps, batch, hidden)).y
    return y if options.number("TimeMajor") else ctx.emit(top.Permute, y, order=(1, 0, 2)).y


def _require_zero_state(ctx: TfliteContext, *indices: int) -> None:
    for index in indices:
        if ctx.has(index) and not ctx.tensor(index).is_variable:
            raise ctx.refuse(f"it begins with the state '{ctx.tensor(index).name}'")


def _matrix(ctx: TfliteContext, index: int, what: str) -> Array:
    ctx.known(index, what)
    array = ctx.real_array(index)
    assert array is not None
    return array.astype(np.float32)


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(ctx: TfliteContext) -> Outcome:
    """Gates are input, forget, cell, output; the IR has input, output, forget, cell."""
    options = ctx.needed("UnidirectionalSequenceLSTMOptions")
    if options.number("FusedActivationFunction") != Fused.TANH:
        raise ctx.refuse("its activation is not tanh")
    if ctx.is_integer:
        return integer_lstm(ctx, options)
    if not (ctx.has(1) and ctx.has(5)):
        raise ctx.refuse("its input gate is coupled to the forget gate")
    if any(ctx.has(index) for index in (17, *range(20, 24))):
        raise ctx.refuse("it has layer norms, or a bias behind its projection")
    _require_zero_state(ctx, 18, 19)
    if options.number("CellClip") > 0:
        ctx.scope.graph.notes.append(
            f"{ctx.label} limits its cell state to {options.number('CellClip'):g}; npuc does not"
        )
    if ctx.has(16) and options.number("ProjClip") > 0:
        ctx.scope.graph.notes.append(
            f"{ctx.label} limits its projection to {options.number('ProjClip'):g}; npuc does not"
        )
    order = (0, 3, 1, 2)
    weight = np.concatenate([_matrix(ctx, 1 + gate, "weights") for gate in order])
    recurrence = np.concatenate([_matrix(ctx, 5 + gate, "weights") for gate in order])
    bias = np.concatenate([_matrix(ctx, 12 + gate, "bias") for gate in order])
    peephole = None
    if any(ctx.has(index) for index in (9, 10, 11)):
        rows = [_matrix(ctx, index, "peephole weights") for index in (9, 11, 10)]
        peephole = ctx.literal(np.concatenate(rows)[None], "peephole")
    projection = ctx.literal(_matrix(ctx, 16, "projection")[None], "projection") if ctx.has(16) else None
    op = ctx.emit(
        top.LSTM,
        _sequence(ctx, options),
        ctx.literal(weight[None], "weight"),
        ctx.literal(recurrence[None], "recurrence"),
        ctx.literal(np.concatenate([bias, np.zeros_like(bias)])[None], "bias"),
        None,
        None,
        None,
        peephole,
        projection,
        hidden=recurrence.shape[0] // len(order),
    )
    return _unfolded(ctx, op.parts[0], options)


@rule("UNIDIRECTIONAL_SEQUENCE_RNN")
def rnn(ctx: TfliteContext) -> Outcome:
    """y = f(W x + R y + b)"""
    options = ctx.needed("SequenceRNNOptions")
    activation = {Fused.TANH: "Tanh", Fused.RELU: "Relu"}.get(int(options.number("FusedActivationFunction")))
    if activation is None:
        raise ctx.refuse("its activation is neither tanh nor relu")
    _require_zero_state(ctx, 4)
    weight, recurrence, bias = (_matrix(ctx, index, "weights") for index in (1, 2, 3))
    op = ctx.emit(
        top.RNN,
        _sequence(ctx, options),
        ctx.literal(weight[None], "weight"),
        ctx.literal(recurrence[None], "recurrence"),
        ctx.literal(np.concatenate([bias, np.zeros_like(bias)])[None], "bias"),
        None,
        None,
        hidden=recurrence.shape[1],
        activations=(activation,),
    )
    return _unfolded(ctx, op.parts[0], options)
