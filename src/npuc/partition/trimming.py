"""A network without what the CPU would have to do at its ends: it begins and ends with the NPU.

Post-processing that a model brings along, such as the decoding of boxes, is often the user's own code anyway. What stands before
the first layer of the NPU, or behind the last, is cut off; the tensors at the cuts are the new inputs and outputs. A CPU layer
between layers of the NPU cannot be cut off.

Example: of `conv -> relu -> topk`, where the NPU has no topk, the first two remain, and the output is that of the relu.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from npuc.errors import CompileError
from npuc.ir import Graph, npu, result_names, shape_of, tensor_type, value_name
from npuc.ir.dtypes import mlir_type, quant_of
from npuc.ir.passes import run_pipeline
from npuc.partition.partition import partition
from npuc.target import Target

_SHOWN = 4


@dataclass(frozen=True)
class Trimmed:
    """A network for the NPU, and what was cut off."""

    graph: Graph
    before: tuple[str, ...] = ()
    """The layers that were cut off at the inputs."""
    after: tuple[str, ...] = ()
    """Those that were cut off at the outputs."""

    @property
    def changed(self) -> bool:
        """Whether anything was cut off."""
        return bool(self.before or self.after)


def trimmed(graph: Graph, target: Target, keep: Collection[str] = ()) -> Trimmed:
    """An integer network without the CPU's ops at its ends; `CompileError` if there are others.

    Float ops of which the results are to be kept by name, such as the factors of outputs with one scale a channel, stay.
    """
    graph = graph.copy()
    # Small subgraphs of the NPU, too, are its own: what could be moved beside the CPU shall not be cut off with it.
    parted = partition(graph, target, island_threshold=0)
    device: dict[Any, str] = {op: part.device for part in parted.parts for op in part.ops}
    ops: list[Any] = [op for op in graph.ops if op in device]
    device |= {op: "convert" for op in ops if result_names(op)[0] in keep}
    starts = [op for op in ops if device[op] == "npu"]
    if not starts:
        raise CompileError(
            f"no layer of the network runs on {target.name}: {_reasons(parted.reasons, list(parted.reasons))}"
        )
    behind = _reached(ops, starts, lambda op: [value.owner for value in op.operands])
    ahead = _reached(
        ops[::-1], starts, lambda op: [use.operation for value in op.results for use in value.uses]
    )
    offloaded = [op for op in ops if device[op] not in ("npu", "convert")]
    middle = [result_names(op)[0] for op in offloaded if op in behind and op in ahead]
    if middle:
        raise CompileError(
            f"layers between those of the NPU cannot run on {target.name}: {_reasons(parted.reasons, middle)}"
        )
    before = {op for op in offloaded if op in ahead}
    after = {op for op in offloaded if op not in ahead}
    layers = [tuple(result_names(op)[0] for op in ops if op in end) for end in (before, after)]
    for op in ops:  # conversions of what is cut off
        if device[op] == "convert" and any(value.owner in after for value in op.operands):
            after.add(op)
    for op in reversed(ops):
        uses = [use.operation for value in op.results for use in value.uses]
        if device[op] == "convert" and uses and all(use in before for use in uses):
            before.add(op)
    _end_before(graph, after)
    _begin_behind(graph, before)
    return Trimmed(run_pipeline(graph, "eliminate-dead-code"), *layers)


def _reached(ops: list[Any], starts: list[Any], neighbours: Any) -> set[Any]:
    """The ops that some ops lead to, themselves included; `ops` are in that direction."""
    reached = set(starts)
    for op in ops:
        if any(other in reached for other in neighbours(op)):
            reached.add(op)
    return reached


def _end_before(graph: Graph, after: set[Any]) -> None:
    """Outputs: those that remain, and what the ops that are cut off were made of."""
    if not after:
        return
    kept = {port.value: port.name for port in graph.outputs if port.value.owner not in after}
    for op in after:
        for value in op.operands:
            if value.owner not in after and graph.constant(value) is None and value not in _arguments(graph):
                kept.setdefault(value, value_name(value))
    order = [value for op in graph.ops for value in op.results if value in kept]
    graph.set_outputs([(kept[value], _real(graph, value)) for value in order])
    for op in [op for op in graph.ops if op in after][::-1]:
        graph.block.erase_op(op)


def _real(graph: Graph, value: Any) -> Any:
    """A value as real numbers, which outputs are."""
    if quant_of(value) is None:
        return value
    op = npu.Dequantize.make(value, to=mlir_type("f32"), name=f"{value_name(value)}/real")
    graph.block.insert_op_before(op, graph.terminator)
    return op.results[0]


def _begin_behind(graph: Graph, before: set[Any]) -> None:
    """Inputs: those that remain in use, and what the ops that are cut off gave to the others."""
    if not before:
        return
    given = [
        value
        for op in graph.ops
        if op in before
        for value in op.results
        if any(use.operation not in before for use in value.uses)
    ]
    rounding = next((op.rounding for op in graph.ops if isinstance(op, npu.Quantize)), "half_away")
    ports: list[Any] = [(port.name, port.type, port.preprocess) for port in graph.inputs]
    for value in given:
        kind = quant_of(value)
        plain = value.type if kind is None else tensor_type(shape_of(value), "f32")
        taken: Any = graph.block.insert_arg(plain, len(graph.block.args))
        ports.append((value_name(value), plain, None))
        if kind is not None:
            integers = npu.Quantize.make(
                taken, to=kind, rounding=rounding, name=f"{value_name(value)}/integers"
            )
            graph.block.insert_op_before(integers, next(iter(graph.ops)))
            taken = integers.results[0]
        value.replace_uses_with_if(taken, lambda use: use.operation not in before)
    for op in [op for op in graph.ops if op in before][::-1]:
        graph.block.erase_op(op)
    used = [bool(list(argument.uses)) for argument in graph.block.args]
    for argument in [
        argument for argument, is_used in zip(graph.block.args, used, strict=True) if not is_used
    ]:
        graph.block.erase_arg(argument)
    graph.set_inputs([port for port, is_used in zip(ports, used, strict=True) if is_used])


def _arguments(graph: Graph) -> set[Any]:
    return set(graph.block.args)


def _reasons(reasons: Mapping[str, str], names: list[str]) -> str:
    shown = [f"'{name}': {reasons.get(name, 'it is there as asked')}" for name in names[:_SHOWN]]
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return "; ".join([*shown, *more])
