"""`vitis_quantize.VitisQuantizer`: Keras models quantized under the vendor's names.

    quantizer = vitis_quantize.VitisQuantizer(model)
    quantized = quantizer.quantize_model(calib_dataset=images)
    quantized.evaluate(...)                         # the DPU's integers
    quantized.save("quantized.h5")                  # for vai_c_tensorflow2
    with vitis_quantize.quantize_scope():
        quantized = keras.models.load_model("quantized.h5")

A quantized model is called, evaluated and saved as a Keras model; its file holds npuc's integer network under the name that was
given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.compat.vitis.dumps import DumpFolder
from npuc.compat.vitis.keras_model import integers_of, quantized_model
from npuc.compat.vitis.keras_strategy import (
    FLOAT_SCALES,
    NAMES,
    Strategy,
    defaults,
    read_strategy,
    strategy_of,
)
from npuc.compat.vitis.notices import note, without_effect
from npuc.compat.vitis.quantization import single_rows
from npuc.compat.vitis.vai_q_onnx import write_weights
from npuc.compat.vitis.xmodels import open_xmodel
from npuc.debug.layers import layer_tensors
from npuc.engine import IntegerEngine
from npuc.errors import CalibrationDataError, UsageError
from npuc.export.qdq import export_quantized_onnx
from npuc.files import make_folder, write_atomically
from npuc.flow import expanded, quantize_network, quantize_on_data
from npuc.frontend.sniff import describe_content
from npuc.integrations.keras import imported, keras_package, require_model
from npuc.ir import Graph
from npuc.quant.prequantized import is_quantized

__all__ = ["VitisQuantizer", "quantize_scope"]

_ROWS = 32
"""Rows of a batch of an array, unless calib_batch_size says otherwise."""


class VitisQuantizer:
    """Quantizes one Keras model."""

    def __init__(
        self,
        float_model: Any,
        quantize_strategy: str = "pof2s",
        custom_quantize_strategy: Any = None,
        custom_objects: Mapping[str, Any] | None = None,
    ) -> None:
        require_model(
            float_model, "VitisQuantizer takes a Keras model", "Load the file first: keras.models.load_model"
        )
        if custom_objects:
            note("custom_objects: layers of a user's own stay float, and run on the CPU")
        if quantize_strategy in FLOAT_SCALES:
            note(f"{quantize_strategy} has float scales: the model runs on the CPU, and no DPU takes it")
        self._model = float_model
        self._name = quantize_strategy
        self._settings: dict[str, Any] = {}
        if custom_quantize_strategy is not None:
            self._name, self._settings = read_strategy(custom_quantize_strategy, quantize_strategy)
        self._strategy: Strategy = strategy_of(self._name, self._settings)

    def quantize_model(
        self,
        calib_dataset: Any = None,
        calib_batch_size: int | None = None,
        calib_steps: int | None = None,
        verbose: int = 0,
        add_shape_info: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The quantized model; `kwargs` are the vendor's."""
        calib_steps = kwargs.pop("calib_step", calib_steps)
        if verbose:
            without_effect("verbose", "the layers that stay float are always told")
        if add_shape_info:
            without_effect("add_shape_info", "every tensor has its shape")
        strategy = self._strategy = strategy_of(self._name, self._settings | kwargs)
        if strategy.needs_data and calib_dataset is None:
            raise UsageError(
                "calib_dataset is None",
                fix="Give an array, a Sequence or a tf.data.Dataset of typical inputs",
            )
        batches = (
            _batches(calib_dataset, calib_batch_size or _ROWS) if calib_dataset is not None else iter(())
        )
        first = next(batches, None)
        if first is None and strategy.needs_data:
            raise CalibrationDataError("calib_dataset is empty")
        example = first if first is not None else np.zeros([1, *self._model.input_shape[1:]], np.float32)
        graph = expanded(imported(self._model, example)[0])
        names = _input_names(graph, self._model, example)
        config = strategy.config(graph, _after(self._model))
        if not strategy.needs_data or is_quantized(graph):
            quantized = quantize_network(graph, None if is_quantized(graph) else {}, config, strategy.target)
        else:
            data = single_rows(
                graph, (_named(names, batch) for batch in islice(_chained(first, batches), calib_steps))
            )
            quantized = quantize_on_data(
                graph,
                open_data(graph, data),
                config,
                strategy.target,
                strategy.method,
                warn=note,
                ladder=strategy.ladder,
            )[0]
        note(f"{self._model.name}: {quantized.outcome.counts()} layers")
        result = quantized_model(quantized.graph, names, str(self._model.name))
        if strategy.output_format:
            _save(result, strategy.output_format, Path(strategy.output_dir))
        return result

    @staticmethod
    def dump_model(
        model: Any,
        dataset: Any = None,
        output_dir: str = "./dump_results",
        dump_float: bool = False,
        weights_only: bool = False,
    ) -> None:
        """Write the weights and, of the first sample, every tensor as `.bin` and `.txt`."""
        integers = integers_of(model)
        if dataset is None and not weights_only:
            raise UsageError("dump_model needs a dataset", fix="Give one, or weights_only=True")
        folder = DumpFolder(output_dir)
        write_weights(folder, integers.graph, "quant_")
        if weights_only:
            return
        sample = next(
            single_rows(integers.graph, (_named(integers.inputs, b) for b in _batches(dataset, 1))), None
        )
        if sample is None:
            raise CalibrationDataError("the dataset is empty")
        for tensor in layer_tensors(IntegerEngine(integers.graph), sample):
            if tensor.scale:
                folder.write(f"quant_{tensor.name}", tensor.values)
            elif dump_float:
                folder.write(f"quant_{tensor.name}_float", tensor.values)

    def dump_quantize_strategy(self, dump_file: str = "quantize_strategy.json", verbose: int = 0) -> None:
        """Write the settings as JSON; with `verbose` of 2 and more, those that have their defaults, too."""
        shown = {**(defaults() if verbose >= 2 else {}), **self._strategy.stated}
        with write_atomically(dump_file) as out:
            out.write((json.dumps({"quantize_strategy": self._name, **shown}, indent=1) + "\n").encode())

    def set_quantize_strategy(self, new_quantize_strategy: Any) -> None:
        """Take other settings: the name of a strategy, the file that `dump_quantize_strategy` wrote, or its content."""
        if new_quantize_strategy in NAMES:
            self._name, self._settings = str(new_quantize_strategy), {}
        else:
            self._name, self._settings = read_strategy(new_quantize_strategy, self._name)
        self._strategy = strategy_of(self._name, self._settings)

    def get_qat_model(
        self,
        init_quant: bool = False,
        calib_dataset: Any = None,
        calib_batch_size: int | None = None,
        calib_steps: int | None = None,
        train_with_bn: bool = False,
        freeze_bn_delay: int = -1,
        **kwargs: Any,
    ) -> Any:
        """A model to train with `fit`: ranges come from the data set with `init_quant`, else from the first batch."""
        if train_with_bn or freeze_bn_delay >= 0:
            raise UsageError(
                "train_with_bn and freeze_bn_delay are not supported: batch norms are folded before training",
                fix="Leave them out",
            )
        calib_steps = kwargs.pop("calib_step", calib_steps)
        strategy = self._strategy = strategy_of(self._name, self._settings | kwargs)
        if not strategy.needs_data:
            raise UsageError("convert_datatype is for quantize_model")
        samples = None
        if init_quant:
            if calib_dataset is None:
                raise UsageError("calib_dataset is None", fix="init_quant=True needs typical inputs")
            batches = list(islice(_batches(calib_dataset, calib_batch_size or _ROWS), calib_steps))
            if not batches:
                raise CalibrationDataError("calib_dataset is empty")
            columns = zip(*(_arrays(batch) for batch in batches), strict=True)
            samples = tuple(np.concatenate(column).astype(np.float32) for column in columns)
        elif calib_dataset is not None:
            note("calib_dataset means nothing without init_quant=True: ranges come from the first batch")
        example = (
            np.zeros([1, *self._model.input_shape[1:]], np.float32) if samples is None else list(samples)
        )
        example = example[0] if isinstance(example, list) and len(example) == 1 else example
        graph = expanded(imported(self._model, example)[0])
        names = _input_names(graph, self._model, example)
        config = strategy.config(graph, _after(self._model))
        from npuc.compat.vitis.keras_qat import qat_model

        return qat_model(graph, names, samples, config, strategy.target, strategy.method, self._model)

    @staticmethod
    def get_deploy_model(model: Any) -> Any:
        """The integers of a trained model; a quantized model is deployed as it is."""
        from npuc.compat.vitis.keras_qat import deployed

        own = deployed(model)
        return own if own is not None else model if integers_of(model) else None


