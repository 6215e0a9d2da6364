"""Recurrent layers."""

from typing import Any

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import top


@exports(top.RNN, top.GRU, top.LSTM)
def recurrent(op: top.RNN | top.GRU | top.LSTM, emit: Emitter) -> None:
    """RNN, GRU or LSTM with ONNX's operand layout."""
    inputs = [op.x, op.weight, op.recurrence, op.bias, op.sequence_lengths, op.initial_h]
    attributes: dict[str, Any] = {
        "hidden_size": op.hidden,
        "direction": op.direction,
        "activations": op.activations or None,
        "activation_alpha": op.activation_alpha or None,
        "activation_beta": op.activation_beta or None,
        "clip": op.clip or None,
    }
    op_type = "RNN"
    if isinstance(op, top.LSTM):
        op_type = "LSTM"
        inputs += [op.initial_c, op.peephole]
        attributes["input_forget"] = 1 if op.input_forget else None
    elif isinstance(op, top.GRU):
        op_type = "GRU"
        attributes["linear_before_reset"] = 1 if op.linear_before_reset else None
    emit.node(op_type, inputs, [emit.name(part) for part in op.parts], attributes)
