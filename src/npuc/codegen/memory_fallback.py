"""The one obstacle that is met while a subgraph is scheduled: a layer that finds no room in local memory, however it is cut.

Whether a layer finds room depends on the level of optimization, the cores and what the user pins, so only the search for a
schedule can tell (`DoesNotFit`). Compiling then begins again with less asked of the NPU, first with the layer cut by input
channels, whose sums are one more thing to keep, and then with it on the CPU. Each round settles one layer, so it comes to an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npuc.errors import CompileError
from npuc.ir import Graph, shape_of, top, value_name
from npuc.partition.host import reason_against_host
from npuc.partition.obstacles import Obstacle, ObstacleRule
from npuc.partition.overrides import placed
from npuc.schedule.grouping import DoesNotFit
from npuc.target import Target


@dataclass
class Placement:
    """Where layers go, as far as it is settled."""

    graph: Graph
    target: Target
    devices: dict[str, str]
    """What the user asked for, and `cpu` for layers that found no room."""
    by_inputs: set[str]
    """Layers that are cut by input channels."""
    usable: int
    """Bytes of local memory that may be used."""
    too_large: dict[str, Obstacle] = field(default_factory=dict)
    """Layers that found no room."""
    _asked: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._asked = dict(self.devices)

    def give_way(self, failure: DoesNotFit) -> None:
        """Ask less of the NPU for the layer that found no room; `CompileError` if it has no other place."""
        layer = value_name(failure.layer.source.results[0])
        if failure.layer.by_inputs is not None and layer not in self.by_inputs:
            self.by_inputs.add(layer)
            return
        whole = int(self.target.memory.local.size)
        facts = {"target": self.target.name, "needed": failure.bytes, "whole": whole}
        if failure.bytes <= whole and self.usable < whole:
            raise CompileError(
                Obstacle.of(ObstacleRule.MEMORY_LIMIT, **facts, allowed=self.usable).reason,
                where=f"layer '{layer}'",
                fix=f"Allow more, or put the layer on the CPU with --device '{layer}=cpu'",
            ) from failure
        obstacle = Obstacle.of(ObstacleRule.LOCAL_MEMORY, **facts, allowed=whole)
        against_host = reason_against_host(failure.layer.source, self.graph)
        if against_host is not None:
            raise self._nowhere(layer, failure, obstacle, against_host) from failure
        if self._is_asked_for(layer):
            raise CompileError(
                obstacle.reason,
                where=f"layer '{layer}'",
                fix=f"Leave out what puts it on the NPU (--device '{layer}=npu')",
            ) from failure
        self.leave_to_cpu({layer: obstacle})

    def leave_to_cpu(self, layers: Mapping[str, Obstacle]) -> None:
        """Put layers on the CPU that found no room."""
        self.too_large.update(layers)
        self.devices.update(dict.fromkeys(layers, "cpu"))

    def _nowhere(
        self, layer: str, failure: DoesNotFit, obstacle: Obstacle, against_host: str
    ) -> CompileError:
        alike = self._alike(failure.layer.source)
        more = f". There are {len(alike)} layers like this" if len(alike) > 1 else ""
        return CompileError(
            f"{obstacle.reason}; on the CPU, {against_host}{more}",
            where=f"layer '{layer}'",
            fix="Choose a target with more local memory, or keep the layer float when the network is quantized: "
            f"npuc quantize --keep-float '{','.join(alike)}'",
        )

    def _alike(self, op: Any) -> list[str]:
        """The layers of the same kind and shapes as one, which fit as little, in order."""

        def form(other: Any) -> tuple[Any, ...]:
            return type(other), *(shape_of(value) for value in (*other.operands, *other.results))

        return [
            value_name(other.results[0]) for other in self.graph.ops if other is op or form(other) == form(op)
        ]

    def _is_asked_for(self, layer: str) -> bool:
        """Whether a user puts a layer on the NPU."""
        ops: list[Any] = [op for op in self.graph.ops if not isinstance(op, top.WeightOp) and op.results]
        aliases = self.graph.layer_aliases() if self._asked else None
        named = placed(ops, self._asked, aliases=aliases)
        return any(where == "npu" and value_name(op.results[0]) == layer for op, where in named.items())
