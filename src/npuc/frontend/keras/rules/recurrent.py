"""Recurrent layers and wrappers. Every run begins with a state of zeros, unless the model gives one."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks import movement as m
from npuc.frontend.keras.activations import hard_sigmoid_slope, named
from npuc.frontend.keras.registry import KerasContext, Outcome, rule
from npuc.frontend.keras.weights import KerasWeights
from npuc.frontend.layout import LayoutTensor
from npuc.ir import top

_ACTIVATIONS = {
    "tanh": ("Tanh", 0.0, 0.0),
    "sigmoid": ("Sigmoid", 0.0, 0.0),
    "relu": ("Relu", 0.0, 0.0),
    "softsign": ("Softsign", 0.0, 0.0),
    "softplus": ("Softplus", 0.0, 0.0),
    "linear": ("Affine", 1.0, 0.0),
    "elu": ("Elu", 1.0, 0.0),
}
_OPS: dict[str, tuple[Any, int]] = {"SimpleRNN": (top.RNN, 1), "GRU": (top.GRU, 3), "LSTM": (top.LSTM, 4)}


def _activations(ctx: KerasContext, *settings: Any) -> dict[str, Any]:
    functions = []
    for setting in settings:
        name, _ = named(ctx, setting)
        if name == "hard_sigmoid":
            functions.append(("HardSigmoid", hard_sigmoid_slope(ctx.version), 0.5))
        elif name in _ACTIVATIONS:
            functions.append(_ACTIVATIONS[name])
        else:
            raise ctx.refuse(f"its activation is {name[:40]}")
    plain = all(alpha == beta == 0.0 for _, alpha, beta in functions)
    return {
        "activations": tuple(entry[0] for entry in functions),
        "activation_alpha": () if plain else tuple(entry[1] for entry in functions),
        "activation_beta": () if plain else tuple(entry[2] for entry in functions),
    }


def _gates(array: Array, kind: str, units: int) -> Array:
    """Columns as rows, gates in the order of the IR: Keras has i f c o, the IR i o f c."""
    parts = np.split(array, _OPS[kind][1], axis=-1)
    if kind == "LSTM":
        parts = [parts[i] for i in (0, 3, 1, 2)]
    return np.concatenate(parts, axis=-1).T


def _layer(
    ctx: KerasContext,
    config: Any,
    kind: str,
    weights: KerasWeights,
    x: LayoutTensor,
    states: list[LayoutTensor],
    back: bool,
) -> Any:
    """The op of one direction: the whole sequence, and the last states."""
    inner = KerasContext(
        ctx.name, kind, config, ctx.arguments, ctx.keywords, weights, ctx.c, ctx.version, ctx.notes
    )
    op_class, gates = _OPS[kind]
    use_bias = inner.flag("use_bias", True)
    kernel, recurrent, *rest = inner.arrays(3 if use_bias else 2, of=weights.part("cell"))
    units = recurrent.shape[0]
    if kernel.shape[1] != gates * units or recurrent.shape[1] != gates * units:
        raise ctx.wrong(f"kernels of {list(kernel.shape)} and {list(recurrent.shape)} for {units} units")
    reset_after = kind == "GRU" and inner.flag("reset_after", use_bias and rest[0].ndim == 2)
    bias = rest[0] if use_bias else np.zeros(gates * units, np.float32)
    first, second = (bias[0], bias[1]) if bias.ndim == 2 else (bias, np.zeros_like(bias))
    both = np.concatenate([_gates(first[None], kind, units)[:, 0], _gates(second[None], kind, units)[:, 0]])
    c = ctx.c
    if inner.flag("stateful", False):
        ctx.notes.append(f"{ctx.label} keeps its state between runs in Keras; here each run begins anew")
    recurrent_act, act = inner.get("recurrent_activation", "sigmoid"), inner.get("activation", "tanh")
    settings = {"SimpleRNN": (act,), "GRU": (recurrent_act, act), "LSTM": (recurrent_act, act, act)}[kind]
    more = {"linear_before_reset": reset_after} if kind == "GRU" else {}
    held = [c.value(m.reshape(c, state, (1, *state.shape))) for state in states]
    operands = [
        c.value(m.transpose(c, x, (1, 0, 2))),
        c.value(c.constant(_gates(kernel, kind, units)[None], f"{ctx.name}/kernel")),
        c.value(c.constant(_gates(recurrent, kind, units)[None], f"{ctx.name}/recurrent_kernel")),
        c.value(c.constant(both[None], f"{ctx.name}/bias")),
        None,
        held[0] if held else None,
        *([held[1] if len(held) > 1 else None, None] if kind == "LSTM" else []),
    ]
    return c.emit(
        op_class,
        *operands,
        hidden=units,
        direction="reverse" if back else "forward",
        **_activations(inner, *settings),
        **more,
    )


def _results(ctx: KerasContext, op: Any, sequences: bool) -> tuple[LayoutTensor, list[LayoutTensor]]:
    """What the layer gives, in the order of time, and its last states."""
    c = ctx.c
    states = []
    for part in op.parts[1:]:
        _, batch, units = LayoutTensor(part).shape
        states.append(LayoutTensor(c.emit(top.Reshape, part, shape=(batch, units)).y))
    if not sequences:
        return states[0], states
    steps, _, batch, units = LayoutTensor(op.parts[0]).shape
    whole = LayoutTensor(c.emit(top.Reshape, op.parts[0], shape=(steps, batch, units)).y)
    return m.transpose(c, whole, (1, 0, 2)), states


def _sequence(ctx: KerasContext) -> tuple[LayoutTensor, list[LayoutTensor]]:
    """The input, and the states that a model gives."""
    x, *states = ctx.inputs
    states += [x for x in _given(ctx.keywords.get("initial_state"))]
    if x.rank != 3:
        raise ctx.wrong(f"its input has rank {x.rank}, not 3")
    if ctx.get("time_major", False):
        x = m.transpose(ctx.c, x, (1, 0, 2))
    return x, states


def _given(value: Any) -> list[LayoutTensor]:
    listed = value if isinstance(value, list) else [value]
    return [item for item in listed if isinstance(item, LayoutTensor)]


@rule("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU")
def recurrent(ctx: KerasContext) -> Outcome:
    """Sequences or last steps, states in and out, backwards, unrolled or not; a state is not kept between runs."""
    if ctx.kind.startswith("CuDNN"):
        raise ctx.refuse(
            "it has the weights of one kind of graphics processor", "Save it as a plain LSTM or GRU"
        )
    x, states = _sequence(ctx)
    back = ctx.flag("go_backwards", False)
    op = _layer(ctx, ctx.config, ctx.kind, ctx.weights, x, states, back)
    sequences = ctx.flag("return_sequences", False)
    y, last = _results(ctx, op, sequences)
    if back and sequences:
        y = m.reverse(ctx.c, y, [1])
    if sequences and ctx.get("time_major", False):
        y = m.transpose(ctx.c, y, (1, 0, 2))
    return [y, *last] if ctx.flag("return_state", False) else y


@rule("Bidirectional")
def bidirectional(ctx: KerasContext) -> Outcome:
    """LSTM, GRU or SimpleRNN both ways, merged by concat, sum, mul or ave, or not at all."""
    described = ctx.get("layer")
    if not isinstance(described, dict) or described.get("class_name") not in _OPS:
        raise ctx.refuse("it does not wrap an LSTM, GRU or SimpleRNN")
    kind, config = described["class_name"], described["config"]
    inner = KerasContext(
        ctx.name, kind, config, ctx.arguments, ctx.keywords, ctx.weights, ctx.c, ctx.version, ctx.notes
    )
    x, states = _sequence(ctx)
    forward, backward = ctx.weights.two("forward_layer", "backward_layer")
    half = len(states) // 2
    sequences = inner.flag("return_sequences", False)
    ways = [
        _results(ctx, _layer(ctx, config, kind, weights, x, given, back), sequences)
        for weights, given, back in ((forward, states[:half], False), (backward, states[half:], True))
    ]
    (y, last), (z, final) = ways
    mode = ctx.config.get("merge_mode", "concat")
    if mode == "concat":
        merged = [m.concat(ctx.c, [y, z], -1)]
    elif mode is None:
        merged = [y, z]
    elif mode in ("sum", "ave", "mul"):
        combined = a.binary(ctx.c, top.Mul if mode == "mul" else top.Add, y, z)
        merged = [a.scaled(ctx.c, combined, 0.5) if mode == "ave" else combined]
    else:
        raise ctx.wrong(f"it merges by {str(mode)[:40]}")
    return [*merged, *last, *final] if inner.flag("return_state", False) else merged


@rule("TimeDistributed")
def time_distributed(ctx: KerasContext) -> Outcome:
    """Any layer or model of one input, over all steps at once."""
    x = ctx.x()
    if x.rank < 3:
        raise ctx.wrong(f"its input has rank {x.rank}")
    batch, steps, *rest = x.shape
    flat = m.reshape(ctx.c, x, (batch * steps, *rest))
    (y,) = ctx.wrapped(ctx.get("layer"), [flat], ctx.weights.part("layer"))[:1]
    return m.reshape(ctx.c, y, (batch, steps, *y.shape[1:]))
