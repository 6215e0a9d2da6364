"""A network that is decided on, and its program wherever the objects in local memory lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from npuc.arrays import Array
from npuc.program.model import Allocation
from npuc.schedule.assemble import Assembler, Bound, Dram, Spans, Written
from npuc.schedule.barriers import order_queues
from npuc.schedule.decisions import PrefetchPolicy, ScheduleDecisions
from npuc.schedule.steps import Buffer, Compute, Work


@dataclass(frozen=True)
class UnplacedSchedule:
    """All of a program but when loads are issued and where objects lie in local memory."""

    schedule_decisions: ScheduleDecisions
    works: tuple[Work, ...]
    """What each core does."""
    names: Sequence[str]
    first_layer: int
    local: int
    """Bytes of local memory that the machine has."""
    dram: Dram
    bound: dict[Compute, list[Bound]] = field(default_factory=dict)
    """What the assembler remembers from one writing to the next."""

    def write(
        self, addresses: Sequence[Mapping[Buffer, int]], prefetch: PrefetchPolicy | None = None
    ) -> Scheduled:
        """The program with its objects at these addresses, one map a core, and loads issued as they are in the works."""
        order_queues(self.works)
        names = list(self.names)
        cores = [
            Assembler(names, self.first_layer, self.local, self.dram, here, bound=self.bound)
            for here in addresses
        ]
        streams = tuple(a.assemble(work) for a, work in zip(cores, self.works, strict=True))
        return Scheduled(
            replace(self.schedule_decisions, prefetch=prefetch),
            self.works,
            streams,
            tuple(allocation for core, a in enumerate(cores) for allocation in a.allocations(core)),
            tuple(self.dram.constants),
            self.dram.workspace,
            tuple(written for core, a in enumerate(cores) for written in a.written(core)),
            self,
            tuple(a.spans() for a in cores),
            tuple(addresses),
        )


@dataclass(frozen=True)
class Scheduled:
    """One way to run a network: decided, placed, and assembled."""

    schedule_decisions: ScheduleDecisions
    works: tuple[Work, ...]
    """What each core does."""
    streams: tuple[Array, ...]
    allocations: tuple[Allocation, ...]
    constants: tuple[tuple[int, tuple[int, int]], ...]
    """Blocks of constants in the order in which they are streamed."""
    workspace: int
    written: tuple[Written, ...]
    """Where instructions write the results of layers."""
    unplaced: UnplacedSchedule
    spans: tuple[Spans, ...]
    """Of each core."""
    addresses: tuple[Mapping[Buffer, int], ...]
    """Where the buffers of each core lie."""

    @property
    def memory(self) -> int:
        """Bytes of local memory that a core needs: up to the highest in use."""
        return max((allocation.address + allocation.size for allocation in self.allocations), default=0)
