"""`torch_quantizer`: post-training quantization in two runs of one script, `calib` and `test`.

In `calib`, `quant_model` is the float module, which keeps what it is called with; `export_quant_config` quantizes on that and
writes `quant_info.json`, the list of layers `<Model>.py`, and the integers themselves, `<Model>_calib.mlir` with its weights. In
`test`, `quant_model` computes those integers to the bit, and the exports write them in other forms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from npuc.calib.calibration import calibrate
from npuc.calib.sources import open_data
from npuc.compat.vitis.notices import note, refusal, warn, without_effect
from npuc.compat.vitis.pytorch_nndct.arguments import arguments_tuple, module_of, placed, traced
from npuc.compat.vitis.pytorch_nndct.exports import ExportedFiles, called
from npuc.compat.vitis.pytorch_nndct.names import own_name, vendor_names
from npuc.compat.vitis.pytorch_nndct.stubs import layers_between_stubs, with_float_layers
from npuc.compat.vitis.quant_config import TorchQuantSettings, read_quant_config
from npuc.compat.vitis.targets import B4096, resolve_target
from npuc.errors import FileFormatError, FileMissingError, UsageError
from npuc.files import make_folder, read_short, write_atomically
from npuc.flow import Quantized, expanded, quantize_network, quantize_on_data
from npuc.integrations.torch.calls import ImportedCall
from npuc.integrations.torch.integers import IntegerModule, ObservedModule
from npuc.ir import Graph, load_graph, result_names, save_graph, top
from npuc.ir.dtypes import quant_of
from npuc.quant.ladder.run import PipelineOptions

_LARGEST_FILE = 64 << 20
_MODES = {"calib": "calib", "test": "test", 1: "calib", 2: "test"}
_INFO = "quant_info.json"
_SCALE = "_scale"
"""How the names of constants end that are the scale of another."""


class torch_quantizer(ExportedFiles):
    """Quantizes a module: `quant_model` takes its place in the user's own loops."""

    latest: ClassVar[torch_quantizer | None] = None
    """The quantizer that was made last, which `dump_xmodel` exports."""

    def __init__(
        self,
        quant_mode: str | int,
        module: Any,
        input_args: Any = None,
        state_dict_file: Path | str | None = None,
        output_dir: Path | str = "quantize_result",
        bitwidth: int = 8,
        device: Any = None,
        quant_config_file: Path | str | None = None,
        target: str | None = None,
    ) -> None:
        if quant_mode not in _MODES:
            raise refusal(
                "QUANTIZER_TORCH_QUANT_CONFIG", f"quant_mode is {quant_mode!r}", "Give 'calib' or 'test'"
            )
        self.mode = _MODES[quant_mode]
        self.module = module_of(module)
        self.name = type(self.module).__name__
        self.output_dir = Path(output_dir)
        placed(device)
        if state_dict_file is not None:
            self.module.load_state_dict(_state_of(Path(state_dict_file)))
        self._settings = read_quant_config(quant_config_file, bitwidth)
        self._stated = _settings_text(quant_config_file, bitwidth, target)
        if target is None and self._settings.for_dpu:
            target = B4096
        self._target = None if target is None else resolve_target(target)
        arguments = arguments_tuple(input_args)
        self._call: ImportedCall = traced(self.module, arguments)
        self._between = layers_between_stubs(self.module, arguments) if self.mode == "calib" else None
        self._finetune = False
        self._observed: ObservedModule | None = None
        self._integers: IntegerModule | None = None
        if self.mode == "calib":
            self._observed = ObservedModule(self.module, self._call).eval()
        else:
            self._check_settings()
            self._integers = IntegerModule(self._saved(), self._call.signature).eval()
        torch_quantizer.latest = self

    @property
    def quant_model(self) -> Any:
        """The module that stands in the place of the float one."""
        return self._observed if self._integers is None else self._integers

    # Calibration

    def export_quant_config(self) -> None:
        """Quantize on what `quant_model` was called with, and write the result."""
        observed = self._observed
        if observed is None:
            raise UsageError("export_quant_config is for quant_mode 'calib'")
        if not observed.samples:
            raise refusal(
                "QUANTIZER_TORCH_NO_CALIBRATION",
                "quant_model was not called: there is nothing to calibrate with",
                "Run your evaluation with quantizer.quant_model before",
            )
        if observed.dropped:
            warn(
                f"{observed.dropped} samples did not fit memory and were not used",
                "QUANTIZER_TORCH_MEMORY_SHORTAGE",
            )
        done = self._quantized(observed.samples)
        folder = make_folder(self.output_dir)
        save_graph(done.graph, folder / f"{self.name}_calib.mlir")
        names = vendor_names(done.graph, self.name)
        _write(folder / f"{self.name}.py", _listing(self.name, names))
        _write(folder / _INFO, json.dumps(self._info(done, names), indent=2) + "\n")
        for text in done.outcome.notes:
            note(text)
        note(f"=>{len(observed.samples)} samples: {done.outcome.counts()}; {folder / _INFO}")

    def fast_finetune(self, run_fn: Callable[..., Any], run_args: Sequence[Any]) -> None:
        """Learn weights and scales from the data that `run_fn(*run_args)` gives to `quant_model` (AdaQuant, without labels)."""
        if self._observed is None:
            raise UsageError("fast_finetune is for quant_mode 'calib'", fix="In 'test', call load_ft_param")
        run_fn(*run_args)
        self._finetune = True

    def load_ft_param(self) -> None:
        """Nothing is left to load: the saved integers are those that were learned; said so if they were not."""
        if self._integers is None:
            raise UsageError("load_ft_param is for quant_mode 'test'")
        if not self._saved_info().get("fast_finetuned"):
            raise refusal(
                "QUANTIZER_TORCH_NO_CALIB_RESULT",
                f"{self.output_dir / _INFO} is of a calibration without fast_finetune",
                "Call fast_finetune in quant_mode 'calib'",
            )

    def _quantized(self, samples: Sequence[Mapping[str, Any]]) -> Quantized:
        settings = self._settings
        graph = expanded(self._call.graph)
        config = settings.config
        for text, level in settings.layers.items():
            config = config.with_layers((own_name(graph, text),), level)
        config = with_float_layers(config, graph, self._between)
        source = open_data(graph, samples)
        overrides = _overrides(graph, settings)
        if overrides:
            if self._finetune:
                raise refusal(
                    "QUANTIZER_TORCH_QUANT_CONFIG",
                    "fast_finetune is not supported beside methods for single layers",
                    "State one method for the whole model, or leave out fast_finetune",
                )
            if settings.correct:
                without_effect(
                    "include_bias_corr", "biases are corrected where the whole model has one method"
                )
            table = calibrate(graph, source, settings.method or "mse", overrides=overrides)
            return quantize_network(graph, table, config, self._target)
        ladder = PipelineOptions(steps=("adaquant",)) if self._finetune else None
        done, _ = quantize_on_data(
            graph,
            source,
            config,
            self._target,
            settings.method,
            correct=settings.correct,
            warn=note,
            ladder=ladder,
        )
        return done

    def _info(self, done: Quantized, names: Mapping[str, str]) -> dict[str, Any]:
        """`quant_info.json`: bits and fractional bits of every quantized tensor."""
        graph = done.graph
        inputs = {f"{self.name}::{port.name}": _positions(port.value) for port in graph.inputs}
        outputs = {
            names[name]: _positions(value) for name in names if (value := graph.find(name)) is not None
        }
        weights = {
            f"{self.name}::{op.ref.removesuffix(_SCALE)}": _position_of(
                float(graph.weights.array(op.ref).flat[0]), 8
            )
            for op in graph.ops
            if isinstance(op, top.WeightOp)
            and op.ref.endswith(_SCALE)
            and graph.weights.array(op.ref).size == 1
        }
        return {
            "param": {name: value for name, value in weights.items() if value},
            "output": {name: value for name, value in outputs.items() if value},
            "input": {name: value for name, value in inputs.items() if value},
            "fast_finetuned": self._finetune,
            "bias_corrected": done.corrected,
            "version": "3.5.0",
            "npuc": {
                "network": f"{self.name}_calib.mlir",
                "weights": _digest(self.module),
                "settings": self._stated,
            },
        }

    # Test

    def _check_settings(self) -> None:
        """The settings of 'test' are those of the calibration; what is left out is taken from there."""
        before = self._saved_info()["npuc"].get("settings", {})
        for name, value in self._stated.items():
            default = {"bitwidth": 8}.get(name)
            if value != default and value != before.get(name):
                raise refusal(
                    "QUANTIZER_TORCH_CALIB_RESULT_MISMATCH",
                    f"{name} is not that of the calibration in {self.output_dir / _INFO}",
                    "Calibrate with it: the integers are made there",
                )

    def _saved_info(self) -> dict[str, Any]:
        path = self.output_dir / _INFO
        if not path.is_file():
            raise refusal(
                "QUANTIZER_TORCH_NO_CALIB_RESULT",
                f"{path} does not exist",
                "Run with quant_mode 'calib' and call export_quant_config first",
                FileMissingError,
            )
        try:
            info = json.loads(read_short(path, _LARGEST_FILE, _INFO, FileFormatError))
            own = info["npuc"]
            if not isinstance(own["network"], str) or not isinstance(own["weights"], str):
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise refusal(
                "QUANTIZER_TORCH_NO_CALIB_RESULT",
                f"{path} was not written by npuc",
                "Calibrate again: the vendor's file has no integers in it",
                FileFormatError,
            ) from error
        return dict(info)

    def _saved(self) -> Graph:
        own = self._saved_info()["npuc"]
        if own["weights"] != _digest(self.module) or own["network"] != f"{self.name}_calib.mlir":
            raise refusal(
                "QUANTIZER_TORCH_CALIB_RESULT_MISMATCH",
                f"{self.output_dir / _INFO} is of another model or of other weights",
                "Calibrate this model again",
            )
        return load_graph(self.output_dir / own["network"])

    def _exported(self) -> IntegerModule:
        if self._integers is None:
            raise UsageError(
                "models are exported in quant_mode 'test'",
                fix="Calibrate first, then make a quantizer with 'test'",
            )
        return called(self._integers)


