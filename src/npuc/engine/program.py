"""A program of graph mode, laid out: every quantized tensor has its place in memory, every step its prepared calls.

Steps that only view, copy and call the core are recorded on a tape (`npuc.kernels.tape`) and cost next to nothing
to start. The others (ops that stayed float, and the way in and out of integers) run on the arrays of the moment; what
they make is held in `slots` until its last use, or copied to its place if it is quantized.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine.arena import Arena
from npuc.errors import EngineError
from npuc.kernels.calls import status_words
from npuc.kernels.tape import Call, Tape, copy, recording


@dataclass(frozen=True)
class ProgramStep:
    """One op: what it does to arrays, and which values it reads and makes."""

    name: str
    function: Callable[[list[Array]], list[Array]]
    recordable: bool
    in_place: bool
    """Whether a recorded step may read an input of the program where the user has it."""
    operands: tuple[int, ...]
    results: tuple[int, ...]
    places: tuple[tuple[tuple[int, ...], np.dtype[Any]] | None, ...]
    """For each quantized result its shape in memory order and its type."""
    dying: tuple[int, ...]
    """Values that nothing after this step needs."""


class RecordedProgram:
    """Steps in memory of their own; one run at a time."""

    def __init__(
        self,
        steps: Sequence[ProgramStep],
        constants: Mapping[int, Array],
        inputs: Mapping[int, tuple[tuple[int, ...], np.dtype[Any]]],
    ) -> None:
        self.arrays: dict[int, Array] = dict(constants)
        """Values whose place does not change."""
        self.slots: dict[int, Array] = {}
        """Values of the run that is under way."""
        self._steps = steps
        self._calls: list[Call] = []
        self._owners: list[int] = []
        self._kept: list[Any] = []
        # A stand-in for each input: nothing reads its memory, its address is replaced in every run.
        self._stand_ins = {value: np.empty(*place) for value, place in inputs.items()}
        self._cells = {value: ctypes.c_void_p() for value in inputs}
        arena = Arena()
        for index, step in enumerate(steps):
            known = self._stand_ins.keys() | self.arrays.keys() if step.in_place else self.arrays.keys()
            recorded = step.recordable and all(value in known for value in step.operands)
            calls = self._record(step, arena) if recorded else [self._start(step, arena)]
            self._calls += calls
            self._owners += [index] * len(calls)
            for value in step.results:
                if value in self.arrays:
                    arena.use(self.arrays[value])
            for value in step.dying:
                if value in self.arrays:
                    arena.drop(self.arrays[value])
            arena.sweep()
        self.memory = arena.size
        """Bytes of the tensors."""

    def _record(self, step: ProgramStep, arena: Arena) -> list[Call]:
        cells = {self._stand_ins[value].ctypes.data: cell for value, cell in self._cells.items()}
        with recording(Tape(arena.new, cells)) as tape:
            results = step.function([self._array(value) for value in step.operands])
        self.arrays.update(zip(step.results, results, strict=True))
        self._kept.append(tape.kept)
        return tape.calls

    def _array(self, value: int) -> Array:
        return self.arrays[value] if value in self.arrays else self._stand_ins[value]

    def _start(self, step: ProgramStep, arena: Arena) -> Call:
        """A call that runs a step on whatever its operands are then."""
        arrays, slots = self.arrays, self.slots
        for value, place in zip(step.results, step.places, strict=True):
            if place is not None:
                buffer = arena.new(*place)
                arrays[value] = buffer.transpose(0, 3, 1, 2) if buffer.ndim == 4 else buffer
        dying = [value for value in step.dying if value not in arrays]

        def run() -> None:
            results = step.function([arrays[v] if v in arrays else slots[v] for v in step.operands])
            for value, array in zip(step.results, results, strict=True):
                if value in arrays:
                    copy(arrays[value], array)
                else:
                    slots[value] = array
            for value in dying:
                slots.pop(value, None)

        return run

    def run(self, inputs: Mapping[int, Array]) -> None:
        """Run all steps on dense arrays; results are in `arrays` and `slots`."""
        self._feed(inputs)
        for call in self._calls:
            if call():
                self._fail(call)

    def timed(self, inputs: Mapping[int, Array]) -> list[tuple[str, float]]:
        """Run all steps, and tell what each took in seconds."""
        self._feed(inputs)
        seconds = [0.0] * len(self._steps)
        for index, call in zip(self._owners, self._calls, strict=True):
            start = perf_counter()
            if call():
                self._fail(call)
            seconds[index] += perf_counter() - start
        return [(step.name, taken) for step, taken in zip(self._steps, seconds, strict=True)]

    def _feed(self, inputs: Mapping[int, Array]) -> None:
        self.slots.clear()
        self.slots.update(inputs)
        for value, cell in self._cells.items():
            cell.value = inputs[value].ctypes.data

    def value(self, index: int) -> Array:
        """A value after a run."""
        return self.arrays[index] if index in self.arrays else self.slots[index]

    def _fail(self, call: Call) -> None:
        step = self._steps[self._owners[self._calls.index(call)]]
        raise EngineError(f"the core refused to run {step.name}: {status_words(call())}")
