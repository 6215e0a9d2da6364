"""A CPU subgraph as an ONNX model: ops on reals as they are exported, ops on integers in nodes that are exact."""

from __future__ import annotations

from collections.abc import Mapping

from npuc.errors import CompileError
from npuc.export.onnx import to_onnx
from npuc.ir import Graph, Value, result_names, shown_name
from npuc.ir.dtypes import element_of, is_narrow_float
from npuc.ir.subgraph import subgraph_of
from npuc.partition import Part
from npuc.partition.accelerators import ACCELERATORS, accelerated
from npuc.partition.host import host_rule, reason_against_host


def host_program(
    graph: Graph, part: Part, names: Mapping[Value, str], reasons: Mapping[str, str] | None = None
) -> tuple[bytes, dict[Value, str]]:
    """The ops of a part as a model whose inputs and outputs have the names of tensors, and what results are called in it.

    `reasons` tells why ops are not on the NPU, for the case that the CPU cannot run them either.
    """
    taken = part.device in ACCELERATORS
    for op in () if taken else part.ops:
        reason = reason_against_host(op, graph)
        if reason is not None:
            first = (reasons or {}).get(result_names(op)[0], "")
            npu = f"on the NPU, {first.rstrip('.')}; " if first else ""
            short = any(is_narrow_float(element_of(value)) for value in (*op.operands, *op.results))
            raise CompileError(
                f"neither the NPU nor the CPU can run it exactly: {npu}on the CPU, {reason}",
                where=f"layer '{shown_name(op)}'",
                fix="Quantize to the types of the target: leave --scheme out"
                if short
                else f"Keep this layer float (npuc quantize --keep-float '{result_names(op)[0]}'), quantize the network "
                "anew for this target (--force-float --target), or choose another target",
            )
    inputs = [(names[value], value) for value in part.inputs]
    small, known = subgraph_of(graph, part.ops, inputs, [(names[value], value) for value in part.outputs])
    if taken:
        return accelerated(part.device, small), {value: names[value] for value in part.outputs}
    exported = to_onnx(small, special=host_rule)
    for tensor in exported.proto.graph.initializer:
        weight = exported.external.get(tensor.name)
        if weight is not None:
            del tensor.external_data[:]
            tensor.data_location = 0
            tensor.raw_data = weight.array().tobytes()
    called: dict[Value, str] = {
        value: exported.names[known[value]] for op in part.ops for value in op.results
    }
    return bytes(exported.proto.SerializeToString(deterministic=True)), called