def dump_xmodel(output_dir: Path | str = "quantize_result", deploy_check: bool = False) -> None:
    """`export_xmodel` of the quantizer that was made last."""
    if torch_quantizer.latest is None:
        raise refusal(
            "QUANTIZER_TORCH_NO_FORWARD", "there is no quantizer yet", "Make a torch_quantizer first"
        )
    torch_quantizer.latest.export_xmodel(output_dir, deploy_check)


def load_vai_ops() -> None:
    """Nothing to load: files that npuc writes hold operators of torch and ONNX alone."""


def _settings_text(config: Path | str | None, bitwidth: int, target: str | None) -> dict[str, Any]:
    """What decides the integers, as it is compared with a calibration before."""
    digest = None if config is None else hashlib.sha256(Path(config).read_bytes()).hexdigest()
    return {"quant_config_file": digest, "bitwidth": bitwidth, "target": target}


def _overrides(graph: Graph, settings: TorchQuantSettings) -> dict[str, str]:
    """Range methods of single tensors, where they differ from the model's."""
    overrides: dict[str, str] = {}
    for op in graph.ops:
        method = settings.type_methods.get(op.name.removeprefix("top."), settings.method)
        if method is not None and method != settings.method and op.results:
            overrides |= dict.fromkeys(filter(None, result_names(op)), method)
    for text, method in settings.layer_methods.items():
        if method != settings.method:
            overrides[own_name(graph, text)] = method
    return overrides


