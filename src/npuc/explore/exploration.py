"""`explore`: networks and a space of machines in, the front and what led to it out."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.distribute.cluster import run_on_cluster
from npuc.distribute.journal import EXPLORATION, Journal, open_journal
from npuc.distribute.plan import Chunk
from npuc.distribute.processes import WorkerProcesses
from npuc.errors import UsageError
from npuc.explore.figures import FIGURES, MachineTable
from npuc.explore.measuring import ExplorePlan, Measured
from npuc.explore.networks import ExploredNetwork, PreparedNetwork, prepare
from npuc.explore.pareto import front
from npuc.explore.proxies import Coefficients
from npuc.explore.search import SearchOptions, SearchResult, search
from npuc.explore.space import Space
from npuc.files import make_folder

_NUMBERS = 1 << 40
"""Above the number of any compilation of an exploration."""
OBJECTIVES = FIGURES[:4]
"""What counts if nothing else is said."""


@dataclass(frozen=True)
class Exploration:
    """A space of machines with all that was found out."""

    space: Space
    networks: tuple[PreparedNetwork, ...]
    objectives: tuple[str, ...]
    coefficients: Coefficients
    options: SearchOptions
    numbers: Array
    """Of the machines, within the space; rows of `bounds`, and what `search` calls a machine, count these."""
    refused: dict[int, str]
    """Combinations that are no machines, by their number, and why."""
    bounds: Array
    """All of `FIGURES` for each machine: lower bounds, or exact where a figure depends on the machine alone."""
    reached: dict[int, Array]
    """All of `FIGURES` of machines that were compiled for at the full level."""
    measured: dict[tuple[int, int], Measured]
    """By machine and network, at the full level."""
    search: SearchResult
    beaten: tuple[int, ...]
    """Machines with a figure below its bound: layers went to the CPU there, so bounds prove nothing."""

    @property
    def front(self) -> list[int]:
        """The machines that no other dominates, the fastest first."""
        machines = sorted(self.reached)
        columns = [FIGURES.index(name) for name in self.objectives]
        points = np.array([self.reached[machine][columns] for machine in machines])
        on_front = [machine for machine, keep in zip(machines, front(points), strict=True) if keep]
        return sorted(on_front, key=lambda machine: (*self.reached[machine], machine))

    @property
    def is_proven(self) -> bool:
        """Whether no machine of the space that was not compiled for can be better."""
        return not self.search.open and not self.beaten


def explore(
    networks: Sequence[ExploredNetwork],
    space: Space,
    folder: Path | str,
    *,
    objectives: Sequence[str] = OBJECTIVES,
    coefficients: Coefficients | None = None,
    options: SearchOptions | None = None,
    workers: int | None = 1,
    cluster: str | None = None,
    begin: Callable[[str, int], Callable[[], None]] = lambda label, total: lambda: None,
) -> Exploration:
    """Search a space for the machines that no other betters; `folder` gets the networks and a journal.

    An exploration that was killed goes on where it ended when it is called again with the same folder. With `workers` other
    than 1, processes compile (None: as many as there are processors), and with a `cluster` (the address of a Dask scheduler)
    its workers do. `begin` is told what begins and how many steps it has, and gives a function that is called after each.
    """
    options, coefficients = options or SearchOptions(), coefficients or Coefficients()
    _check(networks, objectives, options)
    place = make_folder(folder)
    step = begin("preparing networks", len(networks))
    prepared = []
    for number, network in enumerate(networks):
        prepared.append(prepare(network, number, space.bit_widths, space.base, place / "networks"))
        step()
    table = MachineTable.of(prepared, space, coefficients, begin("bounding machines", space.size))
    numbers, bounds = table.bounds()
    if not len(numbers):
        why = next(iter(table.refused.values()), "the space is empty")
        raise UsageError("no combination of the parameters is a machine", fix=f"Of the first: {why}")
    measured: dict[tuple[int, int], Measured] = {}
    reached: dict[int, Array] = {}
    columns = [FIGURES.index(name) for name in objectives]
    key = _key(prepared, space)
    with ExitStack() as stack:
        journal = open_journal(place / "journal", {"networks or machines": key}, _NUMBERS, EXPLORATION)
        stack.callback(journal.close)
        compilers = _Compilers(ExplorePlan(tuple(prepared), space, key), journal, workers, cluster, stack)

        def compile_for(machines: Sequence[int], level: int) -> dict[int, Array | str]:
            step = begin(f"compiling at -O{level}", len(machines) * len(networks))
            results = compilers.run([int(numbers[machine]) for machine in machines], level, step)
            figures: dict[int, Array | str] = {}
            for machine in machines:
                number = int(numbers[machine])
                lines = [results[number, network] for network in range(len(networks))]
                failures = [line for line in lines if isinstance(line, str)]
                if failures:
                    figures[machine] = failures[0]
                    continue
                done = [line for line in lines if isinstance(line, Measured)]
                row = table.row(number, [(line.seconds, line.bytes) for line in done])
                figures[machine] = row[columns]
                if level == options.level:
                    reached[machine] = row
                    measured.update({(machine, network): line for network, line in enumerate(done)})
            return figures

        choices = np.array([space.choice(int(number)) for number in numbers]).reshape(len(numbers), -1)
        outcome = search(bounds[:, columns], choices, compile_for, options)
    beaten = tuple(machine for machine, row in sorted(reached.items()) if np.any(row < bounds[machine]))
    return Exploration(
        space, tuple(prepared), tuple(objectives), coefficients, options, numbers, table.refused, bounds, reached, measured,
        outcome, beaten,
    )  # fmt: skip


def _check(networks: Sequence[ExploredNetwork], objectives: Sequence[str], options: SearchOptions) -> None:
    if not networks:
        raise UsageError("there is no network to find a machine for")
    for network in networks:
        if not 0 < network.weight < float("inf"):
            raise UsageError(f"the weight of {network.path} is not a number above 0")
    unknown = [name for name in objectives if name not in FIGURES]
    if unknown or not objectives or len(set(objectives)) < len(objectives):
        raise UsageError(
            f"{', '.join(unknown) or 'a repeated or empty list'} is no choice of objectives",
            fix=f"Choose from {', '.join(FIGURES)}",
        )
    if options.machines < 1 or not 0 <= options.quick_level < options.level <= 3:
        raise UsageError(
            "at least one machine is compiled for, at a level from 1 to 3, above that of the quick rung"
        )


class _Compilers:
    """Those who compile: this process, others, or a cluster. What the journal has is not compiled again."""

    def __init__(
        self, plan: ExplorePlan, journal: Journal, workers: int | None, cluster: str | None, stack: ExitStack
    ) -> None:
        self.plan, self.journal, self.cluster = plan, journal, cluster
        self.lines = dict(journal.done)
        count = len(os.sched_getaffinity(0)) if workers is None else workers
        self.processes: WorkerProcesses | None = None
        if cluster is None and count > 1:
            self.processes = stack.enter_context(WorkerProcesses(plan, count))
        self.here = plan.open() if cluster is None and count == 1 else None

    def run(
        self, machines: Sequence[int], level: int, step: Callable[[], None]
    ) -> dict[tuple[int, int], Measured | str]:
        """The figures of machines, by machine and network."""
        count = len(self.plan.networks)
        tasks = {
            (level * self.plan.space.size + machine) * count + network: (machine, network, level)
            for machine in machines
            for network in range(count)
        }
        left = [(number, task) for number, task in tasks.items() if number not in self.lines]
        for _ in range(len(tasks) - len(left)):
            step()
        for number, line in self._results(left):
            self.lines[number] = line
            self.journal.add(number, [line])
            step()
        return {task[:2]: Measured.of(self.lines[number]) for number, task in tasks.items()}

    def _results(self, chunks: Sequence[Chunk]) -> Iterator[tuple[int, str]]:
        if not chunks:
            return
        if self.cluster is not None:
            yield from run_on_cluster(self.plan, chunks, self.cluster)
        elif self.processes is not None:
            yield from self.processes.run(chunks)
        else:
            assert self.here is not None
            for number, task in chunks:
                yield number, self.here(task)


def _key(networks: Sequence[PreparedNetwork], space: Space) -> str:
    """What figures depend on: networks and machines, in a few digits."""
    data = {
        "networks": [network.digest for network in networks],
        "base": space.base.to_dict(),
        "parameters": [asdict(parameter) for parameter in space.parameters],
    }
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]
