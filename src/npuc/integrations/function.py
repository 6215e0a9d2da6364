"""A compiled network as a callable with the arguments and results of the original, for frameworks with NumPy at hand.

    compiled = npuc.keras.compile(model, images, target="edge-4t")
    compiled(images[:8])                 # a tensor of the framework, where that is installed
    compiled.save("model.npu")           # an ordinary compiled model

`compiled_function` is the common way of `npuc.keras.compile` and `npuc.tensorflow.compile`: the imported network is compared with
the original on a sample, its rows are shown to be independent, and it is quantized and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import InputDataError, UsageError
from npuc.integrations.conversion import convert
from npuc.integrations.options import IntegrationOptions
from npuc.integrations.report import IntegrationReport
from npuc.integrations.signature import CallSignature, saved_report, signature_of, with_signature
from npuc.integrations.structure import described, rebuilt
from npuc.ir import Graph
from npuc.program.file import load_compiled, save_compiled
from npuc.program.model import CompiledModel
from npuc.runtime import Runner

WITHOUT = ("calibrate", "data", "cache", "background", "fallback", "torch_device")
"""Options of torch.compile that mean nothing here."""
_CLOSE = 0.999
"""The cosine between results of the original and of the import, at the least."""

_HOST = "CPU parts run in npuc's float engine (ONNX Runtime), not in the framework"

_ONE_ARRAY = {"tuple": [{"tuple": [{"tensor": 0}]}, {"dict": []}]}
"""The form of a call with one tensor and nothing else."""

ToTensor = Callable[[Array], Any]


class CompiledFunction:
    """A compiled network that is called like the original; any number of threads may call it."""

    def __init__(
        self, model: CompiledModel, to_tensor: ToTensor | None = None, device: Any = "simulated"
    ) -> None:
        self._runner = Runner(model, device)
        self._signature = signature_of(self._runner)
        self._to_tensor = to_tensor or (lambda array: array)
        self._only = _only_keyword(self._signature.arguments)
        self._takes_array = self._signature.arguments == _ONE_ARRAY
        self._dtypes = tuple(map(_numpy_type, self._signature.dtypes))

    @property
    def program(self) -> CompiledModel:
        """The compiled model."""
        return self._runner.model

    @property
    def report(self) -> IntegrationReport:
        """What runs where, and why."""
        return saved_report(self.program)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; results are tensors of the framework, or arrays where it is not there."""
        return self._run(args, kwargs, self._to_tensor)

    def predict(self, inputs: Any) -> Any:
        """Run the program; results are arrays."""
        return self._run((inputs,), {}, lambda array: array)

    def save(self, path: Path | str) -> None:
        """Write the compiled model with its signature; `npuc run` and the runtimes take the file, too."""
        save_compiled(self.program, path)

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], to_tensor: ToTensor) -> Any:
        signature = self._signature
        tensors = list(args)
        if not (self._takes_array and not kwargs and len(args) == 1 and type(args[0]) is np.ndarray):
            tensors = self._tensors(args, kwargs)
        arrays = dict(zip(signature.inputs, map(np.asarray, tensors), strict=True))
        rows = signature.rows(self._runner, arrays)
        outputs = self._runner.run(arrays)
        results = [
            to_tensor(
                outputs[name].reshape(shape if rows is None else (rows, *shape[1:])).astype(dtype, copy=False)
            )
            for name, shape, dtype in zip(signature.outputs, signature.shapes, self._dtypes, strict=True)
        ]
        return rebuilt(signature.results, results)

    def _tensors(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors of arguments that have the structure of the original's."""
        if len(args) == 1 and not kwargs and self._only:
            kwargs, args = {self._only: args[0]}, ()
        form, tensors = described((args, dict(sorted(kwargs.items()))), _is_tensor)
        if form != self._signature.arguments:
            raise InputDataError(
                "the network was compiled for other arguments",
                fix=f"It takes {rebuilt(self._signature.arguments, self._signature.inputs)} (args, kwargs)",
            )
        return tensors


def load_function(
    path: Path | str, to_tensor: ToTensor | None = None, device: Any = "simulated"
) -> CompiledFunction:
    """The callable of a file that `save` wrote."""
    return CompiledFunction(load_compiled(path), to_tensor, device)


def compiled_function(
    graph: Graph,
    original: Callable[..., Any],
    samples: Iterable[tuple[tuple[Any, ...], dict[str, Any]]],
    names_of: Callable[[Graph, Sequence[Array]], Sequence[str]],
    options: Mapping[str, Any],
    integration: str,
    name: str,
    to_tensor: ToTensor | None = None,
    notes: Iterable[str] = (),
) -> CompiledFunction:
    """Quantize and compile an imported network; the result is called as `original` is.

    `samples` are calls: positional arguments and keywords, arrays with their batch first. `names_of` gives the input of the
    network for each tensor of a call.
    """
    parsed = IntegrationOptions.parse(options, WITHOUT)
    calls = iter(samples)
    head = list(islice(calls, 1))
    if not head:
        raise UsageError("there is no calibration data", fix="Give some typical inputs, 32 or more")
    args, kwargs = head[0]
    form, tensors = described((args, dict(sorted(kwargs.items()))), _is_tensor)
    inputs = names_of(graph, [np.asarray(tensor) for tensor in tensors])
    results, leaves = described(original(*args, **kwargs), _is_tensor)
    expected = [np.asarray(leaf) for leaf in leaves]
    rows = {len(tensor) for tensor in tensors if np.ndim(tensor)}
    outputs, graph_rows = _matching_outputs(
        graph, dict(zip(inputs, map(np.asarray, tensors), strict=True)), expected
    )
    rows_vary = len(rows) == 1 and _rows_are_independent(original, form, tensors, expected)
    if not rows_vary and rows != {graph_rows}:
        raise UsageError(
            f"rows of a batch depend on each other, and the network was imported for a batch of {graph_rows}",
            fix="Give calibration data of that batch",
        )

    def arrays() -> Iterator[dict[str, Array]]:
        for args, kwargs in chain(head, calls):
            own, parts = described((args, dict(sorted(kwargs.items()))), _is_tensor)
            if own != form:
                raise UsageError("samples of the calibration data have different structures")
            yield dict(zip(inputs, map(np.asarray, parts), strict=True))

    conversion = convert(graph, arrays(), parsed, integration, name, notes)
    if conversion.report.rest:
        told = (*conversion.report.notes, _HOST)
        conversion = replace(conversion, report=replace(conversion.report, notes=told))
    signature = CallSignature(
        form,
        results,
        tuple(inputs),
        tuple(outputs),
        tuple(
            (graph_rows if rows_vary else array.shape[0], *array.shape[1:]) if array.ndim else ()
            for array in expected
        ),
        tuple(array.dtype.name for array in expected),
        rows_vary,
    )
    conversion.report.tell(parsed.report)
    return CompiledFunction(with_signature(conversion, signature), to_tensor, parsed.device)


def batches_of(data: Any) -> Iterable[Any]:
    """The batches of calibration data: those of an iterable, or the rows of an array."""
    produced = data() if callable(data) else data
    if isinstance(produced, np.ndarray):
        return [produced[row : row + 1] for row in range(len(produced))]
    if not isinstance(produced, Iterable):
        raise UsageError(
            f"{type(produced).__name__} is no calibration data", fix="Give an array or an iterable of batches"
        )
    return produced


def calls_of(data: Any, inputs: int) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Calibration data as calls with one positional argument, as Keras has them.

    An array is a set of samples, one a row. An iterable has batches, or pairs of a batch and labels, which are dropped.
    """
    for item in batches_of(data):
        # (x, y) and (x, y, weights) are Keras's own forms of a batch with labels.
        if isinstance(item, tuple) and (inputs == 1 or isinstance(item[0], tuple | list | dict)):
            item = item[0]
        yield (_arrays(item),), {}


def _arrays(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _arrays(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_arrays(part) for part in value]
    return np.asarray(value)


def _only_keyword(arguments: Any) -> str:
    """The name of the only argument, if it is given by name."""
    args, kwargs = arguments["tuple"]
    is_single = args == {"tuple": []} and len(kwargs.get("dict", ())) == 1
    return str(kwargs["dict"][0][0]) if is_single else ""


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "__array__") and hasattr(value, "shape"))


def _numpy_type(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)


def _matching_outputs(
    graph: Graph, inputs: Mapping[str, Array], expected: Sequence[Array]
) -> tuple[list[str], int]:
    """For each result the output of the network that has its values, and the batch that the network is for."""
    engine = FloatEngine(graph)
    batch = next((shape[0] for _, shape in engine.inputs.values() if shape), 1)
    first = {
        name: np.ascontiguousarray(_rows_for(array, batch), engine.inputs[name][0].numpy)
        for name, array in inputs.items()
    }
    outputs = engine.run(first)
    chosen: list[str] = []
    for number, array in enumerate(expected):
        port = graph.outputs[number].name if len(expected) == len(graph.outputs) else ""
        names = [port, *(name for name in outputs if name != port)]
        alike = [name for name in names if name and _alike(outputs[name], _rows_for(array, batch))]
        if not alike:
            raise UsageError(
                f"result {number} of the model is no output of the imported network",
                fix="Report it with the model; 'npuc import' on its file shows the first layer that differs",
            )
        chosen.append(alike[0])
    return chosen, batch


def _rows_for(array: Array, batch: int) -> Array:
    if array.ndim == 0 or len(array) == batch:
        return array
    return array[np.arange(batch) % len(array)]


def _alike(ours: Array, theirs: Array) -> bool:
    if ours.size != theirs.size:
        return False
    a, b = np.ravel(ours).astype(np.float64), np.ravel(theirs).astype(np.float64)
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size > _CLOSE if size else bool(np.allclose(a, b, atol=1e-6))


def _rows_are_independent(
    original: Callable[..., Any], form: Any, tensors: Sequence[Any], expected: Sequence[Array]
) -> bool:
    """Whether a row alone gives what it gives beside another one, by a run of the original."""
    first = [np.asarray(tensor)[:1] for tensor in tensors]
    other = [np.flip(array, -1) if array.ndim > 1 else array for array in first]
    both = [np.concatenate([array, more]) for array, more in zip(first, other, strict=True)]
    try:
        args, kwargs = rebuilt(form, both)
        together = [np.asarray(leaf) for leaf in described(original(*args, **kwargs), _is_tensor)[1]]
    except Exception:
        # The original may have a fixed batch.
        return False
    if any(not array.ndim or len(array) != 2 for array in together):
        return False
    return all(_alike(pair[:1], alone[:1]) for pair, alone in zip(together, expected, strict=True))
