"""Subgraphs: ops of one device that can run one after the other without waiting for another device.

Every op has a level: that of the op before it, or one more where the device changes. Ops of one level and device form a
subgraph, so subgraphs are convex and run in the order of their levels.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from npuc.errors import CompileError
from npuc.ir import Graph, Value, npu, result_names, shown_name, top
from npuc.ir.definition import TensorOp
from npuc.partition.accelerators import claimant
from npuc.partition.ends import Side, sides
from npuc.partition.fit import Fit, fit_of, joins_floats
from npuc.partition.host import reason_against_host
from npuc.partition.obstacles import Obstacle, ObstacleRule
from npuc.partition.overrides import placed
from npuc.partition.work import worth_of
from npuc.target import Target

_LOG = logging.getLogger(__name__)

Device = str
"""`npu`, `cpu`, `convert` for conversions between reals and integers, or the name of an accelerator that a plugin brings."""
ISLAND_THRESHOLD = 1.0
"""An NPU subgraph beside the CPU has to save more than so many times what moving its data costs."""


@dataclass(frozen=True)
class Part:
    """A subgraph."""

    device: Device
    ops: tuple[TensorOp, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True)
class Partition:
    """Subgraphs in the order in which they run, and why ops are not on the NPU."""

    parts: tuple[Part, ...]
    obstacles: Mapping[str, Obstacle] = field(default_factory=dict)
    """Name of an op's result to what keeps it from the NPU."""
    fits: Mapping[str, Fit] = field(default_factory=dict)
    """Name of an op's result to what the target says of it."""
    sides: Mapping[str, Side] = field(default_factory=dict)
    """Name of an op's result to `before` or `after`, for float ops before the first and after the last integer op."""

    @property
    def reasons(self) -> dict[str, str]:
        """Name of an op's result to the reason why it is on the CPU."""
        return {name: obstacle.reason for name, obstacle in self.obstacles.items()}

    @property
    def levers(self) -> dict[str, str]:
        """Name of an op's result to what would bring it to the NPU, where something is known."""
        return {name: lever for name, obstacle in self.obstacles.items() if (lever := obstacle.lever)}

    def with_obstacles(self, more: Mapping[str, Obstacle]) -> Partition:
        """The same subgraphs, with what else is known of some ops."""
        return replace(self, obstacles={**self.obstacles, **more})


def partition(
    graph: Graph,
    target: Target,
    overrides: Mapping[str, str] | None = None,
    island_threshold: float = ISLAND_THRESHOLD,
    least_ops: int = 1,
) -> Partition:
    """Cut an Npu program into subgraphs.

    `overrides` puts layers on a device: a name, or a pattern with * and ?, to cpu or npu. An NPU subgraph that saves no
    more than `island_threshold` times what moving its data costs is given to the CPU beside it; 0 gives none. So
    is one of fewer than `least_ops` ops, wherever it is, if the CPU can run them all.
    """
    ops: list[TensorOp] = [op for op in graph.ops if not isinstance(op, top.WeightOp)]  # type: ignore[misc]
    obstacles: dict[str, Obstacle] = {}
    fits: dict[str, Fit] = {}
    device: dict[Any, Device] = {}
    overridden = placed(ops, overrides or {}, aliases=graph.layer_aliases() if overrides else None)
    for op in ops:
        if isinstance(op, npu.Quantize | npu.Dequantize):
            # Integer weights of a layer that computes in float belong to that layer.
            constant = graph.constant(op.operands[0]) is not None
            device[op] = "npu" if joins_floats(op, graph, target) else "cpu" if constant else "convert"
            continue
        taker = None if op in overridden else claimant(op, graph, target)
        if taker is not None:
            device[op] = taker
            obstacles[result_names(op)[0]] = Obstacle.of(ObstacleRule.ACCELERATOR, accelerator=taker)
            continue
        name, fit = result_names(op)[0], fit_of(op, graph, target)
        fits[name] = fit
        device[op] = "npu" if fit else "cpu"
        if overridden.get(op) == "npu" and not fit:
            raise CompileError(
                f"it cannot run on the NPU as asked: {fit.reason}", where=_where(op), fix=fit.lever or None
            )
        if overridden.get(op) == "cpu":
            against = reason_against_host(op, graph)
            if against is not None:
                raise CompileError(
                    f"it cannot run on the CPU as asked: {against}",
                    where=_where(op),
                    fix=f"Keep it float when the network is quantized: npuc quantize --keep-float '{name}'",
                )
            device[op], obstacles[name] = "cpu", Obstacle.of(ObstacleRule.AS_ASKED)
        elif fit.obstacle is not None:
            obstacles[name] = fit.obstacle
    fixed = set(overridden)
    while True:
        parts = _parts(graph, ops, device)
        given = _few_ops(graph, parts, fixed, least_ops)
        if island_threshold > 0 and not given:
            given = _islands(graph, parts, device, fixed, target, island_threshold)
        if not given:
            break
        for op, obstacle in given.items():
            device[op], obstacles[result_names(op)[0]] = "cpu", obstacle
    _LOG.info(
        "partition for %s: %s", target.name, ", ".join(f"{len(part.ops)} on {part.device}" for part in parts)
    )
    for name, obstacle in obstacles.items():
        _LOG.debug("%s is not on the NPU: %s", name, obstacle.reason)
    return Partition(tuple(parts), obstacles, fits, sides(graph, ops))