@contextmanager
def quantize_scope(*_: Any) -> Iterator[None]:
    """Inside of it, `keras.models.load_model` reads quantized models, too."""
    keras = keras_package()
    plain = keras.models.load_model

    def load_model(filepath: Any, *args: Any, **options: Any) -> Any:
        path = Path(str(filepath))
        if not path.is_file() or describe_content(path).kind != "mlir":
            return plain(filepath, *args, **options)
        graph = open_xmodel(path)
        assert isinstance(graph, Graph)
        return quantized_model(graph, [port.name for port in graph.inputs], path.stem)

    keras.models.load_model = keras.saving.load_model = load_model
    try:
        yield
    finally:
        keras.models.load_model = keras.saving.load_model = plain


def _save(model: Any, form: str, folder: Path) -> None:
    make_folder(folder)
    if form == "onnx":
        export_quantized_onnx(model.integers.graph, folder / "quantized_model.onnx")
    else:
        model.save(folder / "quantized_model.h5")
    note(f"=>{folder}")


def _batches(data: Any, rows: int) -> Iterator[Any]:
    """The inputs of each batch of an array, a Sequence, a tf.data.Dataset or a generator, without labels."""
    if isinstance(data, np.ndarray):
        for begin in range(0, len(data), rows):
            yield data[begin : begin + rows]
        return
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list | tuple):
        items: Any = (data[index] for index in range(len(data)))
    else:
        items = iter(data)
    for item in items:
        inputs = item[0] if isinstance(item, tuple) and len(item) in (2, 3) else item
        yield inputs


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _arrays(inputs: Any) -> list[Array]:
    parts = (
        list(inputs.values())
        if isinstance(inputs, Mapping)
        else inputs
        if isinstance(inputs, list | tuple)
        else [inputs]
    )
    to_numpy = keras_package().ops.convert_to_numpy
    return [np.asarray(part if isinstance(part, np.ndarray) else to_numpy(part)) for part in parts]


def _named(names: Sequence[str], inputs: Any) -> dict[str, Array]:
    arrays = _arrays(inputs)
    if len(arrays) != len(names):
        raise CalibrationDataError(f"a sample has {len(arrays)} inputs, and the model {len(names)}")
    return dict(
        zip(
            names,
            (array.astype(np.float32) if array.dtype == np.float64 else array for array in arrays),
            strict=True,
        )
    )


def _input_names(graph: Graph, model: Any, example: Any) -> list[str]:
    """The inputs of the network in the order of a call of the model."""
    ports = [port.name for port in graph.inputs]
    stated = (
        list(example)
        if isinstance(example, Mapping)
        else [str(t.name).split(":")[0] for t in model.inputs or ()]
    )
    return stated if sorted(stated) == sorted(ports) else ports


def _after(model: Any) -> dict[str, str]:
    """The layer that reads the result of each layer, where there is one."""
    names = [str(layer.name) for layer in model.layers]
    behind = dict(pairwise(names))
    for layer in model.layers:
        nodes = getattr(layer, "_outbound_nodes", ())
        if nodes:
            behind[str(layer.name)] = str(getattr(nodes[0], "operation", layer).name)
    return {name: other for name, other in behind.items() if name != other}