def _positions(value: Any) -> list[list[int]]:
    kind = quant_of(value)
    return [] if kind is None else _position_of(float(kind.scale), kind.dtype.bits)


def _position_of(scale: float, bits: int) -> list[list[int]]:
    """Bits and fractional bits of a tensor with a power of two; empty for others."""
    position = -np.log2(scale) if scale else np.nan
    return [[bits, int(position)]] if float(position).is_integer() else []


def _digest(module: torch.nn.Module) -> str:
    """Of the names and values of all weights."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        if isinstance(tensor, torch.Tensor):
            digest.update(np.ascontiguousarray(tensor.detach().cpu().to(torch.float64).numpy()).tobytes())
    return digest.hexdigest()


def _state_of(path: Path) -> Any:
    if not path.is_file():
        raise FileMissingError("does not exist", where=str(path))
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises pickle's, zip's and its own errors for a file that is no state_dict.
        raise FileFormatError(
            "is not a state_dict", where=str(path), fix="Write it with torch.save(model.state_dict(), path)"
        ) from error


def _listing(model: str, names: Mapping[str, str]) -> str:
    lines = [
        f'"""The layers of {model} as they were quantized; the comments are names for quant_config_file."""',
        "",
        "LAYERS = [",
        *(f"    {own!r},  #{vendor}" for own, vendor in names.items()),
        "]",
        "",
    ]
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as out:
        out.write(text.encode())
