"""How a model is quantized and compiled: arguments of `mxq_compile` and `Model_Dict.compile`, checked, and npuc's words."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npuc.compat.qubee.notices import note, wrong
from npuc.errors import UsageError
from npuc.quant.adaquant.options import AdaQuantOptions
from npuc.quant.config import LadderConfig, QuantizationConfig
from npuc.target import Target, load_target

TARGET_VARIABLE = "NPUC_QUBEE_TARGET"
"""The environment variable that names another target than `DEFAULT_TARGET`."""
DEFAULT_TARGET = "aries-like"
_OF_MODEL_DICT = 0.9999
"""The percentile of `Model_Dict.compile` unless another is given."""
_METHODS = ("max", "percentile", "maxpercentile", "kl")
_LEVELS = (0, 1, 1, 2, 2, 2)
"""npuc's level of optimization by the vendor's; from 6 on it is 3."""


@dataclass(frozen=True)
class CompileSettings:
    """Names and defaults are the vendor's."""

    quantize_method: str = "Percentile"
    quantize_percentile: float = 0.99995
    topk_ratio: float = 0
    smooth_factor: float = 1.6
    is_quant_ch: bool = False
    optimization: bool = True
    optimization_level: int = 5
    save_sample: bool = False
    use_random_calib: bool = False
    cpu_offload: bool = False
    quant_output: str = "layer"
    adaq_useadaquant: bool = False
    adaq_weightDeltaLR: float = 0
    adaq_biasDeltaLR: float = 0
    adaq_weightScaleLR: float = 0
    adaq_biasScaleLR: float = 0
    adaq_actScaleLR: float = 0
    adaq_batchSize: int = 16
    adaq_epoch: int = 10
    target_device: str | None = None
    inference_scheme: str | None = None

    def __post_init__(self) -> None:
        for name in (
            "is_quant_ch", "optimization", "save_sample", "use_random_calib", "cpu_offload", "adaq_useadaquant",
        ):  # fmt: skip
            if not isinstance(getattr(self, name), bool):
                raise wrong(name, getattr(self, name), "True or False")
        if not isinstance(self.quantize_method, str) or self.quantize_method.lower() not in _METHODS:
            raise wrong("quantize_method", self.quantize_method, "Max, Percentile, MaxPercentile or KL")
        if not _number(self.quantize_percentile) or not 0 < self.quantize_percentile <= 1:
            raise wrong(
                "quantize_percentile",
                self.quantize_percentile,
                "a share above 0 and at most 1, such as 0.9999",
            )
        for name in ("topk_ratio", *_RATES):
            if not _number(getattr(self, name)) or not 0 <= getattr(self, name) <= 1:
                raise wrong(name, getattr(self, name), "a number from 0 to 1")
        if not _number(self.smooth_factor) or not 0 <= self.smooth_factor <= 128:
            raise wrong("smooth_factor", self.smooth_factor, "a number from 0 to 128")
        for name, least in (("optimization_level", 0), ("adaq_batchSize", 1), ("adaq_epoch", 1)):
            if type(getattr(self, name)) is not int or getattr(self, name) < least:
                raise wrong(name, getattr(self, name), f"a whole number, {least} or more")
        if self.quant_output not in ("layer", "ch", "sigmoid"):
            raise wrong("quant_output", self.quant_output, "layer, ch or sigmoid")
        if self.quant_output == "ch" and not self.is_quant_ch:
            raise UsageError("quant_output='ch' is for is_quant_ch=True only", fix="Add is_quant_ch=True")
        scheme = self.inference_scheme
        if scheme is not None and (
            not isinstance(scheme, str) or not scheme.lower().startswith(("single", "multi", "global"))
        ):
            raise wrong("inference_scheme", scheme, "single, multi or global")

    def tell_unused(self) -> None:
        """A line about each argument that was changed and means nothing beside the others."""
        kind = self.quantize_method.lower()
        methods = {
            "quantize_percentile": ("percentile", "maxpercentile"),
            "topk_ratio": ("maxpercentile",),
            "smooth_factor": ("kl",),
        }
        default = CompileSettings()
        for name, used in methods.items():
            percentiles = (
                (default.quantize_percentile, _OF_MODEL_DICT) if name == "quantize_percentile" else ()
            )
            if kind not in used and getattr(self, name) not in (getattr(default, name), *percentiles):
                note(f"{name} has no effect: quantize_method is '{self.quantize_method}'")
        for name in (*_RATES, "adaq_batchSize", "adaq_epoch"):
            if not self.adaq_useadaquant and getattr(self, name) != getattr(default, name):
                note(f"{name} has no effect: adaq_useadaquant is False")

    @property
    def method(self) -> str:
        """The range method, in npuc's words."""
        kind = self.quantize_method.lower()
        if kind == "percentile":
            return f"percentile:ratio={self.quantize_percentile:g}"
        if kind == "maxpercentile":
            top = f",top={self.topk_ratio:g}" if self.topk_ratio else ""
            return f"max-percentile:ratio={self.quantize_percentile:g}{top}"
        return f"kl:sigma={self.smooth_factor:g}" if kind == "kl" else "max"

    @property
    def level(self) -> int:
        """npuc's level of optimization."""
        return _LEVELS[self.optimization_level] if self.optimization_level < len(_LEVELS) else 3

    @property
    def cores(self) -> int | None:
        """How many cores a program may use; None for all."""
        return 1 if (self.inference_scheme or "").lower() == "single" else None

    @cached_property
    def target(self) -> Target:
        """The machine that is compiled for."""
        if self.target_device is None:
            return load_target(os.environ.get(TARGET_VARIABLE) or DEFAULT_TARGET)
        if not isinstance(self.target_device, str):
            raise wrong("target_device", self.target_device, "a name, such as aries")
        return load_target(self.target_device)

    def config(self, samples: int | None = None) -> QuantizationConfig:
        """What is quantized how; the number of samples decides how long AdaQuant learns."""
        return QuantizationConfig(
            options={"per_channel": self.is_quant_ch},
            per_channel_outputs=self.quant_output == "ch",
            output_method="sigmoid" if self.quant_output == "sigmoid" else None,
            ladder=LadderConfig(adaquant=self._adaquant(samples))
            if self.adaq_useadaquant
            else LadderConfig(),
        )

    def _adaquant(self, samples: int | None) -> AdaQuantOptions:
        rounds = self.adaq_epoch * math.ceil((samples or 1) / self.adaq_batchSize)
        options: dict[str, Any] = {"iterations": min(rounds, 1_000_000), "batch": self.adaq_batchSize}
        if self.adaq_biasScaleLR:
            note("adaq_biasScaleLR has no effect here: a bias has the scale of its sum")
        if not any(getattr(self, name) for name in _RATES if name != "adaq_biasScaleLR"):
            note("all learning rates of AdaQuant are 0: npuc's own are taken")
            return AdaQuantOptions(**options)
        rates = {own: getattr(self, name) for name, own in _RATES.items() if own}
        return AdaQuantOptions(real_rates=True, **rates, **options)

    @staticmethod
    def of(values: Mapping[str, Any]) -> CompileSettings:
        """Those of some arguments that are settings."""
        return CompileSettings(
            **{name: values[name] for name in CompileSettings.__dataclass_fields__ if name in values}
        )


_RATES = {
    "adaq_weightDeltaLR": "weight_rate",
    "adaq_biasDeltaLR": "bias_rate",
    "adaq_weightScaleLR": "weight_scale_rate",
    "adaq_biasScaleLR": "",
    "adaq_actScaleLR": "activation_scale_rate",
}
"""The vendor's learning rates, and npuc's options."""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
