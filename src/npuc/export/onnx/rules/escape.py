"""`top.onnx`: the node as it was, with the names that its inputs have now."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.subgraphs import rename_captures
from npuc.ir import top
from npuc.ir.onnx_attributes import decode_attribute


@exports(top.Onnx)
def onnx_node(op: top.Onnx, emit: Emitter) -> None:
    """Attributes decoded; graphs among them refer to the outer values they capture by the exported names."""
    values = list(op.operands)
    inputs = [values[index] if index >= 0 else None for index in op.arguments]
    captured = values[len(values) - len(op.captures) :]
    outer = {inner: emit.name(value) for inner, value in zip(op.captures, captured, strict=True)}
    attributes = {}
    for name, value in op.onnx_attributes.items():
        attribute = decode_attribute(name, value)
        rename_captures(attribute, outer, emit.names)
        attributes[name] = attribute
    outputs = [""] * (max(op.outputs_used, default=-1) + 1)
    for position, result in zip(op.outputs_used, op.results, strict=True):
        outputs[position] = emit.name(result)
    emit.node(op.op_type, inputs, outputs, attributes, domain=op.domain)
