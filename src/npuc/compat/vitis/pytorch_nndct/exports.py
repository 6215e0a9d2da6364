"""What an integer network of a torch module is written as: `.xmodel`, ONNX, TorchScript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from npuc.compat.vitis.dumps import DumpFolder
from npuc.compat.vitis.notices import note, refusal, without_effect
from npuc.debug.layers import layer_tensors
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import UsageError
from npuc.export.qdq import export_quantized_onnx
from npuc.export.torch import export_torch
from npuc.files import make_folder
from npuc.flow import import_model
from npuc.integrations.signature import described_as
from npuc.integrations.torch.integers import IntegerModule
from npuc.ir import save_graph, shape_of


class ExportedFiles:
    """The exports that quantizers of modules have in common."""

    name: str
    """Of the class of the module."""

    def _exported(self) -> IntegerModule:
        """The integers; an error if they are not there yet."""
        raise NotImplementedError

    def export_xmodel(self, output_dir: Path | str = "quantize_result", deploy_check: bool = False) -> None:
        """Write `<Model>_int.xmodel` (an integer network for `vai_c_xir`) and, with `deploy_check`, all its tensors."""
        graph = self._exported().graph
        batch = {shape_of(port.value)[0] for port in graph.inputs}
        if batch != {1}:
            raise refusal(
                "QUANTIZER_TORCH_XMODEL_BATCHSIZE", "the batch has to be 1", "Give input_args with one row"
            )
        folder = make_folder(Path(output_dir))
        path = save_graph(graph, folder / f"{self.name}_int.xmodel")[0]
        note(f"=>{path}")
        if deploy_check:
            dumps = DumpFolder(folder / "deploy_check_data_int")
            for tensor in layer_tensors(IntegerEngine(graph), self._last_inputs()):
                dumps.write(tensor.name, tensor.values)
            note(f"=>{dumps.folder}")

    def export_onnx_model(
        self,
        output_dir: Path | str = "quantize_result",
        verbose: bool = False,
        dynamic_batch: bool = False,
        opset_version: int | None = None,
        native_onnx: bool = True,
        dump_layers: bool = False,
        check_model: bool = False,
        opt_graph: bool = False,
    ) -> None:
        """Write `<Model>_int.onnx` in QDQ form."""
        graph = self._exported().graph
        if dynamic_batch:
            raise UsageError(
                "dynamic_batch is not supported: networks have static shapes here", fix="Leave it out"
            )
        if dump_layers:
            raise UsageError(
                "dump_layers is not supported", fix="export_xmodel(deploy_check=True) writes all tensors"
            )
        if not native_onnx:
            note("native_onnx=False: ONNX's own QuantizeLinear and DequantizeLinear are written all the same")
        if verbose:
            without_effect("verbose", "what is written is always told")
        if opt_graph:
            without_effect("opt_graph", "the network is folded and fused before it is quantized")
        path = make_folder(Path(output_dir)) / f"{self.name}_int.onnx"
        export_quantized_onnx(graph, path)
        _check_opset(path, opset_version)
        note(f"=>{path}")
        if check_model:
            self._compare(path)

    def export_torch_script(self, output_dir: Path | str = "quantize_result", verbose: bool = False) -> None:
        """Write `<Model>_int.pt`, which `torch.jit.load` reads; it computes the same integers."""
        if verbose:
            without_effect("verbose", "what is written is always told")
        path = make_folder(Path(output_dir)) / f"{self.name}_int.pt"
        exported = self._exported()
        export_torch(exported.graph, path, described_as(exported.signature))
        note(f"=>{path}")

    def _last_inputs(self) -> dict[str, Any]:
        arrays = self._exported().last_inputs
        return {
            name: array[:1] if self._exported().signature.rows_vary else array
            for name, array in arrays.items()
        }

    def _compare(self, path: Path) -> None:
        """Hold the ONNX file against the integers on the last input."""
        sample = self._last_inputs()
        exact = IntegerEngine(self._exported().graph).run(sample)
        given = FloatEngine(import_model(path)).run(sample)
        largest = max(float(np.max(np.abs(exact[name] - given[name]))) for name in exact)
        note(f"check_model: outputs of {path.name} differ from the integers by {largest:.6g} at most")


def called(integers: IntegerModule) -> IntegerModule:
    """The integers, if they were looked at: the vendor's tools want a call before an export."""
    if not integers.calls:
        raise refusal(
            "QUANTIZER_TORCH_NO_FORWARD",
            "the quantized model was not called",
            "Run it once before you export, as the vendor's tool wants it, and look at its accuracy",
        )
    return integers


def _check_opset(path: Path, most: int | None) -> None:
    if most is None:
        return
    stated = max(
        entry.version for entry in onnx.load(path, load_external_data=False).opset_import if not entry.domain
    )
    if stated > most:
        path.unlink()
        raise UsageError(f"the network needs opset {stated}, and opset_version is {most}")
