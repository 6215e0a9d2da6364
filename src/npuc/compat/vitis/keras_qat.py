"""`get_qat_model`: a Keras model with learned scales, trained by `fit`; Keras computes in torch.

The model is npuc's torch module of `npuc.train` inside of a Keras layer: its weights and scales are Keras' trainable variables,
and in inference it computes the integers that are deployed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compat.vitis.keras_model import is_symbolic, quantized_model
from npuc.errors import UsageError
from npuc.integrations.keras import keras_package
from npuc.ir import Graph
from npuc.quant.config import QuantizationConfig
from npuc.target import Target


def qat_model(
    graph: Graph,
    names: list[str],
    samples: tuple[Array, ...] | None,
    config: QuantizationConfig,
    target: Target | None,
    method: str | None,
    model: Any,
) -> Any:
    """The trainable model of a float network; without samples, ranges come from the first batch."""
    keras = keras_package()
    if keras.backend.backend() != "torch":
        raise UsageError(
            f"get_qat_model trains with torch, and Keras computes in {keras.backend.backend()}",
            fix="Set KERAS_BACKEND=torch before Keras is imported",
        )
    from npuc.train.data import TrainingData
    from npuc.train.qat.prepare import calibrate_at_first_call, prepare

    order = [port.name for port in graph.inputs]
    first = samples or tuple(np.zeros((1, *tensor.shape[1:]), np.float32) for tensor in model.inputs)
    data = TrainingData(tuple(first[names.index(name)] for name in order))
    qat = prepare(graph, data, target=target, config=config, method=method)
    if samples is None:
        calibrate_at_first_call(qat, method)
    inputs = [keras.Input(tensor.shape[1:]) for tensor in model.inputs]
    result = _layer_class()(qat, [names.index(name) for name in order], model)(inputs)
    trainable = keras.Model(inputs if len(inputs) > 1 else inputs[0], result, name=f"{model.name}_qat")
    object.__setattr__(trainable, "npuc_qat", (qat, tuple(names)))
    return trainable


def deployed(model: Any) -> Any:
    """The integers of a trained model as a Keras model; None if it is no model of `qat_model`."""
    trained = getattr(model, "npuc_qat", None)
    if trained is None:
        return None
    module, names = trained
    if module.awaits_data:
        raise UsageError("the model was never called: its ranges are not known", fix="Call fit first")
    return quantized_model(module.export(), list(names), str(model.name))


@cache
def _layer_class() -> Any:
    """The class, which exists where Keras does."""
    keras = keras_package()

    class QatLayer(keras.layers.TorchModuleWrapper):  # type: ignore[misc, name-defined]
        """The whole network as one layer."""

        def __init__(self, qat: Any, places: list[int], model: Any) -> None:
            super().__init__(qat)
            self._places = places
            self._shapes = [tuple(tensor.shape) for tensor in model.outputs]

        def call(self, inputs: Any, training: bool = False) -> Any:
            """The outputs of the network; a list if it has several."""
            if any(is_symbolic(tensor) for tensor in inputs):
                empty = [keras.ops.zeros((inputs[0].shape[0], *shape[1:])) for shape in self._shapes]
                return empty[0] if len(empty) == 1 else empty
            self.module.train(bool(training))
            results = self.module(*(inputs[place] for place in self._places))
            return list(results) if isinstance(results, tuple | list) else results

        def compute_output_spec(self, inputs: Any, **_: Any) -> Any:
            """The outputs of the original."""
            specs = [keras.KerasTensor(shape) for shape in self._shapes]
            return specs[0] if len(specs) == 1 else specs

    return QatLayer
