"""A device that is the simulator: the bits of the machine and, on request, its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count

from npuc.arrays import Array
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.runtime.device import register_device
from npuc.sim.cycles import simulate_streams
from npuc.sim.functional import Simulator

Fault = Callable[[int], None]
"""Called with the running number of an execution, from 0, before it begins; may raise or sleep."""


class SimulatedDevice:
    """The simulator as a device. Models of all targets run on it.

    With `timing`, an execution counts its cycles and takes at least the time that the machine would take, times
    `slowdown`. `fault` injects failures: what it raises is a failure of the device.
    """

    def __init__(
        self,
        *,
        timing: bool = False,
        slowdown: float = 1.0,
        fault: Fault | None = None,
        name: str = "simulated",
    ) -> None:
        self.name = name
        self._timing, self._slowdown = timing, slowdown
        self._fault = fault
        self._numbers = count()

    def load(self, model: CompiledModel, threads: int) -> SimulatedModel:
        """The memories of a machine with the model in them."""
        return SimulatedModel(
            Simulator(model, threads), self._before, self._slowdown if self._timing else None
        )

    def close(self) -> None:
        """There is nothing to let go of."""

    def _before(self) -> None:
        if self._fault is not None:
            self._fault(next(self._numbers))


class SimulatedModel:
    """A model in a simulator."""

    def __init__(self, simulator: Simulator, before: Callable[[], None], slowdown: float | None) -> None:
        self._simulator, self._before, self._slowdown = simulator, before, slowdown
        self._own = list(simulator.segments)
        self._cycles: dict[int, int] = {}

    @property
    def segments(self) -> Sequence[Array]:
        """DRAM."""
        return self._own

    def bind(self, segment: int, memory: Array | None) -> bool:
        """Any memory of this process will do."""
        self._simulator.bind(segment, self._own[segment] if memory is None else memory)
        return True

    def execute(self, subgraph: int) -> int | None:
        """Run a subgraph in instruction mode."""
        self._before()
        if self._slowdown is None:
            self._simulator.step(subgraph)
            return None
        begin, cycles = time.perf_counter(), self._cycles_of(subgraph)
        self._simulator.step(subgraph)
        seconds = cycles / self._simulator.machine.clock * self._slowdown
        time.sleep(max(0.0, begin + seconds - time.perf_counter()))
        return cycles

    def close(self) -> None:
        """The simulator frees its memory when nobody has it any more."""
        del self._simulator

    def _cycles_of(self, index: int) -> int:
        if index not in self._cycles:
            subgraph = self._simulator.compiled.subgraphs[index]
            assert isinstance(subgraph, NpuSubgraph)
            self._cycles[index] = simulate_streams(
                self._simulator.machine, subgraph.streams, subgraph.name
            ).total
        return self._cycles[index]


register_device("simulated", SimulatedDevice)
register_device("simulated-timing", lambda: SimulatedDevice(timing=True, name="simulated-timing"))
