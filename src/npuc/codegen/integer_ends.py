"""Programs that take and give integers: no conversion between reals and integers at the ends.

    %0 = npu.quantize(%x: f32)                     %0 = the input itself, of the quantized type
    ...                                   →        ...
    %y = npu.dequantize(%1)                        the output is %1

The type of an input or output then has the scale and the zero point, which the file, `Runner` and the C API state. It is done
before anything is scheduled, so that it is a property of the file.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, get_args

from npuc.errors import CompileError, UsageError
from npuc.ir import Graph, npu

IntegerEnds = Literal["", "inputs", "outputs", "both"]


def with_integer_ends(graph: Graph, ends: str, only: Collection[str] = ()) -> Graph:
    """The network with integers at its inputs, outputs or both; `CompileError` if no such end can have them.

    `only` names the inputs and outputs that change, where it is not all of them.
    """
    if ends not in get_args(IntegerEnds):
        raise UsageError(f"integers are at the inputs, the outputs or both, not at '{ends}'")
    if not ends:
        return graph
    copy = graph.copy()
    changed = _turn_inputs(copy, only) if ends in ("inputs", "both") else False
    changed |= _turn_outputs(copy, only) if ends in ("outputs", "both") else False
    if not changed:
        raise CompileError(
            f"no conversion is at the {'ends' if ends == 'both' else ends} of the network, so they cannot become integers",
            fix="Leave the option out: what the network takes and gives there is made or read by the CPU, or integer already",
        )
    return copy


def _turn_inputs(graph: Graph, only: Collection[str]) -> bool:
    ports: list[tuple[str, Any, dict[str, Any] | None]] = []
    gone: list[npu.Quantize] = []
    for port in graph.inputs:
        users = [use.operation for use in port.value.uses]
        kinds = {user.y.type for user in users if isinstance(user, npu.Quantize)}
        alike = len(kinds) == 1 and all(isinstance(user, npu.Quantize) for user in users)
        alike = alike and (not only or port.name in only)
        ports.append((port.name, kinds.pop() if alike else port.type, port.preprocess))
        gone += [user for user in users if isinstance(user, npu.Quantize)] if alike else []
    graph.set_inputs(ports)
    for op in gone:
        op.y.replace_all_uses_with(op.x)
        graph.block.erase_op(op)
    return bool(gone)


def _turn_outputs(graph: Graph, only: Collection[str]) -> bool:
    outputs, changed = [], False
    for port in graph.outputs:
        owner = port.value.owner
        if isinstance(owner, npu.Dequantize) and (not only or port.name in only):
            outputs.append((port.name, owner.x))
            changed = True
        else:
            outputs.append((port.name, port.value))
    dropped = [port.value.owner for port in graph.outputs]
    graph.set_outputs(outputs)
    for op in dropped:
        if isinstance(op, npu.Dequantize) and op.parent is not None and op.y.first_use is None:
            graph.block.erase_op(op)
    return changed
