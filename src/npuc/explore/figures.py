"""The figures of machines: what a machine alone decides, what its bounds say, what it reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arithmetic.machine import MAX_CONTEXTS
from npuc.arrays import Array
from npuc.errors import TargetError
from npuc.explore.bounding import BoundedNetwork, MachineFigures, bounded, figures_of, lower_bounds
from npuc.explore.networks import PreparedNetwork
from npuc.explore.proxies import Coefficients, on_chip_bytes
from npuc.explore.space import Space

FIGURES = ("time", "bytes", "memory", "area", "energy")
"""Seconds of a run, bytes of DRAM in a run, bytes of memory on the chip, area, joules of a run."""


@dataclass(frozen=True)
class _Alone:
    """What a machine alone decides."""

    machine: MachineFigures
    memory: int
    area: float
    bank: int


@dataclass(frozen=True)
class MachineTable:
    """The machines of a space."""

    space: Space
    coefficients: Coefficients
    networks: tuple[tuple[BoundedNetwork, ...], ...]
    """By network and choice of bits."""
    weights: Array
    """Of the networks; their sum is 1."""
    refused: dict[int, str]
    """Combinations that are no machines, and why."""
    machines: dict[int, _Alone]

    @staticmethod
    def of(
        networks: Sequence[PreparedNetwork],
        space: Space,
        coefficients: Coefficients,
        step: Callable[[], None],
    ) -> MachineTable:
        """Look at every combination of a space."""
        names = {parameter.name for parameter in space.parameters}
        memory = space.base.memory
        with_decoder = memory.weight_decoder is not None or names & {"decoder", "memory.weight_decoder"}
        varied = names & {"contexts", "memory.weight_contexts"}
        contexts = MAX_CONTEXTS if varied else memory.weight_contexts or 0
        forms = tuple(
            tuple(bounded(graph, space.base, bool(with_decoder), contexts) for graph in network.graphs())
            for network in networks
        )
        weights = np.array([network.weight for network in networks])
        refused: dict[int, str] = {}
        machines: dict[int, _Alone] = {}
        for number in range(space.size):
            try:
                target = space.target(number)
            except TargetError as error:
                refused[number] = error.message
            else:
                machines[number] = _Alone(
                    figures_of(target),
                    on_chip_bytes(target),
                    coefficients.area(target),
                    target.memory.local.bank_size,
                )
            step()
        return MachineTable(space, coefficients, forms, weights / weights.sum(), refused, machines)

    def bounds(self) -> tuple[Array, Array]:
        """The numbers of all machines in order, and lower bounds of their figures."""
        groups: dict[tuple[object, int], list[int]] = {}
        for number, alone in self.machines.items():
            groups.setdefault((alone.machine.core, self.space.bits(number)), []).append(number)
        rows: dict[int, Array] = {}
        for (_, bits), numbers in groups.items():
            target = self.space.target(numbers[0])
            machines = [self.machines[number].machine for number in numbers]
            limits = [lower_bounds(forms[bits], target, machines) for forms in self.networks]
            for at, number in enumerate(numbers):
                rows[number] = self.row(
                    number, [(float(s), float(b)) for s, b in (each[at] for each in limits)]
                )
        ordered = sorted(rows)
        table = np.array([rows[number] for number in ordered]).reshape(-1, len(FIGURES))
        return np.array(ordered, np.int64), table

    def row(self, number: int, pairs: Sequence[tuple[float, float]]) -> Array:
        """The figures of a machine from the seconds and bytes of each network: geometric means by their weights."""
        alone, bits = self.machines[number], self.space.bits(number)
        joules = [
            self.coefficients.energy(alone.area, alone.bank, forms[bits].macs, *pair)
            for forms, pair in zip(self.networks, pairs, strict=True)
        ]
        seconds, sizes = zip(*pairs, strict=True)
        return np.array(
            [self._mean(seconds), self._mean(sizes), alone.memory, alone.area, self._mean(joules)]
        )

    def _mean(self, values: Sequence[float]) -> float:
        return float(np.exp(np.dot(self.weights, np.log(np.maximum(values, 1e-300)))))
