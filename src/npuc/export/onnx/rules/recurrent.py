"""Recurrent layers."""

from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, helper

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.lstm_step import captured, step
from npuc.export.onnx.registry import exports
from npuc.ir import shape_of, top
from npuc.ir.lstm_parameters import lstm_parameters


@exports(top.RNN, top.GRU, top.LSTM)
def recurrent(op: top.RNN | top.GRU | top.LSTM, emit: Emitter) -> None:
    """RNN, GRU or LSTM with ONNX's operand layout; an LSTM with a projection, which ONNX has not, as a Scan."""
    if isinstance(op, top.LSTM) and op.projection is not None:
        projected_lstm(op, emit)
        return
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


@exports(top.QuantizedLSTM)
def quantized_lstm(op: top.QuantizedLSTM, emit: Emitter) -> None:
    """The integers of x through a Scan whose body is exact."""
    (x_scale, x_zero), (y_scale, y_zero) = op.x_parameters, op.y_parameters
    x = emit("QuantizeLinear", op.x, np.array(x_scale, np.float32), np.array(x_zero, np.int8))
    y = scanned_lstm(op, x, emit)
    emit("DequantizeLinear", y, np.array(y_scale, np.float32), np.array(y_zero, np.int8), to=op.y)


def scanned_lstm(op: top.QuantizedLSTM, x: Any, emit: Emitter, to: Any = None) -> str:
    """A quantized LSTM on int8, as one Scan over its steps."""
    layer = lstm_parameters(op, emit.graph)
    axis = 0 if op.time_major else 1
    batch = shape_of(op.x)[1 - axis]
    outer = {name: emit.constant(array, name) for name, array in captured(layer).items()}
    outputs = [
        emit.derived("last_h"),
        emit.derived("last_c"),
        emit.name(to) if to is not None else emit.derived("steps"),
    ]
    states = [
        emit.constant(np.full((batch, layer.outputs), layer.first_h, np.int8)),
        emit.constant(np.zeros((batch, 1, layer.cells), np.int64)),
    ]
    body = step(layer, batch, emit.derived("step"), outer)
    attributes: dict[str, Any] = {
        "body": AttributeProto(name="body", type=AttributeProto.GRAPH, g=body),
        "num_scan_inputs": 1,
        "scan_input_axes": [axis],
        "scan_output_axes": [axis],
    }
    emit.node("Scan", [*states, x], outputs, attributes, helper=True)
    return outputs[2]


def projected_lstm(op: top.LSTM, emit: Emitter) -> None:
    """A Scan a direction, whose body is a step."""
    directions, batch = shape_of(op.weight)[0], shape_of(op.x)[1]
    parts: list[list[str]] = [[], [], []]
    for number in range(directions):
        index = np.array(number, np.int64)

        def of_direction(value: Any, *, transposed: bool = False, index: Any = index) -> str:
            part = emit("Gather", value, index, axis=0)
            return emit("Transpose", part, perm=[1, 0]) if transposed else part

        def start(value: Any, width: int, index: Any = index) -> str:
            zeros = np.zeros((batch, width), np.float32)
            return emit.constant(zeros) if value is None else emit("Gather", value, index, axis=0)

        names = {
            "weight": of_direction(op.weight, transposed=True),
            "recurrence": of_direction(op.recurrence, transposed=True),
            "projection": of_direction(op.projection, transposed=True),
        }
        if op.bias is not None:
            both = emit("Reshape", of_direction(op.bias), emit.ints(2, -1))
            names["bias"] = emit("ReduceSum", both, emit.ints(0), keepdims=0)
        if op.peephole is not None:
            names["peephole"] = of_direction(op.peephole)
        back = int(op.direction == "reverse" or number == 1)
        outputs = [emit.derived(what) for what in ("last_h", "last_c", "steps")]
        states = [start(op.initial_h, op.width), start(op.initial_c, op.hidden)]
        attributes: dict[str, Any] = {
            "body": AttributeProto(name="body", type=AttributeProto.GRAPH, g=_step(names, emit)),
            "num_scan_inputs": 1,
            "scan_input_directions": [back],
            "scan_output_directions": [back],
        }
        emit.node("Scan", [*states, op.x], outputs, attributes, helper=True)
        axes = (0, 0, 1)
        for group, output, axis in zip(parts, outputs, axes, strict=True):
            group.append(emit("Unsqueeze", output, emit.ints(axis)))
    (last_h, last_c, steps) = parts
    for value, group, axis in zip(op.parts, (steps, last_h, last_c), (1, 0, 0), strict=True):
        emit("Concat", *group, to=value, axis=axis)


def _step(names: dict[str, str], emit: Emitter) -> GraphProto:
    """From h, c and x of a step to h, c and h; weights are those of the graph around it."""
    prefix = emit.derived("step")
    nodes: list[NodeProto] = []

    def add(kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"{prefix}/{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    h, c, x = (f"{prefix}/{name}" for name in "hcx")
    sums = add("Add", add("MatMul", x, names["weight"]), add("MatMul", h, names["recurrence"]))
    if "bias" in names:
        sums = add("Add", sums, names["bias"])
    gates = [f"{prefix}/{gate}" for gate in ("input", "output", "forget", "cell")]
    nodes.append(helper.make_node("Split", [sums], gates, axis=-1, num_outputs=4))
    i, o, f, g = gates
    peepholes = [f"{prefix}/peephole_{gate}" for gate in "iof"]
    if "peephole" in names:
        nodes.append(helper.make_node("Split", [names["peephole"]], peepholes, axis=0, num_outputs=3))
        i, f = (add("Add", gate, add("Mul", c, peepholes[at])) for gate, at in ((i, 0), (f, 2)))
    new = add("Mul", add("Sigmoid", i), add("Tanh", g))
    cell = add("Add", add("Mul", add("Sigmoid", f), c), new)
    if "peephole" in names:
        o = add("Add", o, add("Mul", cell, peepholes[1]))
    given = add("Mul", add("Sigmoid", o), add("Tanh", cell))
    out = add("MatMul", given, names["projection"])
    twice = add("Identity", out)
    inputs, outputs = (
        [helper.make_tensor_value_info(name, 1, None) for name in group]
        for group in ((h, c, x), (out, cell, twice))
    )
    return helper.make_graph(nodes, "step", inputs, outputs)
