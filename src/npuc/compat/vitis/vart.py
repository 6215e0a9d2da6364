"""`vart`: a runner of a DPU subgraph, with the integers of the DPU in the caller's arrays.

    runner = vart.Runner.create_runner(subgraph, "run")
    job = runner.execute_async([image], [scores])       # int8, N x H x W x C, contiguous
    runner.wait(job)

The simulator of npuc executes the program's instructions to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compat.vitis.xir import Graph, Subgraph, Tensor
from npuc.errors import InputDataError, UsageError
from npuc.runtime import Job
from npuc.runtime import Runner as ProgramRunner

__all__ = ["Runner", "TensorFormat"]


class TensorFormat(Enum):
    """The order of axes of tensors of rank 4."""

    NCHW = 0
    NHWC = 1


class Runner:
    """Runs one subgraph; any number of threads may use it."""

    def __init__(self, subgraph: Subgraph | Path | str, mode: str = "run") -> None:
        if isinstance(subgraph, str | Path):
            subgraph = _only_dpu(Graph.deserialize(subgraph))
        if not isinstance(subgraph, Subgraph):
            raise UsageError(f"a runner is made of a subgraph, not of a {type(subgraph).__name__}")
        if mode not in ("run", "sim", ""):
            raise UsageError(f"there is no mode '{mode}'", fix="Give 'run'")
        part = subgraph.part()
        if part.device != "DPU":
            raise UsageError(
                f"'{subgraph.get_name()}' is not a subgraph of the DPU",
                fix="Take one whose get_attr('device') is 'DPU'; vitis_ai_library.GraphRunner runs whole models",
            )
        self._runner = ProgramRunner(part.model, raw=True)
        self._inputs = [_tensor(info) for info in self._runner.input_tensors]
        self._outputs = [_tensor(info) for info in self._runner.output_tensors]
        self._jobs: dict[int, Job] = {}
        self._numbers, self._lock = count(), Lock()

    @staticmethod
    def create_runner(subgraph: Subgraph, mode: str = "run") -> Runner:
        """A runner of a subgraph."""
        return Runner(subgraph, mode)

    def get_input_tensors(self) -> list[Tensor]:
        """What it takes, in order."""
        return list(self._inputs)

    def get_output_tensors(self) -> list[Tensor]:
        """What it gives, in order."""
        return list(self._outputs)

    def get_tensor_format(self) -> TensorFormat:
        """The order of axes."""
        return TensorFormat.NHWC

    def execute_async(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        """Begin a run that writes into the arrays of the caller; the number of the job."""
        given = arrays_by_name(inputs, self._runner.input_tensors, "input")
        places = arrays_by_name(outputs, self._runner.output_tensors, "output")
        job = self._runner.execute_async(given, places)
        with self._lock:
            number = next(self._numbers)
            self._jobs[number] = job
        return number

    def wait(self, job_id: int, timeout: int = -1) -> int:
        """Wait for a job, `timeout` milliseconds at most; 0, or an error."""
        with self._lock:
            job = self._jobs.get(job_id)
        if job is None:
            raise UsageError(f"there is no job {job_id!r}, or it was waited for already")
        self._runner.wait(job, None if timeout < 0 else timeout / 1000)
        with self._lock:
            self._jobs.pop(job_id, None)
        return 0


def arrays_by_name(arrays: Any, tensors: Sequence[Any], word: str) -> dict[str, Array]:
    """The caller's arrays, in the order of a runner's tensors, as npuc has their axes; nothing is copied."""
    if not isinstance(arrays, list | tuple) or len(arrays) != len(tensors):
        raise InputDataError(
            f"{len(tensors)} {word}s are needed, as a list of arrays in the order of the tensors"
        )
    views = {}
    for array, tensor in zip(arrays, tensors, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype != tensor.dtype:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise InputDataError(
                f"{word} '{tensor.name}' is {kind}, and has to be a NumPy array of {tensor.dtype}"
            )
        if not array.flags.c_contiguous:
            raise InputDataError(
                f"{word} '{tensor.name}' is not contiguous", fix="Give np.empty(dims, dtype, order='C')"
            )
        shape = tensor.shape
        stored = (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape
        if array.size != int(np.prod(shape)):
            raise InputDataError(
                f"{word} '{tensor.name}' has shape {list(array.shape)}, and takes {list(stored)}"
            )
        view = array.reshape(stored)
        views[tensor.name] = view.transpose(0, 3, 1, 2) if len(shape) == 4 else view
    return views


def _tensor(info: Any) -> Tensor:
    kind = {"int8": "i8", "uint8": "ui8", "int16": "i16", "int32": "i32", "float32": "f32"}[info.dtype.name]
    return Tensor(info.name, info.shape, kind, info.scale if info.dtype.kind in "iu" else 0.0)


def _only_dpu(graph: Graph) -> Subgraph:
    parts = [part for part in graph.parts if part.get_attr("device") == "DPU"]
    if len(parts) != 1:
        raise UsageError(
            f"the model has {len(parts)} DPU subgraphs", fix="Give one of them, from xir.Graph.deserialize"
        )
    return parts[0]


setattr(Runner, "TensorFormat", TensorFormat)  # noqa: B010  (mypy would take the attribute for the type)
