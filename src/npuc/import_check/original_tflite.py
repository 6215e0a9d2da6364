"""The original of an import from TensorFlow Lite, run by LiteRT's reference kernels where that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import OriginalError
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import input_constant
from npuc.frontend.tflite.reader import TfliteModel, read
from npuc.ir import Graph, result_names, shape_of


class LiteRtOriginal:
    """A .tflite file with the inputs and outputs that a graph was imported with."""

    runtime = "LiteRT"

    def __init__(
        self,
        path: Path,
        graph: Graph,
        input_types: Mapping[str, Any],
        options: ImportOptions,
        threads: int | None = None,
    ) -> None:
        """`input_types` are the types of the inputs at import, before preprocessing was fused into the graph."""
        self._path = path
        model = read(path)
        self._inputs, self._outputs = _ports(model)
        if any(name not in self._inputs for name in input_types) or any(
            port.name not in self._outputs for port in graph.outputs
        ):
            raise OriginalError(
                "LiteRT runs whole models only, and the import is a part of one", where=str(path)
            )
        computed = {model.main.tensors[i].name: i for op in model.main.operators for i in op.outputs}
        self._places = {**computed, **self._outputs}
        self._shapes = {
            name: shape_of(value)
            for op in graph.ops
            for name, value in zip(result_names(op), op.results, strict=True)
        }
        self._shapes.update({port.name: shape_of(port.value) for port in graph.outputs})
        self.random: set[str] = set()
        """No operator that is imported is random."""
        # The axis order of a tensor with as many channels as rows and columns cannot be told from its shape.
        known = {name for name, shape in self._shapes.items() if len(shape) != 4 or len(set(shape[1:])) > 1}
        ends = set(self._outputs.values())
        self.comparable = [name for name, index in computed.items() if name in known and index not in ends]
        """The tensors of the original that the graph has too, in order."""
        self.mixed = _mixed(model)
        """How many layers LiteRT computes with integer weights and activations that it quantizes at run time."""
        self._constants = {
            name: input_constant(name, text, options.input_shapes.get(name, tensor.shape), tensor.dtype)
            for name, text in options.constants.items()
            for tensor in [model.main.tensors[self._inputs[name]]]
        }
        shapes = {name: shape_of(kind) for name, kind in input_types.items()}
        shapes |= {name: array.shape for name, array in self._constants.items()}
        self._interpreter = self._load(shapes, threads)

    def _load(self, shapes: Mapping[str, tuple[int, ...]], threads: int | None) -> Any:
        try:
            runtime = importlib.import_module("ai_edge_litert.interpreter")
        except ImportError as error:
            raise OriginalError(
                "LiteRT, which would run the original, is not installed (pip install ai-edge-litert)"
            ) from error
        try:
            interpreter = runtime.Interpreter(
                str(self._path),
                num_threads=threads,
                experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF,
                experimental_preserve_all_tensors=True,
            )
            for name, shape in shapes.items():
                interpreter.resize_tensor_input(self._inputs[name], shape)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise self._failed("load", error) from error
        return interpreter

    def _failed(self, what: str, error: Exception) -> OriginalError:
        words = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return OriginalError(f"LiteRT cannot {what} it: {words}", where=str(self._path))

    def run(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """The values of some of its outputs and comparable tensors, in the order of axes that the graph has."""
        try:
            for name, array in {**self._constants, **inputs}.items():
                self._interpreter.set_tensor(self._inputs[name], np.ascontiguousarray(array))
            self._interpreter.invoke()
            tensors = {name: self._interpreter.get_tensor(self._places[name]) for name in names}
        except (ValueError, RuntimeError) as error:
            raise self._failed("run", error) from error
        return {name: self._arranged(array, self._shapes[name]) for name, array in tensors.items()}

    def _arranged(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The array in N x C x H x W order, as in the graph."""
        if array.ndim != 4 or array.shape == shape:
            return array
        turned = array.transpose(0, 3, 1, 2)
        return turned if turned.shape == shape else array


def _mixed(model: TfliteModel) -> int:
    tensors = model.main.tensors
    count = 0
    for op in model.main.operators:
        operands = [tensors[index] for index in op.inputs if index >= 0]
        real = bool(operands) and operands[0].type_name == "FLOAT32" and operands[0].weight is None
        count += real and any(t.is_quantized and t.weight is not None for t in operands[1:])
    return count


def _ports(model: TfliteModel) -> tuple[dict[str, int], dict[str, int]]:
    inputs, outputs = model.port_names
    return dict(zip(inputs, model.main.inputs, strict=True)), dict(
        zip(outputs, model.main.outputs, strict=True)
    )
