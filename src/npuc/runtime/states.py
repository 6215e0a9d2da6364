"""The state that a model carries from one run to the next.

    with Runner("vad.npu") as runner:
        for chunk in sound:
            speech = runner.run({"input": chunk})["output"]
        runner.reset()

A `RunnerStates` holds what the next run begins with. Runs that carry a state take turns: each begins when the one before it
is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.program.model import State
from npuc.runtime.tensors import ModelPorts


class RunnerStates:
    """The states of one stream."""

    def __init__(self, states: Sequence[State], ports: ModelPorts) -> None:
        self.pairs = {state.input: state.output for state in states}
        """Input to output."""
        self.turn = Lock()
        """Held by a run, if there are states."""
        self._begin = {
            port.info.name: np.full(
                port.info.shape, 0 if port.info.dtype.kind == "f" else port.info.zero_point, port.info.dtype
            )
            for port in ports.inputs
            if port.info.name in self.pairs
        }
        self._values = dict(self._begin)
        self._names = [port.info.name for port in ports.inputs]

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def reset(self) -> None:
        """Begin a new stream, with states of zero."""
        with self.turn:
            self._values = dict(self._begin)

    def values(self) -> dict[str, Array]:
        """What the next run begins with, by the names of inputs."""
        with self.turn:
            return {name: value.copy() for name, value in self._values.items()}

    def completed(self, inputs: Any) -> Any:
        """The inputs of a run with the states that are not among them; called in turn."""
        if not isinstance(inputs, Mapping):
            others = [name for name in self._names if name not in self.pairs]
            several = isinstance(inputs, Sequence) and not isinstance(inputs, str)
            if several and len(inputs) == len(self._names) and len(others) != len(self._names):
                return inputs
            given = list(inputs) if several and len(inputs) == len(others) else [inputs]
            if len(given) != len(others):
                raise InputDataError(f"the model takes {', '.join(others)}, beside its states")
            inputs = dict(zip(others, given, strict=True))
        return {**self._values, **inputs}

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Take over what a run gave; called in turn."""
        self._values = {name: outputs[output].copy() for name, output in self.pairs.items()}
