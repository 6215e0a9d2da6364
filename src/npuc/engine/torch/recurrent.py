"""Recurrent layers, step by step, with the usual activations."""

from __future__ import annotations

from typing import Any

import torch

from npuc.engine.torch.registry import handles
from npuc.ir import top
from npuc.ir.lstm_parameters import lstm_of
from npuc.kernels.quantized_lstm import run_quantized_lstm

_USUAL: dict[type[Any], tuple[str, ...]] = {
    top.LSTM: ("Sigmoid", "Tanh", "Tanh"),
    top.GRU: ("Sigmoid", "Tanh"),
    top.RNN: ("Tanh",),
}


@handles(top.LSTM, top.GRU, top.RNN)
def recurrent(
    op: Any, x: Any, weight: Any, recurrence: Any, bias: Any, lengths: Any, h0: Any, *more: Any
) -> Any:
    """All steps, the last state, and for an LSTM the last cell."""
    directions = weight.shape[0]
    usual = _USUAL[type(op)] * directions
    if (op.activations and tuple(op.activations) != usual) or op.clip or lengths is not None:
        raise NotImplementedError(f"{op.name} with unusual activations, a clip, or lengths")
    c0, peephole, projection = more if more else (None, None, None)
    if peephole is not None or (more and op.input_forget):
        raise NotImplementedError(f"{op.name} with peepholes or coupled gates")
    whole, last_h, last_c = [], [], []
    for d in range(directions):
        backwards = op.direction == "reverse" or d == 1
        steps = x.flip(0) if backwards else x
        h = x.new_zeros(x.shape[1], op.width) if h0 is None else h0[d]
        c = x.new_zeros(x.shape[1], op.hidden) if c0 is None else c0[d]
        size = weight.shape[1]
        b_in, b_state = (None, None) if bias is None else (bias[d, :size], bias[d, size:])
        given = steps @ weight[d].T + (0 if b_in is None else b_in)
        out = []
        for step in given.unbind(0):
            h, c = _step(op, step, h, c, recurrence[d], b_state)
            h = h if projection is None else h @ projection[d].T
            out.append(h)
        states = torch.stack(out)
        whole.append(states.flip(0) if backwards else states)
        last_h.append(h)
        last_c.append(c)
    parts = [torch.stack(whole, 1), torch.stack(last_h)]
    return (*parts, torch.stack(last_c)) if isinstance(op, top.LSTM) else tuple(parts)


@handles(top.QuantizedLSTM)
def quantized_lstm(op: top.QuantizedLSTM, x: Any, *constants: Any) -> Any:
    """TFLite's integers by the native kernel; no gradient goes through them."""
    layer = lstm_of(
        op, [None if constant is None else constant.detach().cpu().numpy() for constant in constants]
    )
    (x_scale, x_zero), (y_scale, y_zero) = op.x_parameters, op.y_parameters
    scale = torch.tensor(x_scale, dtype=x.dtype, device=x.device)
    integers = (torch.round(x.detach() / scale) + x_zero).clamp(-128, 127).to(torch.int8)
    y = torch.from_numpy(run_quantized_lstm(integers.cpu().numpy(), layer, time_major=op.time_major))
    return (y.to(x.device).to(x.dtype) - y_zero) * torch.tensor(y_scale, dtype=x.dtype, device=x.device)


def _step(op: Any, step: Any, h: Any, c: Any, recurrence: Any, bias: Any) -> tuple[Any, Any]:
    if isinstance(op, top.GRU) and not op.linear_before_reset:
        n = 2 * op.hidden
        own = h @ recurrence[:n].T + (0 if bias is None else bias[:n])
        z, r = torch.sigmoid(step[:, :n] + own).chunk(2, -1)
        inner = (r * h) @ recurrence[n:].T + (0 if bias is None else bias[n:])
        return (1 - z) * torch.tanh(step[:, n:] + inner) + z * h, c
    own = h @ recurrence.T + (0 if bias is None else bias)
    if isinstance(op, top.RNN):
        return torch.tanh(step + own), c
    if isinstance(op, top.GRU):
        z, r, _ = torch.sigmoid(step + own).chunk(3, -1)
        n = 2 * op.hidden
        return (1 - z) * torch.tanh(step[:, n:] + r * own[:, n:]) + z * h, c
    i, o, f, g = (step + own).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
