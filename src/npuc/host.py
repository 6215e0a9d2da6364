"""What the host does of a compiled model: CPU subgraphs in ONNX Runtime, conversions between reals and integers.

The simulator, the runtime, the debugger and the profiler all execute these parts here, so that a custom op of a plugin, an
error and a rounding are the same everywhere. ONNX Runtime is loaded when the first CPU subgraph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.errors import EngineError, NpucError
from npuc.kernels import eltwise
from npuc.kernels.custom import open_session
from npuc.program.model import CompiledModel, Conversion, CpuSubgraph, Tensor


def to_integers(value: Array, tensor: Tensor, rounding: str, threads: int) -> Array:
    """Reals, or plain integers of up to 16 bits, as the integers of a tensor."""
    try:
        kind = dtype_of(tensor.dtype).numpy
        reals = value if value.dtype.kind == "f" else value.astype(np.float32)
        return eltwise.quantize(
            reals, tensor.scale, tensor.zero_point, kind, rounding=rounding, threads=threads
        )
    except ValueError as error:
        raise EngineError(f"'{tensor.name}' cannot be made of reals: {error}") from error


def to_reals(value: Array, tensor: Tensor, threads: int) -> Array:
    """The integers of a tensor as reals."""
    try:
        return eltwise.dequantize(value, tensor.scale, tensor.zero_point, threads=threads)
    except ValueError as error:
        raise EngineError(f"'{tensor.name}' cannot become reals: {error}") from error


class TensorConversion:
    """A conversion of a model with its tensors: to integers if the result has a scale, else to reals."""

    def __init__(self, conversion: Conversion, model: CompiledModel, threads: int) -> None:
        self.result, self._source = model.tensor(conversion.result), model.tensor(conversion.source)
        self._rounding, self._threads = conversion.rounding, threads
        self._kinds = tuple(dtype_of(tensor.dtype).numpy for tensor in (self._source, self.result))
        self._direct: Callable[[Array, Array], None] | None = None
        """From dense memory to dense memory, if the conversion is one between float32 and integers."""
        single = np.dtype(np.float32)
        with suppress(ValueError):
            if self.result.scale and self._kinds[0] == single:
                to = self.result
                self._direct = eltwise.quantizer(
                    to.scale, to.zero_point, self._kinds[1], self._rounding, threads
                )
            elif not self.result.scale and self._kinds[1] == single:
                source = self._source
                self._direct = eltwise.dequantizer(source.scale, source.zero_point, self._kinds[0], threads)

    def __call__(self, value: Array) -> Array:
        """The converted tensor."""
        if self.result.scale:
            return to_integers(value, self.result, self._rounding, self._threads)
        return to_reals(value, self._source, self._threads)

    def write(self, value: Array, to: Array) -> None:
        """Convert into memory that has the shape and the type of the result."""
        layout = value.flags
        if (
            self._direct is not None
            and (value.dtype, to.dtype) == self._kinds
            and value.shape == to.shape
            and layout.c_contiguous
            and layout.aligned
            and to.flags.carray
        ):
            self._direct(value, to)
        else:
            to[...] = self(value)


class Session:
    """An ONNX model with its custom ops, ready to run; what fails is an `EngineError` with the place."""

    def __init__(self, model: bytes, where: str, threads: int = 1) -> None:
        import onnxruntime as ort

        self._where = where
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4  # what fails is raised, with its words
        try:
            self._session = open_session(model, options)
        except NpucError:
            raise
        except Exception as error:
            raise EngineError(f"ONNX Runtime: {error}", where=where) from error

    def run(self, names: Sequence[str], tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Some tensors of the model, by name."""
        try:
            results = self._session.run(list(names), dict(tensors))
        except NpucError:
            raise
        except Exception as error:
            raise EngineError(f"ONNX Runtime: {error}", where=self._where) from error
        if len(results) != len(names):
            raise EngineError(
                f"its program gives {len(results)} outputs, and the file names {len(names)}",
                where=self._where,
            )
        return dict(zip(names, map(np.asarray, results), strict=True))


class HostSubgraphs:
    """The CPU subgraphs of a model; sessions are made at first use and serve all threads."""

    def __init__(self, model: CompiledModel, threads: int = 1) -> None:
        self._model, self._threads = model, threads
        self._sessions: dict[tuple[int, tuple[str, ...]], Session] = {}
        self._lock = Lock()

    def run(self, index: int, tensors: Mapping[str, Array], also: Sequence[str] = ()) -> dict[str, Array]:
        """The outputs of a CPU subgraph and, with `also`, further tensors of its ONNX model."""
        subgraph = self._model.subgraphs[index]
        assert isinstance(subgraph, CpuSubgraph)
        further = tuple(sorted(set(also) - set(subgraph.outputs)))
        with self._lock:
            session = self._sessions.get((index, further))
            if session is None:
                model = _with_outputs(subgraph, further) if further else subgraph.model
                session = Session(model, f"{self._model.name}, {subgraph.name}", self._threads)
                self._sessions[index, further] = session
        return session.run([*subgraph.outputs, *further], tensors)


def _with_outputs(subgraph: CpuSubgraph, names: Sequence[str]) -> bytes:
    """The ONNX model of a subgraph with more of its tensors as outputs."""
    import onnx

    try:
        proto = onnx.ModelProto.FromString(subgraph.model)
    except Exception as error:
        raise EngineError(f"its model cannot be read: {error}", where=subgraph.name) from error
    missing = set(names) - {name for node in proto.graph.node for name in node.output}
    if missing:
        raise EngineError(f"its model has no tensor '{min(missing)}'", where=subgraph.name)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return bytes(proto.SerializeToString())
