"""`qubee.model_dict`: a model with its float network and, once compiled, its integer network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.samples import fit_array
from npuc.compat.qubee.compiling import checked_device, compile_imported, known_keywords
from npuc.compat.qubee.mmc import Compiler
from npuc.compat.qubee.models import import_model
from npuc.compat.qubee.notices import in_own_words, note, wrong
from npuc.compat.qubee.settings import CompileSettings
from npuc.engine import FloatEngine
from npuc.errors import InputDataError, UsageError
from npuc.ir import Graph, result_names, shape_of, top
from npuc.partition.work import macs

__all__ = ["Model", "Model_Dict"]


class Model:
    """The float network, ready to run."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._engine: FloatEngine | None = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for one set of inputs, by name."""
        if self._engine is None:
            self._engine = FloatEngine(self.graph)
        return self._engine.run(inputs)


class Model_Dict:
    """A model: `inference` computes it in float, `compile` makes a program of it, `inference_int8` computes its integers."""

    def __init__(
        self, model: Any, backend: str = "onnx", input_shape: Any = None, device: str = "cpu"
    ) -> None:
        checked_device(device)
        self._imported = import_model(model, backend, input_shape)
        graph = self._imported.graph
        self.model_dict: dict[str, Any] = {
            result_names(op)[0]: op for op in graph.ops if op.results and not isinstance(op, top.WeightOp)
        }
        """The ops of the network by the names of their results."""
        self.model_from = self._imported.framework
        self.output_name_list = [port.name for port in graph.outputs]
        self.p_model: Model | None = Model(graph)
        self.c_model: Compiler | None = None
        self.device = device

    @property
    def has_p_model(self) -> bool:
        """Whether there is a float network."""
        return self.p_model is not None

    @property
    def has_c_model(self) -> bool:
        """Whether there is a compiled model."""
        return self.c_model is not None

    @property
    def is_compiled(self) -> bool:
        """Whether `compile` was called."""
        return self.has_c_model

    @in_own_words
    def compile(
        self,
        calib_data_path: Path | str | None,
        save_path: Path | str,
        model_nickname: str | None = None,
        quantize_method: str = "Percentile",
        quantize_percentile: float = 0.9999,
        topk_ratio: float = 0,
        smooth_factor: float = 1.6,
        is_quant_ch: bool = False,
        optimization: bool = True,
        optimization_level: int = 5,
        save_sample: bool = False,
        use_random_calib: bool = False,
        cpu_offload: bool = False,
        quant_output: str = "layer",
        adaq_useadaquant: bool = False,
        adaq_weightDeltaLR: float = 0,
        adaq_biasDeltaLR: float = 0,
        adaq_weightScaleLR: float = 0,
        adaq_biasScaleLR: float = 0,
        adaq_actScaleLR: float = 0,
        adaq_batchSize: int = 16,
        adaq_epoch: int = 10,
        **later: Any,
    ) -> None:
        """Quantize and compile, as `mxq_compile` does."""
        settings = CompileSettings.of(dict(locals()) | known_keywords(self.compile, later))
        self.c_model = compile_imported(
            self._imported, calib_data_path, model_nickname, save_path, self.device, settings
        )

    @in_own_words
    def inference(self, input_tensor: Any, cast_cpu: bool = False) -> list[Any]:
        """The outputs of the float network, in the order of `output_name_list`, as arrays or tensors, as given.

        `cast_cpu` means nothing here: the float network is computed on the CPU.
        """
        assert self.p_model is not None
        if cast_cpu:
            note("cast_cpu has no effect: the float network is computed on the CPU")
        return self._computed(self.p_model, input_tensor)

    @in_own_words
    def inference_int8(self, input_tensor: Any) -> list[Any]:
        """The outputs of the integer network."""
        if self.c_model is None:
            raise UsageError("inference_int8 needs a compiled model", fix="Call compile() first")
        return self._computed(self.c_model.engine(), input_tensor)

    @in_own_words
    def inference_int8_input_dict(self, input_dict: Mapping[str, Any]) -> list[Any]:
        """The outputs of the integer network, for inputs by name."""
        if not isinstance(input_dict, Mapping):
            raise wrong("input_dict", type(input_dict).__name__, "a dictionary of tensors by input")
        return self.inference_int8(input_dict)

    def cal_ops(self) -> int:
        """Additions and multiplications of an inference: two for each multiply-accumulate."""
        return 2 * sum(macs(op) for op in self._imported.graph.ops)

    def to(self, device: str) -> Model_Dict:
        """Choose the device that AdaQuant learns on; the model itself."""
        checked_device(device)
        self.device = device
        return self

    def _computed(self, engine: Any, given: Any) -> list[Any]:
        ports = self._imported.graph.inputs
        by_name = _by_name(given, [port.name for port in ports])
        is_tensor = any(type(value).__module__.startswith("torch") for value in by_name.values())
        rows = {
            port.name: fit_array(_array(by_name[port.name]), port, f"input '{port.name}'") for port in ports
        }
        sizes = {name: shape_of(port.value)[:1] or (1,) for name, port in zip(rows, ports, strict=True)}
        counts = {len(array) // sizes[name][0] for name, array in rows.items()}
        if len(counts) != 1:
            raise InputDataError("the inputs have different numbers of samples")
        runs = [
            engine.run(
                {name: array[k * sizes[name][0] : (k + 1) * sizes[name][0]] for name, array in rows.items()}
            )
            for k in range(counts.pop())
        ]
        outputs = [np.concatenate([run[name] for run in runs]) for name in self.output_name_list]
        if not is_tensor:
            return outputs
        import torch

        return [torch.from_numpy(array) for array in outputs]


def _by_name(given: Any, names: Sequence[str]) -> dict[str, Any]:
    """Inputs by name, from a mapping, a list in order, or the tensor of the only one."""
    values = dict(given) if isinstance(given, Mapping) else given
    if not isinstance(values, dict):
        listed = values if isinstance(values, list | tuple) else [values]
        if len(listed) != len(names):
            raise InputDataError(
                f"{len(listed)} tensors were given, and the model has {len(names)} inputs",
                fix=f"In order they are {', '.join(names)}",
            )
        values = dict(zip(names, listed, strict=True))
    for name in names:
        if name not in values:
            raise InputDataError(f"input '{name}' is missing", fix=f"The inputs are {', '.join(names)}")
    for name in values:
        if name not in names:
            raise InputDataError(f"there is no input '{name}'", fix=f"The inputs are {', '.join(names)}")
    return values


def _array(value: Any) -> Array:
    if type(value).__module__.startswith("torch"):
        from npuc.integrations.torch.tensors import array_of

        return array_of(value)
    return np.asarray(value)
