"""Programs of a chip seen by a debugger: each subgraph runs as a whole on the chip, and tensors between subgraphs are in DRAM.

What a subgraph of the chip keeps in its own memory is not seen; `npuc run --dump-layers` stores what is.
"""

from __future__ import annotations

import weakref

from npuc.host import HostSubgraphs
from npuc.program.model import ChipSubgraph, CompiledModel
from npuc.runtime.bm1684x import Bm1684xDevice
from npuc.sim.functional import Simulator


class ChipSimulator(Simulator):
    """The functional model of a chip in the place of npuc's simulator: the same memories, stepped by subgraph."""

    def __init__(self, compiled: CompiledModel, threads: int = 1) -> None:
        self.compiled, self.threads = compiled, threads
        self._chip = Bm1684xDevice().load(compiled, threads)
        self.segments = list(self._chip.segments)
        self.host = HostSubgraphs(compiled, threads)
        weakref.finalize(self, self._chip.close)

    def step(self, index: int) -> None:
        """Execute one subgraph."""
        if isinstance(self.compiled.subgraphs[index], ChipSubgraph):
            self._chip.execute(index)
        else:
            super().step(index)


def simulator_of(compiled: CompiledModel, threads: int = 1) -> Simulator:
    """What executes a compiled model subgraph by subgraph."""
    if any(isinstance(part, ChipSubgraph) for part in compiled.subgraphs):
        return ChipSimulator(compiled, threads)
    return Simulator(compiled, threads)
