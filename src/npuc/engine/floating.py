"""The float engine: a Top program, exported to ONNX and run by ONNX Runtime on the CPU.

It is the truth about what a network computes: import checks, calibration and accuracy baselines run on it. Weights
are handed over where they lie (memory-mapped, not copied), any intermediate tensor can be fetched by the user's name
for it or for its layer, and a stream of batches holds the results of one batch at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine.inputs import (
    Shape,
    check_names,
    checked_inputs,
    expectation,
    expected_inputs,
    shape_text,
)
from npuc.engine.tensors import from_ort, is_native, to_ort
from npuc.engine.weights import attach_weights
from npuc.errors import EngineError, InputDataError, NpucError
from npuc.export.onnx import ALL_TENSORS, ExportedModel, Fetch, embed, to_onnx
from npuc.ir import DType, Graph, dtype_of
from npuc.kernels.custom import custom_nodes
from npuc.kernels.stretched import StretchedSession
from npuc.program.model import named_inputs

_ERRORS_ONLY = 3


def session_options(
    threads: int | None = None, optimize: bool = True, integer_kernels: bool = False, spin: bool = True
) -> Any:
    """The options that the float engine runs a session with: quiet, deterministic, float arithmetic throughout.

    `integer_kernels` lets ONNX Runtime compute dequantize, op, quantize in integers, as it does by default: the way to
    the same bits as a file that spells its layers QLinearConv. Without `spin`, threads sleep between runs.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY + 1
    options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    # A quantized model means quantize, float op, dequantize; integer kernels in their place round differently.
    options.add_session_config_entry("session.disable_quant_qdq", "0" if integer_kernels else "1")
    # Without this, sums of products of u8 and i8 saturate at 16 bits on x86 processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    return options


def _session(exported: ExportedModel, options: Any) -> tuple[Any, list[Any]]:
    """A session, and the weights that it reads in place."""
    if custom_nodes(exported.proto):
        embed(exported.proto, exported.external)
        return StretchedSession(exported.proto, options), []
    import onnxruntime as ort

    weights = attach_weights(exported, options)
    model = exported.proto.SerializeToString()
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]), weights


class FloatEngine:
    """Runs one program; safe to call from several threads.

    `fetch` names tensors or layers whose values are returned too, under the names asked for; `ALL_TENSORS` is all.
    `spin=False` leaves the processors to whoever works on the results between runs.
    """

    def __init__(
        self,
        graph: Graph,
        fetch: Fetch = (),
        threads: int | None = None,
        optimize: bool = True,
        integer_kernels: bool = False,
        spin: bool = True,
    ) -> None:
        exported = to_onnx(graph, fetch)
        self.inputs: dict[str, tuple[DType, Shape]] = expected_inputs(graph)
        """Name to element type and shape, in order."""
        self._results = {port.name: port.name for port in graph.outputs}
        self._results.update(exported.fetched)
        self.output_names: list[str] = list(self._results)
        """The names of the results of `run`: the outputs, then what was asked for."""
        self._wanted = list(dict.fromkeys(self._results.values()))
        types = {info.name: dtype_of(info.type.tensor_type.elem_type) for info in exported.proto.graph.output}
        self._types = [types[name] for name in self._wanted]
        self._native = all(map(is_native, (*self._types, *(dtype for dtype, _ in self.inputs.values()))))
        try:
            options = session_options(threads, optimize, integer_kernels, spin)
            self._session, self._weights = _session(exported, options)
        except NpucError:
            raise
        except Exception as error:
            try:
                # A graph optimization of ONNX Runtime may fail on a model that runs as it stands.
                self._session, self._weights = _session(
                    exported, session_options(threads, optimize=False, spin=spin)
                )
            except Exception:
                raise EngineError(f"ONNX Runtime cannot load the program: {_first_line(error)}") from error

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """The outputs, and what was asked for, of one set of inputs: by name, or the array of the only input.

        Example: `engine.run({"x": np.zeros((1, 3, 224, 224), np.float32)})["y"]`.
        """
        feed = checked_inputs(inputs, self.inputs)
        try:
            if self._native or isinstance(self._session, StretchedSession):
                values = self._session.run(self._wanted, feed)
            else:
                named = {name: to_ort(array, self.inputs[name][0]) for name, array in feed.items()}
                values = [
                    from_ort(value, dtype)
                    for value, dtype in zip(
                        self._session.run_with_ort_values(self._wanted, named), self._types, strict=True
                    )
                ]
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(f"ONNX Runtime failed: {_first_line(error)}") from error
        fetched = dict(zip(self._wanted, values, strict=True))
        return {name: fetched[source] for name, source in self._results.items()}

    def stream(self, batches: Iterable[Mapping[str, Array] | Array]) -> Iterator[dict[str, Array]]:
        """The results of each set of inputs in turn; only one set of results is held here at a time."""
        for batch in batches:
            yield self.run(batch)

    def run_batches(self, arrays: Mapping[str, Array] | Array) -> dict[str, Array]:
        """Any number of samples along axis 0, in as many runs as the program's batch size needs.

        The last batch is filled up with copies of its last sample, and results are joined along axis 0.
        """
        parts: dict[str, list[Array]] = {name: [] for name in self.output_names}
        for count, batch in self._batches(arrays):
            for name, value in self.run(batch).items():
                if value.ndim == 0:
                    raise InputDataError(
                        f"result '{name}' has no batch axis, so batches of it cannot be joined"
                    )
                size = self._batch_size()
                parts[name].append(value[: count * value.shape[0] // size] if count < size else value)
        return {name: np.concatenate(values) for name, values in parts.items() if values}

    def _batch_size(self) -> int:
        sizes = {shape[0] for _, shape in self.inputs.values() if shape}
        if len(sizes) != 1 or any(not shape for _, shape in self.inputs.values()):
            raise InputDataError(
                "the inputs have no common batch axis: "
                + ", ".join(expectation(name, self.inputs) for name in self.inputs),
                fix="Run the samples one by one",
            )
        return max(1, sizes.pop())

    def _batches(self, arrays: Mapping[str, Array] | Array) -> Iterator[tuple[int, dict[str, Array]]]:
        size = self._batch_size()
        arrays = {name: np.asarray(array) for name, array in named_inputs(arrays, self.inputs).items()}
        check_names(arrays, self.inputs)
        for name, array in arrays.items():
            expected = self.inputs[name][1] or ()
            if array.ndim != len(expected) or array.shape[1:] != expected[1:]:
                sample = "×".join(map(str, ("N", *expected[1:])))
                raise InputDataError(
                    f"input '{name}' has shape {shape_text(array.shape)}; samples of {sample} are expected"
                )
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
            raise InputDataError(f"the inputs have different numbers of samples: {text}")
        total = next(iter(counts.values()), 0)
        for start in range(0, total, size):
            count = min(size, total - start)
            batch = {name: array[start : start + count] for name, array in arrays.items()}
            if count < size:
                batch = {
                    n: np.concatenate([a, np.repeat(a[-1:], size - count, axis=0)]) for n, a in batch.items()
                }
            yield count, batch


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


__all__ = ["ALL_TENSORS", "FloatEngine", "session_options"]
