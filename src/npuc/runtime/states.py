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

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.program.model import CompiledModel, State
from npuc.runtime.tensors import ModelPorts


class StreamStates:
    """What the next run of a stream begins with; for any engine that takes and gives tensors by name."""

    def __init__(
        self,
        pairs: Mapping[str, str],
        begin: Mapping[str, Array],
        quantization: Mapping[str, tuple[float, int]] | None = None,
    ) -> None:
        self.pairs = dict(pairs)
        """Input to output."""
        self._begin = {name: begin[name] for name in self.pairs}
        self._values = dict(self._begin)
        self._quantization = quantization or {}
        """Scale and zero point of outputs that the engine gives as integers, and takes as reals."""

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def reset(self) -> None:
        """Begin a new stream."""
        self._values = dict(self._begin)

    def completed(self, inputs: Any) -> Any:
        """The inputs of a run, with the states that are not among them."""
        return {**self._values, **inputs}

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Take over what a run gave."""
        self._values = {
            name: self._taken(np.array(outputs[output]), output, self._begin[name].dtype)
            for name, output in self.pairs.items()
        }

    def _taken(self, value: Array, output: str, dtype: np.dtype[Any]) -> Array:
        if value.dtype == dtype or output not in self._quantization:
            return value
        scale, zero_point = self._quantization[output]
        return ((value.astype(np.float64) - zero_point) * scale).astype(dtype)


def zero_state(shape: Sequence[int], dtype: np.dtype[Any], zero_point: int) -> Array:
    """A state that stands for zeros."""
    return np.full(shape, 0 if dtype.kind == "f" else zero_point, dtype)


def with_initial_states(compiled: CompiledModel, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of a run that begins a stream: states of zero where none are given."""
    tensors = {state.input: compiled.tensor(state.input) for state in compiled.states}
    begin = {
        name: zero_state(tensor.shape, dtype_of(tensor.dtype).numpy, tensor.zero_point)
        for name, tensor in tensors.items()
    }
    return {**begin, **inputs}


class RunnerStates(StreamStates):
    """The states of a runner, whose runs may come from many threads."""

    def __init__(self, states: Sequence[State], ports: ModelPorts) -> None:
        pairs = {state.input: state.output for state in states}
        infos = {port.info.name: port.info for port in ports.inputs}
        begin = {
            name: zero_state(i.shape, i.dtype, i.zero_point) for name, i in infos.items() if name in pairs
        }
        super().__init__(pairs, begin)
        self.turn = Lock()
        """Held by a run, if there are states."""
        self._names = list(infos)

    def reset(self) -> None:
        """Begin a new stream, with states of zero."""
        with self.turn:
            super().reset()

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
        return super().completed(inputs)
