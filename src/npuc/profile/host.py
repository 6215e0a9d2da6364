"""The time of what runs on the CPU, measured: ONNX Runtime on this machine, on zeros."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.host import Session
from npuc.profile.plan import host_estimates
from npuc.program.model import CompiledModel, CpuSubgraph

_RUNS = 5


@dataclass(frozen=True)
class HostTime:
    """A subgraph of the CPU."""

    name: str
    layers: tuple[str, ...]
    """Those that have a reason to be there."""
    seconds: float | None
    """The shortest of several runs; None if it was not run."""
    estimate: float | None = None
    """What the compiler thinks that a small application processor takes, in seconds; None if the file does not say."""

    @property
    def best(self) -> float:
        """What was measured, or else estimated."""
        return self.seconds if self.seconds is not None else self.estimate or 0.0


def host_times(compiled: CompiledModel, *, measure: bool = True, threads: int = 1) -> list[HostTime]:
    """The subgraphs of the CPU; with `measure`, each is run a few times."""
    estimates = host_estimates(compiled)
    return [
        HostTime(
            subgraph.name,
            tuple(subgraph.reasons),
            _seconds(compiled, subgraph, threads) if measure and subgraph.model else None,
            estimates.get(subgraph.name),
        )
        for subgraph in compiled.subgraphs
        if isinstance(subgraph, CpuSubgraph)
    ]


def _seconds(compiled: CompiledModel, subgraph: CpuSubgraph, threads: int) -> float:
    tensors = [compiled.tensor(name) for name in subgraph.inputs]
    inputs = {tensor.name: np.zeros(tensor.shape, dtype_of(tensor.dtype).numpy) for tensor in tensors}
    session = Session(subgraph.model, subgraph.name, threads)
    taken = []
    for _ in range(1 + _RUNS):
        start = perf_counter()
        session.run(subgraph.outputs, inputs)
        taken.append(perf_counter() - start)
    return min(taken[1:])
