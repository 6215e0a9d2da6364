"""The original of an import from Keras or TensorFlow, run by TensorFlow itself where that is installed.

npuc imports such models without either framework, so only the check is missing where they are not installed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import OriginalError
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import input_constant
from npuc.frontend.tensorflow.model import TensorflowModel, read_model
from npuc.ir import Graph, dtype_of, result_names, shape_of


def _module(name: str) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OriginalError(
            "TensorFlow, which would run the original, is not installed (pip install 'npuc[tensorflow]')"
        ) from error


def _failed(path: Path, what: str, error: Exception) -> OriginalError:
    words = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return OriginalError(f"TensorFlow cannot {what} it: {words[:300]}", where=str(path))


def _old_depthwise(keras: Any) -> Any:
    """The layer class for files of Keras 2.4, which store an argument that Keras 3 does not accept."""

    class DepthwiseConv2D(keras.layers.DepthwiseConv2D):  # type: ignore[misc]
        def __init__(self, *args: Any, groups: int = 1, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    return DepthwiseConv2D


class KerasOriginal:
    """A Keras file with the inputs and outputs that a graph was imported with; only whole models can be run."""

    runtime = "Keras"
    mixed = 0

    def __init__(
        self,
        path: Path,
        graph: Graph,
        input_types: Mapping[str, Any],
        options: ImportOptions,
        threads: int | None = None,
    ) -> None:
        if options.inputs or options.outputs or options.constants:
            raise OriginalError(
                "Keras runs whole models only, and the import is a part of one", where=str(path)
            )
        self.random: set[str] = set()
        self.comparable: list[str] = []
        self._path = path
        self._inputs = list(input_types)
        self._outputs = [port.name for port in graph.outputs]
        keras = _module("keras")
        try:
            self._model = keras.models.load_model(
                str(path), compile=False, custom_objects={"DepthwiseConv2D": _old_depthwise(keras)}
            )
            if options.weights is not None:
                self._model.load_weights(str(options.weights))
        except Exception as error:  # Keras has no common base for what it raises
            raise _failed(path, "load", error) from error

    def run(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """The values of some of its outputs."""
        arrays = [np.ascontiguousarray(inputs[name]) for name in self._inputs]
        try:
            prediction = self._model(arrays if len(arrays) > 1 else arrays[0], training=False)
        except Exception as error:
            raise _failed(self._path, "run", error) from error
        listed = list(prediction.values()) if isinstance(prediction, dict) else prediction
        several = listed if isinstance(listed, list | tuple) else [listed]
        by_name = dict(zip(self._outputs, (np.asarray(y) for y in several), strict=True))
        return {name: by_name[name] for name in names}


class TensorFlowOriginal:
    """A frozen graph, cut as the import was, or a signature of a SavedModel."""

    runtime = "TensorFlow"
    mixed = 0

    def __init__(
        self,
        path: Path,
        graph: Graph,
        input_types: Mapping[str, Any],
        options: ImportOptions,
        threads: int | None = None,
    ) -> None:
        self._path = path
        self.random: set[str] = set()
        model = read_model(path, weights=options.weights)
        self._shapes = {
            name: shape_of(value)
            for op in graph.ops
            for name, value in zip(result_names(op), op.results, strict=True)
        }
        self._shapes.update({port.name: shape_of(port.value) for port in graph.outputs})
        self._tensors = {port.name: _full(port.tensor) for port in (*model.outputs, *model.inputs)}
        self.comparable = self._nodes(model, graph, input_types) if not model.is_saved_model else []
        """The tensors of the original that the graph has too, in order."""
        if model.prefix is not None and not model.is_saved_model:
            raise OriginalError(
                "a graph with a checkpoint is not run by TensorFlow here",
                where=str(path),
                fix="Freeze it to have it checked",
            )
        if model.is_saved_model and (options.inputs or options.outputs):
            raise OriginalError(
                "TensorFlow runs whole signatures only, and the import is a part of one", where=str(path)
            )
        self._tf = _module("tensorflow")
        self._fixed = {_full(self._tensors.get(n, n)): text for n, text in options.constants.items()}
        try:
            self._load(model)
        except Exception as error:
            raise _failed(path, "load", error) from error

    def _nodes(self, model: TensorflowModel, graph: Graph, input_types: Mapping[str, Any]) -> list[str]:
        outputs = {port.name for port in graph.outputs}
        plain = {name for name, shape in self._shapes.items() if len(shape) < 3 or len(set(shape[1:])) > 1}
        return [n for n in model.graph.nodes if n in plain and n not in outputs and n not in input_types]

    def _load(self, model: TensorflowModel) -> None:
        """Load either kind as a graph of TensorFlow 1, whose loader does not depend on the version of Python objects."""
        v1 = self._tf.compat.v1
        graph = self._tf.Graph()
        self._session = v1.Session(graph=graph)
        with graph.as_default():
            if model.is_saved_model:
                v1.saved_model.loader.load(self._session, ["serve"], str(model.path.parent))
            else:
                definition = v1.GraphDef()
                definition.ParseFromString(model.path.read_bytes())
                v1.import_graph_def(definition, name="")

    def run(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """The values of some of its outputs and comparable tensors, in the order of axes that the graph has."""
        feed: dict[str, Any] = {_full(self._tensors.get(n, n)): array for n, array in inputs.items()}
        try:
            feed |= {name: self._value(name, text) for name, text in self._fixed.items()}
            values = self._session.run([_full(self._tensors.get(name, name)) for name in names], feed)
        except Exception as error:
            raise _failed(self._path, "run", error) from error
        by_name = dict(zip(names, (np.asarray(value) for value in values), strict=True))
        return {name: self._arranged(by_name[name], self._shapes.get(name)) for name in names}

    def _value(self, name: str, text: str) -> Array:
        tensor = self._session.graph.get_tensor_by_name(name)
        shape = None if tensor.shape.rank is None else tensor.shape.as_list()
        sizes = None if shape is None else [-1 if size is None else size for size in shape]
        return input_constant(name, text, sizes, dtype_of(tensor.dtype.as_numpy_dtype))

    def _arranged(self, array: Array, shape: tuple[int, ...] | None) -> Array:
        """The array with channels as axis 1, as in the graph."""
        if shape is None or array.shape == shape or array.ndim < 3:
            return array
        turned = np.moveaxis(array, -1, 1)
        return turned if turned.shape == shape else array


def _full(name: str) -> str:
    return name if ":" in name else f"{name}:0"
