"""`vitis_ai_library`: whole models, with reals at their ends and the CPU parts inside."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compat.vitis.vart import arrays_by_name
from npuc.compat.vitis.xir import Graph, Tensor
from npuc.errors import UsageError
from npuc.runtime import Runner

__all__ = ["GraphRunner", "TensorBuffer"]


class TensorBuffer:
    """An array of a graph runner; `np.asarray` shows its memory."""

    def __init__(self, tensor: Tensor, array: Array) -> None:
        self._tensor, self._array = tensor, array

    def get_tensor(self) -> Tensor:
        """What it holds."""
        return self._tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if dtype is not None and np.dtype(dtype) != self._array.dtype:
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array


class GraphRunner:
    """Runs a compiled model from its float inputs to its float outputs."""

    def __init__(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise UsageError(f"a graph runner is made of a graph, not of a {type(graph).__name__}")
        self._runner = Runner(graph.get_root_subgraph().part().model)
        self._inputs = [_buffer(info) for info in self._runner.input_tensors]
        self._outputs = [_buffer(info) for info in self._runner.output_tensors]
        self._numbers = count()

    @staticmethod
    def create_graph_runner(graph: Graph) -> GraphRunner:
        """A runner of a graph."""
        return GraphRunner(graph)

    def get_inputs(self) -> list[TensorBuffer]:
        """Arrays to be filled."""
        return list(self._inputs)

    def get_outputs(self) -> list[TensorBuffer]:
        """Arrays that a run fills."""
        return list(self._outputs)

    def execute_async(self, inputs: list[TensorBuffer], outputs: list[TensorBuffer]) -> tuple[int, int]:
        """Run; the number of the job and a status of 0."""
        given = arrays_by_name([np.asarray(buffer) for buffer in inputs], self._runner.input_tensors, "input")
        places = arrays_by_name(
            [np.asarray(buffer) for buffer in outputs], self._runner.output_tensors, "output"
        )
        self._runner.run(given, places)
        return next(self._numbers), 0

    def wait(self, job: Any, timeout: int = -1) -> int:
        """0: the run is done."""
        return 0


def _buffer(info: Any) -> TensorBuffer:
    shape = info.shape
    stored = (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape
    kind = {"float32": "f32", "int8": "i8", "uint8": "ui8", "int16": "i16", "int32": "i32", "int64": "i64"}[
        info.dtype.name
    ]
    return TensorBuffer(Tensor(info.name, shape, kind), np.zeros(stored, info.dtype))
