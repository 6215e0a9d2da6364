"""`QatProcessor`: quantization-aware training under the vendor's names, on npuc's.

`trainable_model` is trained in the user's loop; its ranges come from the first batch that it is called with, since the inputs of
a processor need not be data. `to_deployable` gives the integers of the program, and writes them into a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from npuc.compat.vitis.notices import note, refusal, without_effect
from npuc.compat.vitis.pytorch_nndct.arguments import arguments_tuple, module_of, placed, traced
from npuc.compat.vitis.pytorch_nndct.exports import ExportedFiles, called
from npuc.compat.vitis.pytorch_nndct.stubs import layers_between_stubs, with_float_layers
from npuc.compat.vitis.quant_config import read_quant_config
from npuc.compat.vitis.targets import B4096
from npuc.errors import FileMissingError, TrainingError
from npuc.files import make_folder
from npuc.flow import expanded
from npuc.integrations.structure import described
from npuc.integrations.torch.calls import is_tensor
from npuc.integrations.torch.integers import IntegerModule
from npuc.integrations.torch.tensors import array_of
from npuc.ir import load_graph, save_graph
from npuc.train.data import TrainingData
from npuc.train.qat.module import QatModule
from npuc.train.qat.prepare import calibrate_at_first_call, prepare

__all__ = ["QatProcessor"]


class QatProcessor(ExportedFiles):
    """Makes a module trainable with quantization, and deployable after that."""

    def __init__(
        self, model: Any, inputs: Any, bitwidth: int = 8, mix_bit: bool = False, device: Any = None
    ) -> None:
        if mix_bit:
            raise refusal(
                "QUANTIZER_TORCH_QAT_PROCESS_ERROR",
                "mix_bit is not documented by the vendor",
                "Widths of single layers are in the configuration of npuc.train.prepare",
            )
        placed(device)
        self._module = module_of(model)
        self.name = type(self._module).__name__
        self._settings = read_quant_config(None, bitwidth)
        self._arguments = arguments_tuple(inputs)
        self._call = traced(self._module, self._arguments)
        self._between = layers_between_stubs(self._module, self._arguments)
        self._trainable: TrainableModel | None = None
        self._integers: IntegerModule | None = None

    def trainable_model(
        self, calib_dir: Path | str = "", allow_reused_module: bool = False
    ) -> TrainableModel:
        """The module with learned scales for weights and activations."""
        if calib_dir:
            without_effect("calib_dir", "ranges come from the first batch")
        if allow_reused_module:
            without_effect(
                "allow_reused_module",
                "modules without weights may be used again, and shared weights are refused",
            )
        tensors = described((self._arguments, {}), is_tensor)[1]
        graph = expanded(self._call.graph)
        try:
            qat = prepare(
                graph,
                TrainingData(tuple(array_of(tensor) for tensor in tensors)),
                target=B4096 if self._settings.for_dpu else None,
                config=with_float_layers(self._settings.config, graph, self._between),
            )
        except TrainingError as error:
            raise refusal(
                "QUANTIZER_TORCH_REUSED_MODULE"
                if "shared" in error.message
                else "QUANTIZER_TORCH_QAT_PROCESS_ERROR",
                error.message,
                error.fix or "",
                TrainingError,
            ) from error
        calibrate_at_first_call(qat)
        self._trainable = TrainableModel(qat)
        return self._trainable

    def to_deployable(self, trained_model: Any, output_dir: Path | str = "qat_result") -> IntegerModule:
        """A module that computes the integers of the program; they are written to `<output_dir>/<Model>_qat.mlir`."""
        if isinstance(trained_model, torch.nn.DataParallel):
            trained_model = trained_model.module
        if self._trainable is None or not isinstance(trained_model, TrainableModel):
            raise refusal(
                "QUANTIZER_TORCH_QAT_PROCESS_ERROR",
                "the model is not one that trainable_model gave",
                "Call trainable_model, train what it returns, and give that",
            )
        if trained_model.qat.awaits_data:
            raise refusal(
                "QUANTIZER_TORCH_QAT_PROCESS_ERROR",
                "the trainable model was never called: its ranges are not known",
                "Train it, or load the state of one that was trained",
            )
        graph = trained_model.qat.export()
        path = save_graph(graph, make_folder(Path(output_dir)) / f"{self.name}_qat.mlir")[0]
        note(f"=>{path}")
        self._integers = IntegerModule(graph, self._call.signature).eval()
        return self._integers

    convert_to_deployable = to_deployable

    def deployable_model(self, src_dir: Path | str, used_for_xmodel: bool = False) -> IntegerModule:
        """The module that `to_deployable` has written into a folder."""
        path = Path(src_dir) / f"{self.name}_qat.mlir"
        if not path.is_file():
            raise refusal(
                "QUANTIZER_TORCH_QAT_PROCESS_ERROR",
                f"{path} does not exist",
                "Call to_deployable first",
                FileMissingError,
            )
        if used_for_xmodel:
            without_effect("used_for_xmodel", "the integers are those of the xmodel in any case")
        self._integers = IntegerModule(load_graph(path), self._call.signature).eval()
        return self._integers

    def _exported(self) -> IntegerModule:
        if self._integers is None:
            raise refusal(
                "QUANTIZER_TORCH_QAT_PROCESS_ERROR",
                "there is no deployable model yet",
                "Call to_deployable first",
            )
        return called(self._integers)


class TrainableModel(torch.nn.Module):  # type: ignore[misc]
    """The network with fake quantization in training mode, and the deployed integers in eval mode."""

    def __init__(self, qat: QatModule) -> None:
        super().__init__()
        self.qat = qat

    def forward(self, *inputs: Any) -> Any:
        """The output, or a tuple of the outputs."""
        return self.qat(*inputs)

    def quantizer_parameters(self) -> list[Any]:
        """The scales."""
        return self.qat.scale_parameters()

    def non_quantizer_parameters(self) -> list[Any]:
        """The weights and biases."""
        return self.qat.weight_parameters()
