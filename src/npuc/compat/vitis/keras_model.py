"""An integer network as a Keras model: called, evaluated and saved like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine import IntegerEngine
from npuc.errors import InputDataError, UsageError
from npuc.integrations.keras import keras_package
from npuc.ir import Graph, save_graph, shape_of
from npuc.runtime.engine import CompiledEngine
from npuc.runtime.inputs import chunks_of, rows_for


@dataclass(frozen=True)
class Integers:
    """An integer network and the order of its inputs in a call."""

    graph: Graph
    inputs: tuple[str, ...]
    engine: IntegerEngine | CompiledEngine

    @classmethod
    def of(cls, graph: Graph, inputs: Sequence[str]) -> Integers:
        """A network computed in graph mode."""
        return cls(graph, tuple(inputs), IntegerEngine(graph))

    def run(self, arrays: list[Array]) -> list[Array]:
        """The outputs for a batch of any number of rows."""
        if len(arrays) != len(self.inputs):
            raise InputDataError(f"the model takes {len(self.inputs)} inputs, and was given {len(arrays)}")
        given = dict(zip(self.inputs, arrays, strict=True))
        batch = shape_of(self.graph.inputs[0].value)[0]
        parts: list[list[Array]] = [[] for _ in self.graph.outputs]
        for chunk in chunks_of(len(arrays[0]), batch):
            results = self.engine.run({name: rows_for(array, chunk, batch) for name, array in given.items()})
            for part, port in zip(parts, self.graph.outputs, strict=True):
                part.append(np.array(results[port.name][: chunk.count]))
        return [np.concatenate(part) for part in parts]


def quantized_model(graph: Graph, inputs: list[str], name: str) -> Any:
    """The Keras model of an integer network."""
    return model_of(Integers.of(graph, inputs), name)


def model_of(integers: Integers, name: str) -> Any:
    """The Keras model that computes a network with an engine."""
    return _model_class()(integers, name)


def integers_of(model: Any) -> Integers:
    """The network of a quantized model."""
    integers: Integers | None = getattr(model, "integers", None)
    if integers is None:
        raise UsageError(
            f"a {type(model).__name__} is no quantized model", fix="Give what quantize_model returned"
        )
    return integers


@cache
def _model_class() -> Any:
    """The class, which exists where Keras does."""
    keras = keras_package()

    class QuantizedModel(keras.Model):  # type: ignore[misc, name-defined]
        """Computes the integers that are deployed."""

        def __init__(self, integers: Integers, name: str) -> None:
            super().__init__(name=name, trainable=False)
            object.__setattr__(self, "integers", integers)
            self.run_eagerly = True  # integers are computed outside of Keras

        def build(self, *_: Any) -> None:
            """There is nothing to build."""
            self.built = True

        def call(self, inputs: Any, training: bool = False) -> Any:
            """The outputs, dequantized."""
            tensors = list(inputs.values()) if isinstance(inputs, dict) else inputs
            tensors = tensors if isinstance(tensors, list | tuple) else [tensors]
            if any(is_symbolic(tensor) for tensor in tensors):
                rows = tensors[0].shape[0]
                results = [
                    keras.ops.zeros((rows or 1, *shape_of(port.value)[1:]))
                    for port in self.integers.graph.outputs
                ]
            else:
                arrays = [np.asarray(keras.ops.convert_to_numpy(tensor)) for tensor in tensors]
                results = [keras.ops.convert_to_tensor(array) for array in self.integers.run(arrays)]
            return results[0] if len(results) == 1 else results

        def compile(self, *args: Any, **options: Any) -> None:
            """As ever; steps run one by one, because integers are computed outside of Keras."""
            super().compile(*args, **options | {"run_eagerly": True, "jit_compile": False})

        def save(self, filepath: Any, *_: Any, **__: Any) -> None:
            """Write the integer network under this name, for vai_c_tensorflow2."""
            save_graph(self.integers.graph, Path(str(filepath)))

    return QuantizedModel


def is_symbolic(tensor: Any) -> bool:
    """Whether a tensor has a shape and no values."""
    if isinstance(tensor, np.ndarray):
        return False
    place = getattr(tensor, "device", None)
    if getattr(place, "type", "") == "meta":
        return True
    return not (hasattr(tensor, "numpy") or hasattr(tensor, "__array__"))
