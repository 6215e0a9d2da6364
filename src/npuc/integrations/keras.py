"""Keras 3: a live model, on any of its backends, as a compiled callable.

The model is saved as `.keras` to a temporary file and imported from there: names of layers survive, and recurrent layers stay
ops. A model that such a file does not describe (subclassed, or with a Lambda layer) is taken from torch or TensorFlow, where one
of them is its backend.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npuc.arrays import Array
from npuc.errors import MissingExtraError, UnsupportedOpError, UsageError
from npuc.flow import import_model
from npuc.integrations.function import CompiledFunction, calls_of, compiled_function, load_function
from npuc.ir import Graph, shape_of

INTEGRATION = "npuc.keras.compile"


def compile(model: Any, data: Any, **options: Any) -> CompiledFunction:
    """Quantize a live Keras model on data and compile it; the result is called like the model, in inference.

    `data` is an array of samples, or an iterable of batches (`tf.data`, a list), with or without labels. The options are those of
    `torch.compile(backend="npuc")` that say what to compile for: `target`, `scheme`, `accuracy_drop` and so on.

    >>> compiled = compile(model, images[:64], target="edge-4t")  # doctest: +SKIP
    """
    keras = keras_package()
    require_model(
        model,
        "compile takes a Keras model",
        "A file of one is imported by npuc.flow.import_model, a SavedModel by npuc.tensorflow.compile",
    )
    inputs = getattr(model, "inputs", None)
    calls = calls_of(data, len(inputs) if inputs else 1)
    first = next(calls, None)
    if first is None:
        raise UsageError("there is no calibration data", fix="Give some typical inputs, 32 or more")
    graph, way = imported(model, first[0][0])

    def chained() -> Any:
        yield first
        yield from calls

    return compiled_function(
        graph,
        lambda *args, **kwargs: _results(model(*args, training=False, **kwargs)),
        chained(),
        lambda network, arrays: _names(network, model, first[0][0], arrays),
        options,
        INTEGRATION,
        str(model.name),
        keras.ops.convert_to_tensor,
        [f"imported {way}"],
    )


def load(path: Path | str, device: Any = "simulated") -> CompiledFunction:
    """The callable of a file that `save` wrote. Without Keras, its results are arrays."""
    try:
        to_tensor = keras_package().ops.convert_to_tensor
    except MissingExtraError:
        to_tensor = None
    return load_function(path, to_tensor, device)


def require_model(model: Any, words: str, fix: str) -> None:
    """Refuse what is no Keras model with weights."""
    if not isinstance(model, keras_package().Model):
        raise UsageError(f"{words}, not {type(model).__name__}", fix=fix)
    if not model.built:
        raise UsageError("the model has no weights yet", fix="Call it once, or build it")


def imported(model: Any, example: Any) -> tuple[Graph, str]:
    """The network of a live model, and how it was read."""
    backend = keras_package().backend.backend()
    with tempfile.TemporaryDirectory(prefix="npuc-") as folder:
        file = Path(folder) / "model.keras"
        try:
            model.save(file)
            return import_model(file), "from its .keras file"
        except UnsupportedOpError as error:
            if backend == "torch":
                from npuc.integrations.torch.live import from_torch

                tensors = _converted(example)
                return from_torch(model, (tensors,)), f"as a torch module ({error.message})"
            if backend != "tensorflow":
                raise
            export = Path(folder) / "exported"
            model.export(export, verbose=False)
            return import_model(export), f"as a SavedModel ({error.message})"


def keras_package() -> Any:
    """The package keras, or an error that says how to get it."""
    try:
        import keras
    except ImportError as error:
        raise MissingExtraError("Keras is not installed", fix="Install it with: pip install keras") from error
    return keras


def _converted(example: Any) -> Any:
    """Arrays as tensors of Keras's backend, in their structure; the batch that is compiled has one row."""
    if isinstance(example, dict):
        return {name: _converted(part) for name, part in example.items()}
    if isinstance(example, list | tuple):
        return [_converted(part) for part in example]
    return keras_package().ops.convert_to_tensor(example[:1])


def _results(value: Any) -> Any:
    """Results as arrays, in their structure."""
    if isinstance(value, dict):
        return {name: _results(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_results(part) for part in value]
    return keras_package().ops.convert_to_numpy(value)


def _names(graph: Graph, model: Any, example: Any, arrays: Sequence[Array]) -> list[str]:
    """The input of the network for each tensor of a call: by the name in a dictionary or of the model's input, else by order."""
    ports = [port.name for port in graph.inputs]
    if len(ports) != len(arrays):
        raise UsageError(
            f"the model takes {len(ports)} inputs ({', '.join(ports)}), and a sample has {len(arrays)}"
        )
    stated = (
        list(example)
        if isinstance(example, dict)
        else [_plain(t) for t in getattr(model, "inputs", None) or ()]
    )
    chosen = stated if sorted(stated) == sorted(ports) else ports
    shapes = {port.name: shape_of(port.value) for port in graph.inputs}
    for name, array in zip(chosen, arrays, strict=True):
        if tuple(array.shape[1:]) != tuple(shapes[name][1:]):
            raise UsageError(
                f"input '{name}' takes samples of shape {list(shapes[name][1:])}, not {list(array.shape[1:])}"
            )
    return list(chosen)


def _plain(tensor: Any) -> str:
    return str(tensor.name)
