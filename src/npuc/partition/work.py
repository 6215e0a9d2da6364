"""What ops cost on the CPU, and whether an NPU subgraph is worth the way there and back.

The speed of the host is not known when a model is compiled: the figures below stand for one core of a small application
processor, as found beside an NPU. They decide about tiny subgraphs only, where a factor of two changes little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from npuc.ir import Graph, Value, dtype_of, is_static, npu, shape_of, top
from npuc.ir.definition import TensorOp
from npuc.schedule.bounds import bounds
from npuc.schedule.cost import START
from npuc.schedule.network import build_network
from npuc.target import Target

HOST_MACS = 5e9
"""Multiply-accumulates of the host in a second."""
HOST_ELEMENTS = 2e8
"""Elements that the host makes in a second by an exact integer form, which takes about ten passes."""
HOST_BYTES = 4e9
"""Bytes that the host moves in a second."""
HOST_NODE = 5e-6
"""Seconds that the host needs for any op."""
LAUNCH = 20e-6
"""Seconds from the call of an NPU subgraph to its first instruction, and from its last one back."""
_MOVERS = (top.Reshape, top.Permute, top.Concat, top.Split, top.Slice, top.Expand, top.Tile, npu.Reinterpret)


@dataclass(frozen=True)
class Worth:
    """What an NPU subgraph saves and what the way costs, in seconds."""

    host: float
    """All its ops on the CPU."""
    engines: float
    """All its ops on the NPU, data on the chip."""
    moving: float
    """Its inputs and outputs through DRAM, its constants, and the call."""

    def pays(self, threshold: float) -> bool:
        """Whether more than `threshold` times the cost of the way is saved."""
        return self.host - self.engines > threshold * self.moving


def macs(op: Any) -> int:
    """Multiply-accumulates of a `top` or `npu` op; 0 for those that only move, compare or look up."""
    if not all(is_static(value) for value in (*op.operands, *op.results)):
        return 0
    if isinstance(op, npu.Conv | npu.FloatConv | top.Conv):
        return prod(shape_of(op.results[0])) * prod(shape_of(op.weight)[1:])
    if isinstance(op, npu.Deconv | npu.FloatDeconv | top.Deconv):
        return prod(shape_of(op.x)) * prod(shape_of(op.weight)[1:])
    if isinstance(op, npu.MatMul | npu.FloatMatMul | top.MatMul):
        return prod(shape_of(op.results[0])) * shape_of(op.operands[0])[-1]
    if isinstance(op, top.Attention):
        batch, heads, rows, depth = shape_of(op.query)
        columns, width = shape_of(op.value)[2:]
        return batch * heads * rows * columns * (depth + width)
    if isinstance(op, top.RNN | top.GRU | top.LSTM | npu.RNN | npu.GRU | npu.LSTM):
        steps, batch, width = shape_of(op.x)
        directions, gates, _ = shape_of(op.weight)
        projected = op.width * op.hidden if op.width != op.hidden else 0
        return steps * batch * directions * (gates * (width + op.width) + projected)
    if isinstance(op, top.QuantizedLSTM):
        first, second, width = shape_of(op.x)
        rows, outputs = shape_of(op.recurrence)
        projected = 0 if op.projection is None else outputs * op.hidden
        return first * second * (rows * (width + outputs) + projected)
    return 0


def bytes_of(value: Value) -> int:
    """The size of a tensor in memory."""
    return prod(shape_of(value)) * dtype_of(value.type).itemsize if is_static(value) else 0


def host_seconds(op: TensorOp) -> float:
    """What an op costs on the CPU."""
    moved = sum(map(bytes_of, (*op.operands, *op.results))) / HOST_BYTES
    if isinstance(op, _MOVERS):
        return HOST_NODE + moved
    elements = sum(prod(shape_of(value)) for value in op.results if is_static(value))
    return HOST_NODE + moved + elements / HOST_ELEMENTS + macs(op) / HOST_MACS


def worth_of(
    graph: Graph, ops: Sequence[TensorOp], inputs: Sequence[Value], outputs: Sequence[Value], target: Target
) -> Worth:
    """What a subgraph saves and costs."""
    least = bounds(build_network(graph, ops, inputs, outputs, target=target), target)
    clock = float(target.compute.clock)
    rate = float(target.memory.dram.bandwidth.bytes_per_cycle(target.compute.clock))
    engines = (max(least.matrix, least.vector) / target.compute.cores + START * len(ops)) / clock
    return Worth(sum(map(host_seconds, ops)), engines, least.bytes / rate / clock + LAUNCH)
