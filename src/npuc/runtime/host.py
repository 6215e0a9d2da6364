"""What the host does of a model: conversions in the kernels of graph mode, CPU subgraphs in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.errors import EngineError
from npuc.kernels import eltwise
from npuc.kernels.custom import open_session
from npuc.program.model import CompiledModel, CpuSubgraph, Tensor

Array = np.ndarray[Any, Any]


def to_integers(value: Array, tensor: Tensor, rounding: str, threads: int) -> Array:
    """Reals as the integers of a tensor."""
    try:
        kind = dtype_of(tensor.dtype).numpy
        return eltwise.quantize(
            value, tensor.scale, tensor.zero_point, kind, rounding=rounding, threads=threads
        )
    except ValueError as error:
        raise EngineError(f"'{tensor.name}' cannot be made of reals: {error}") from error


def to_reals(value: Array, tensor: Tensor, threads: int) -> Array:
    """The integers of a tensor as reals."""
    try:
        return eltwise.dequantize(value, tensor.scale, tensor.zero_point, threads=threads)
    except ValueError as error:
        raise EngineError(f"'{tensor.name}' cannot become reals: {error}") from error


class HostModels:
    """The CPU subgraphs of a model; sessions are made at first use and serve all threads."""

    def __init__(self, model: CompiledModel, threads: int) -> None:
        self._model, self._threads = model, threads
        self._sessions: dict[int, Any] = {}
        self._lock = Lock()

    def run(self, index: int, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Run a CPU subgraph."""
        subgraph = self._model.subgraphs[index]
        assert isinstance(subgraph, CpuSubgraph)
        try:
            results = self._session(index, subgraph).run(list(subgraph.outputs), dict(tensors))
        except Exception as error:
            raise EngineError(
                f"ONNX Runtime: {error}", where=f"{self._model.name}, {subgraph.name}"
            ) from error
        return {name: np.asarray(one) for name, one in zip(subgraph.outputs, results, strict=True)}

    def _session(self, index: int, subgraph: CpuSubgraph) -> Any:
        import onnxruntime as ort

        with self._lock:
            if index not in self._sessions:
                options = ort.SessionOptions()
                options.intra_op_num_threads = self._threads
                options.log_severity_level = 4  # what fails is raised, with its words
                self._sessions[index] = open_session(subgraph.model, options)
            return self._sessions[index]
