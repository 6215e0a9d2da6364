"""The functions of MQBench that TPU-MLIR's training page uses, on npuc's quantization-aware training.

    model_quantized = prepare_by_platform(model, BackendType.sophgo_tpu)
    enable_calibration(model_quantized)         # then call it with typical batches
    enable_quantization(model_quantized)        # then train it
    convert_deploy(model_quantized, BackendType.sophgo_tpu, {"data": [1, 3, 224, 224]}, model_name="resnet18")

In training mode the model has fake quantizers with learned scales (LSQ); in eval mode it computes the integers that
`model_deploy.py` deploys with the files of `convert_deploy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from npuc.compat.running import warn
from npuc.compat.tpumlir.chips import MACHINE
from npuc.compat.tpumlir.mqbench_files import write_deployment
from npuc.compat.tpumlir.ranges import int8_config
from npuc.errors import UsageError
from npuc.quant.config import QuantizationConfig
from npuc.target import load_target
from npuc.train.data import TrainingData
from npuc.train.qat.module import QatModule
from npuc.train.qat.prepare import prepare

__all__ = [
    "BackendType",
    "convert_deploy",
    "disable_all",
    "enable_calibration",
    "enable_quantization",
    "prepare_by_platform",
]

_CALIBRATED = 256
"""Rows of the calibration batches that are kept: as many as `npuc.train.prepare` looks at."""


class BackendType(Enum):
    """The platforms of that library that the page names."""

    sophgo_tpu = "sophgo_tpu"
    Sophgo_TPU = "Sophgo_TPU"


class QuantizedModel(torch.nn.Module):  # type: ignore[misc]
    """A module on its way from float through calibration to training with quantization.

    Its shapes are known when it is first called. Parameters that an optimizer got before that are replaced in the optimizer by
    those that are trained, at its first step.
    """

    def __init__(self, model: torch.nn.Module, config: QuantizationConfig) -> None:
        super().__init__()
        self.model: torch.nn.Module | None = model
        self.qat: QatModule | None = None
        self.phase, self.chip = "float", MACHINE
        object.__setattr__(self, "float_model", model)
        self.config = config
        self._batches: list[tuple[Any, ...]] = []
        self._rows = 0

    def forward(self, *inputs: Any) -> Any:
        """What the module gives: in float, or quantized once that is enabled."""
        if self.phase == "calibration":
            self._keep(inputs)
        if self.phase == "quantization" and self.qat is None:
            warn("no batch was given for calibration: the ranges are those of the first one")
            self._keep(inputs)
            self.begin()
        if self.qat is None:
            assert self.model is not None
            return self.model(*inputs)
        return self.qat(*inputs) if self.phase == "quantization" else self.qat.network(*inputs)

    def _keep(self, inputs: tuple[Any, ...]) -> None:
        if not all(isinstance(x, torch.Tensor) for x in inputs):
            raise UsageError("a quantized model is called with tensors only")
        if self._rows < _CALIBRATED:
            self._batches.append(tuple(x.detach().cpu().numpy() for x in inputs))
            self._rows += len(inputs[0])

    def begin(self) -> None:
        """Give the network its ranges and learned scales, from the batches that were kept."""
        if not self._batches:
            return
        assert self.model is not None
        arrays = tuple(np.concatenate(parts) for parts in zip(*self._batches, strict=True))
        old = list(self.model.parameters())
        place = old[0].device if old else torch.device("cpu")
        qat = prepare(self.model.cpu(), TrainingData(arrays), target=MACHINE, config=self.config)
        self.qat = qat.to(place).train(self.training)
        self.model = None
        self._batches = []
        _follow(old, self.qat)


def _follow(old: list[Any], qat: QatModule) -> None:
    """Let optimizers that were made of earlier parameters train the present ones."""
    stale = {id(parameter): parameter for parameter in old}
    trained = [parameter for parameter in qat.parameters() if parameter.requires_grad]

    def replace(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        groups = [g for g in optimizer.param_groups if any(id(p) in stale for p in g["params"])]
        for group in groups:
            group["params"] = [p for p in group["params"] if id(p) not in stale]
        if groups:
            groups[0]["params"] += trained

    register_optimizer_step_pre_hook(replace)


def prepare_by_platform(
    model: Any,
    deploy_backend: Any,
    prepare_custom_config_dict: Mapping[str, Any] | None = None,
    *_: Any,
    **options: Any,
) -> QuantizedModel:
    """The model with the quantization of the chip: weights per channel and symmetric, activations symmetric, 8 bits."""
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"prepare_by_platform takes a torch module, and was given a {type(model).__name__}")
    _backend(deploy_backend)
    for name in options:
        warn(f"prepare_by_platform: {name} has no effect here")
    settings = dict(prepare_custom_config_dict or {})
    prepared = QuantizedModel(model, _config(settings.pop("extra_qconfig_dict", {}) or {}))
    for name in (settings.pop("preserve_attr", {}) or {}).get("", ()):
        setattr(prepared, name, getattr(model, name))
    for name in settings:
        warn(f"prepare_by_platform: {name} of prepare_custom_config_dict has no effect here")
    return prepared


def _backend(backend: Any) -> None:
    if not isinstance(backend, BackendType):
        raise UsageError(f"{backend!r} is no platform here", fix="Give BackendType.sophgo_tpu")


def _config(settings: Mapping[str, Any]) -> QuantizationConfig:
    """The scheme of the chip, or the one that differs from it as the settings say."""
    asymmetric = False
    for name, value in settings.items():
        if name not in ("w_qscheme", "a_qscheme"):
            warn(
                f"prepare_by_platform: {name} has no effect here: scales are learned from calibrated ranges on"
            )
            continue
        for key, stated in dict(value).items():
            if name == "a_qscheme" and key == "symmetry":
                asymmetric = not stated
            elif stated != {
                "bit": 8,
                "symmetry": True,
                "per_channel": name == "w_qscheme",
                "pot_scale": False,
            }.get(key, stated):
                raise UsageError(
                    f"{name}: {key} = {stated} is not what the chip computes with",
                    fix="Leave it out: 8 bits, symmetric, weights per channel and activations per tensor",
                )
    return int8_config(load_target(MACHINE), asymmetric=asymmetric)


def enable_calibration(model: Any) -> None:
    """From now on the batches that the model is called with are looked at."""
    quantized = _prepared(model, "enable_calibration")
    if quantized.qat is None:
        quantized.phase = "calibration"


def enable_quantization(model: Any) -> None:
    """From now on the model is quantized, and is trained so."""
    quantized = _prepared(model, "enable_quantization")
    quantized.phase = "quantization"
    if quantized.qat is None:
        quantized.begin()


def disable_all(model: Any) -> None:
    """From now on the model computes in float, with the weights of now."""
    _prepared(model, "disable_all").phase = "float"


def convert_deploy(
    model: Any,
    backend_type: Any,
    input_shape_dict: Mapping[str, Any] | None = None,
    dummy_input: Any = None,
    output_names: Any = None,
    model_name: str = "mqbench_qmodel",
    **options: Any,
) -> None:
    """Write the trained network as float ONNX, and the ranges and scales of weights as a calibration table."""
    quantized = _prepared(model, "convert_deploy")
    _backend(backend_type)
    for name in options:
        warn(f"convert_deploy: {name} has no effect here")
    if output_names:
        warn("convert_deploy: output_names has no effect here: outputs keep their names")
    if quantized.qat is None:
        raise UsageError(
            "convert_deploy: the model was never quantized",
            fix="Call enable_calibration, the model with typical batches, and enable_quantization first",
        )
    write_deployment(quantized, dict(input_shape_dict or {}), dummy_input, Path(model_name))


def _prepared(model: Any, function: str) -> QuantizedModel:
    inner = getattr(model, "module", model)
    if not isinstance(inner, QuantizedModel):
        raise UsageError(
            f"{function} takes a model that prepare_by_platform gave, and was given a {type(inner).__name__}"
        )
    return inner