def _where(op: TensorOp) -> str:
    return f"layer '{shown_name(op)}'"


def _parts(graph: Graph, ops: list[TensorOp], device: Mapping[Any, Device]) -> list[Part]:
    level: dict[Any, int] = {}
    for op in ops:
        before = 0
        for value in op.operands:
            owner = value.owner
            if owner in level:
                before = max(before, level[owner] + (device[owner] != device[op]))
        level[op] = before
    groups: dict[tuple[int, Device], list[TensorOp]] = {}
    for op in ops:
        groups.setdefault((level[op], device[op]), []).append(op)
    outputs = {port.value for port in graph.outputs}
    return [
        _part(graph, kind, tuple(members), outputs)
        for (_, kind), members in sorted(groups.items(), key=lambda item: item[0])
    ]


def _part(graph: Graph, device: Device, ops: tuple[TensorOp, ...], graph_outputs: set[Value]) -> Part:
    inside = set(ops)
    inputs: dict[Value, None] = {}
    outputs: dict[Value, None] = {}
    for op in ops:
        for value in op.operands:
            if value.owner not in inside and graph.constant(value) is None:
                inputs[value] = None
        for value in op.results:
            # A conversion always writes a tensor, even if the next one is beside it.
            if (
                device == "convert"
                or value in graph_outputs
                or any(use.operation not in inside for use in value.uses)
            ):
                outputs[value] = None
    return Part(device, ops, tuple(inputs), tuple(outputs))


def _may_go(part: Part, graph: Graph, fixed: set[Any]) -> bool:
    """Whether the CPU can have all ops of a subgraph, and nobody asked otherwise."""
    return not any(op in fixed or reason_against_host(op, graph) is not None for op in part.ops)


def _few_ops(graph: Graph, parts: list[Part], fixed: set[Any], least: int) -> dict[Any, Obstacle]:
    """Ops of NPU subgraphs that are smaller than a user wants them."""
    given: dict[Any, Obstacle] = {}
    for part in parts:
        if part.device == "npu" and len(part.ops) < least and _may_go(part, graph, fixed):
            obstacle = Obstacle.of(ObstacleRule.FEW_OPS, ops=len(part.ops), least=least)
            given.update(dict.fromkeys(part.ops, obstacle))
    return given


def _islands(
    graph: Graph,
    parts: list[Part],
    device: Mapping[Any, Device],
    fixed: set[Any],
    target: Target,
    threshold: float,
) -> dict[Any, Obstacle]:
    """Ops of NPU subgraphs that are not worth the way, with the reason."""
    given: dict[Any, Obstacle] = {}
    for part in parts:
        if part.device != "npu" or not part.outputs or not _beside_cpu(part, device):
            continue
        if not _may_go(part, graph, fixed):
            continue
        worth = worth_of(graph, part.ops, part.inputs, part.outputs, target)
        if not worth.pays(threshold):
            saved = max(worth.host - worth.engines, 0.0)
            obstacle = Obstacle.of(ObstacleRule.SMALL_SUBGRAPH, saved=saved * 1e6, moving=worth.moving * 1e6)
            given.update(dict.fromkeys(part.ops, obstacle))
    return given


def _beside_cpu(part: Part, device: Mapping[Any, Device]) -> bool:
    """Whether an op of the CPU is before or after a subgraph, with nothing but conversions between."""

    def before(value: Value) -> bool:
        owner = value.owner
        if device.get(owner) == "convert":
            return any(before(operand) for operand in owner.operands)  # type: ignore[union-attr]
        return device.get(owner) == "cpu"

    def after(value: Value) -> bool:
        for use in value.uses:
            kind = device.get(use.operation)
            if kind == "cpu" or (kind == "convert" and any(map(after, use.operation.results))):
                return True
        return False

    return any(map(before, part.inputs)) or any(map(after, part.outputs))
