"""The JSON configuration of the vendor's PyTorch quantizer (`quant_config_file`) as a configuration of npuc.

Settings of a tensor come from four levels, the later one wins: defaults, `overall_quantize_config`, `tensor_quantize_config`,
and an entry of `layer_quantize_config`. Commas before a closing bracket, which the guide's own examples have, are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuc.compat.vitis.notices import note, refusal, unknown_option
from npuc.compat.vitis.quantization import dpu_scheme, dpu_settings
from npuc.errors import FileFormatError, NpucError, QuantizationError
from npuc.files import read_short
from npuc.quant.config import QuantizationConfig

_LARGEST_FILE = 1 << 20
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')
_CLASSES = ("input", "weights", "bias", "activation")
_DEFAULT = {
    "datatype": "int",
    "bit_width": 8,
    "method": "diffs",
    "round_mode": "std_round",
    "symmetry": True,
    "per_channel": False,
    "signed": True,
    "narrow_range": False,
    "scale_type": "poweroftwo",
    "calib_statistic_method": "modal",
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "datatype": ("int", "bfloat16", "float16", "float32"),
    "bit_width": tuple(range(2, 17)),
    "method": ("maxmin", "percentile", "entropy", "mse", "diffs"),
    "round_mode": ("half_even", "half_up", "half_down", "std_round"),
    "symmetry": (True, False),
    "per_channel": (True, False),
    "signed": (True, False),
    "narrow_range": (True, False),
    "scale_type": ("float", "poweroftwo"),
    "calib_statistic_method": ("modal", "max", "mean", "median"),
}
_SWITCHES = {
    "convert_relu6_to_relu": False,
    "convert_silu_to_hswish": False,
    "include_cle": True,
    "include_bias_corr": True,
    "keep_first_last_layer_accuracy": False,
    "keep_add_layer_accuracy": False,
}
_LAYER_KEYS = {
    "layer_type",
    "layer_name",
    "quantizable_data_type",
    "overall_quantize_config",
    "tensor_quantize_config",
}
_FLOATS = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
_METHODS = {"maxmin": "max", "percentile": "percentile", "entropy": "kl", "mse": "mse", "diffs": "mse"}
_STATISTICS = {"max": "max", "mean": "mean", "median": "median", "modal": "mode"}
"""Range methods for `maxmin` by how the extremes of batches become one figure."""
_WEIGHT_METHODS = {
    "maxmin": "max",
    "percentile": "percentile",
    "mse": "mse",
    "diffs": "mse",
    "entropy": "mse",
}
_CONSTANT_ROUNDING = {
    "half_even": "half_even",
    "half_up": "half_up",
    "half_down": "half_down",
    "std_round": "half_away",
}
_OF_BIASES = ("bit_width", "method", "calib_statistic_method", "narrow_range", "round_mode")
"""Settings of biases that the scale of their sums decides, or that are told."""
_WIDE = {"wide_sum_bits": 48, "wide_bias_bits": 48, "bias_significant_bits": 0}
"""Fields of schemes of more than 8 bits, which the DPU does not have."""
_LAYER_TYPES = {
    "Conv1d": "conv",
    "Conv2d": "conv",
    "Conv3d": "conv",
    "ConvTranspose2d": "deconv",
    "ConvTranspose3d": "deconv",
    "Linear": "matmul",
    "ReLU": "relu",
    "ReLU6": "clip",
    "LeakyReLU": "leaky_relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "SiLU": "silu",
    "Hardswish": "hard_swish",
    "Hardsigmoid": "hard_sigmoid",
    "Softmax": "softmax",
    "MaxPool2d": "max_pool",
    "AvgPool2d": "avg_pool",
    "AdaptiveAvgPool2d": "avg_pool",
    "Add": "add",
    "Sub": "sub",
}


@dataclass(frozen=True)
class TorchQuantSettings:
    """What a configuration file says."""

    config: QuantizationConfig
    method: str | None = None
    """The range method; None leaves the choice to npuc."""
    correct: bool = True
    type_methods: Mapping[str, str] = field(default_factory=dict)
    """Range methods of the results of some ops."""
    layer_methods: Mapping[str, str] = field(default_factory=dict)
    """And of some layers, by the vendor's names."""
    for_dpu: bool = False
    """Whether the arithmetic is the DPU's, so that its limits say what stays float."""
    layers: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Changes to the scheme of layers, by the vendor's names."""


def read_quant_config(path: Path | str | None, bits: int = 8) -> TorchQuantSettings:
    """The settings of a file; those of the DPU if there is none. `bits` is the width where the file states none."""
    if path is None:
        if bits not in _CHOICES["bit_width"]:
            raise _wrong(f"bitwidth is {bits!r}", "Give 2 to 16")
        widths = (
            {}
            if bits == 8
            else {"activation": f"i{max(bits, 8)}", "weight": f"i{bits}", **(_WIDE if bits > 8 else {})}
        )
        config, target = dpu_settings(**widths)
        return TorchQuantSettings(config, for_dpu=target is not None)
    data = read_short(path, _LARGEST_FILE, "a quantization configuration", FileFormatError)
    try:
        content = json.loads(_TRAILING_COMMA.sub(lambda part: part[1] or "", data.decode()))
    except ValueError as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(content, dict):
        raise FileFormatError("is not a JSON object", where=str(path))
    try:
        return parse_quant_config(content, bits)
    except NpucError as error:
        error.where = error.where or str(path)
        raise


def parse_quant_config(content: Mapping[str, Any], bits: int = 8) -> TorchQuantSettings:
    """The settings of a configuration that was read.

    >>> parse_quant_config({"overall_quantize_config": {"datatype": "bfloat16"}}).config.scheme
    'bf16'
    """
    own = {"target_device", "quantizable_data_type", "overall_quantize_config", "tensor_quantize_config"}
    for name in (
        content.keys() - own - _SWITCHES.keys() - {"layer_quantize_config"} - _DEFAULT.keys() - {"data_type"}
    ):
        unknown_option(name, "the configuration")
    switches = {name: _boolean(name, content.get(name, default)) for name, default in _SWITCHES.items()}
    for name in ("keep_first_last_layer_accuracy", "keep_add_layer_accuracy"):
        if switches[name]:
            raise _wrong(f"{name} is not documented", "State the layers under layer_quantize_config")
    device = content.get("target_device", "DPU")
    if device not in ("DPU", "CPU", "GPU"):
        raise _wrong(f"target_device is {device!r}", "Give DPU, CPU or GPU")
    overall = {
        "bit_width": bits,
        **_plain(content, outer=True),
        **_plain(_group(content, "overall_quantize_config")),
    }
    tensors = _tensors(overall, _group(content, "tensor_quantize_config"))
    stated = "overall_quantize_config" in content or "tensor_quantize_config" in content
    scheme = _scheme(
        tensors,
        _group(content, "tensor_quantize_config"),
        device,
        "overall_quantize_config",
        content.get("quantizable_data_type"),
    )
    forms = [
        form
        for name, form in (
            ("convert_relu6_to_relu", "relu6-to-relu"),
            ("convert_silu_to_hswish", "hard-swish"),
        )
        if switches[name]
    ]
    types: dict[str, Any] = {}
    layers: dict[str, dict[str, Any]] = {}
    type_methods: dict[str, str] = {}
    layer_methods: dict[str, str] = {}
    entries = content.get("layer_quantize_config", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _wrong("layer_quantize_config is not a list of objects")
    for number, entry in enumerate(entries):
        where = f"layer_quantize_config[{number}]"
        for name in entry.keys() - _LAYER_KEYS:
            unknown_option(name, where)
        kind, name = entry.get("layer_type"), entry.get("layer_name")
        if (kind is None) == (name is None):
            raise _wrong(f"{where} has to name a layer_type or a layer_name, and the other is null")
        single = _group(entry, "tensor_quantize_config")
        settings = _tensors({**overall, **_plain(_group(entry, "overall_quantize_config"))}, single)
        level = _scheme(settings, single, device, where, entry.get("quantizable_data_type"))
        if not isinstance(level, dict):
            level = {"activation": level, "weight": level}
        method = _range_method(settings["activation"])
        if name is not None:
            layers[str(name)], layer_methods[str(name)] = level, method
            continue
        op = _LAYER_TYPES.get(str(kind).rpartition(".")[2])
        if op is None:
            raise _wrong(f"{where}: there is no layer_type '{kind}'", f"Known are {', '.join(_LAYER_TYPES)}")
        types[op], type_methods[op] = level, method
    if "include_cle" in content:
        note(
            f"include_cle={str(switches['include_cle']).lower()}: npuc equalizes where per-tensor scales cost accuracy, and "
            "keeps it where outputs gain; include_bias_corr=false turns both off"
        )
    return TorchQuantSettings(
        QuantizationConfig(scheme=scheme, types=types, activation_forms=tuple(forms) or None),
        _range_method(tensors["activation"]) if stated else None,
        switches["include_bias_corr"],
        type_methods,
        layer_methods,
        device == "DPU" and all(_is_int8(level) for level in (scheme, *types.values(), *layers.values())),
        layers,
    )


def _tensors(overall: Mapping[str, Any], single: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each class of tensors."""
    for name in single.keys() - set(_CLASSES):
        raise _wrong(
            f"tensor_quantize_config has no class of tensors '{name}'", f"Give {', '.join(_CLASSES)}"
        )
    base = {**_DEFAULT, **overall}
    return {name: base | _plain(_group(single, name)) for name in _CLASSES}


def _plain(settings: Mapping[str, Any], outer: bool = False) -> dict[str, Any]:
    """The settings of a quantizer, checked; `data_type` is another spelling of `datatype`. An outer object has more keys."""
    values = {}
    for name, value in settings.items():
        name = "datatype" if name == "data_type" else name
        if name not in _DEFAULT:
            if not outer:
                unknown_option(name, "a quantizer of the configuration")
            continue
        value = value.lower() if isinstance(value, str) else value
        if value not in _CHOICES[name] or (name == "bit_width" and isinstance(value, bool)):
            raise _wrong(f"{name} is {value!r}", f"Give one of {', '.join(map(str, _CHOICES[name]))}")
        values[name] = value
    return values


def _scheme(
    tensors: Mapping[str, Mapping[str, Any]],
    own: Mapping[str, Any],
    device: str,
    where: str,
    classes: Any = None,
) -> str | dict[str, Any]:
    """The scheme of a layer; `own` is what is stated of single tensors."""
    weights, results = tensors["weights"], tensors["activation"]
    kinds = {settings["datatype"] for settings in tensors.values()}
    if kinds != {"int"}:
        if len(kinds) > 1:
            raise _wrong(
                f"{where} gives tensors of a layer different data types: {', '.join(sorted(kinds))}",
                "Weights, biases and activations of a layer have one type here; state layers under layer_quantize_config",
            )
        return _FLOATS[kinds.pop()]
    for settings in (weights, results):
        _check(settings, device, where)
    _check_shared(tensors, own, where)
    changes: dict[str, Any] = {
        "activation": _integer(results),
        "weight": _integer(weights),
        "per_channel": weights["per_channel"],
        "narrow_weights": weights["narrow_range"],
        "narrow_activations": results["narrow_range"],
        "weight_method": _WEIGHT_METHODS[weights["method"]],
        "constant_rounding": _CONSTANT_ROUNDING[weights["round_mode"]],
    }
    if classes is not None:
        changes |= _classes(classes, where)
    if {weights["scale_type"], results["scale_type"]} == {"poweroftwo"}:
        wide = max(results["bit_width"], weights["bit_width"]) > 8
        return dpu_scheme(**changes, **(_WIDE if wide else {}))
    return changes | {
        "activation_scales": _scales(results),
        "weight_scales": _scales(weights),
        "requant": "float_scale" if results["round_mode"] == "half_even" else "single_rounding",
    }


def _is_int8(level: Any) -> bool:
    return isinstance(level, dict) and level.get("activation") == level.get("weight") == "i8"


def _scales(settings: Mapping[str, Any]) -> str:
    if settings["scale_type"] == "poweroftwo":
        return "power_of_two"
    return "symmetric" if settings["symmetry"] else "affine"


def _integer(settings: Mapping[str, Any]) -> str:
    if settings["signed"]:
        return f"i{settings['bit_width']}"
    if settings["bit_width"] != 8:
        raise _wrong("unsigned integers have 8 bits here")
    return "ui8"


def _check(settings: Mapping[str, Any], device: str, where: str) -> None:
    """Refuse what contradicts itself, by the rules of the guide."""
    method, statistic = settings["method"], settings["calib_statistic_method"]
    if settings["scale_type"] == "poweroftwo" and not (settings["symmetry"] and settings["signed"]):
        raise _wrong(f"{where}: powers of two are signed and symmetric")
    if device != "DPU" and statistic == "modal" and method != "diffs":
        raise _wrong(f"{where}: calib_statistic_method modal is not for the method {method} on {device}")
    if not settings["symmetry"] and method in ("mse", "entropy"):
        raise _wrong(f"{where}: the method {method} is for symmetric quantization")
    if settings["round_mode"] == "half_down" and settings["scale_type"] == "float":
        raise _wrong(f"{where}: no requantization here rounds halves down")
    if device == "DPU" and (settings["per_channel"] or settings["scale_type"] == "float"):
        raise _wrong(
            f"{where}: the DPU has powers of two and one scale a tensor",
            'Say "target_device": "CPU", or change them',
        )


def _check_shared(tensors: Mapping[str, Mapping[str, Any]], own: Mapping[str, Any], where: str) -> None:
    """Refuse what is stated of tensors that have no settings of their own here, where it is not that of those that decide."""
    weights, results = tensors["weights"], tensors["activation"]
    for name, other, shared in (("input", "activation", results), ("bias", "weights", weights)):
        for key, value in _plain(_group(own, name)).items():
            if value == shared[key] or (name == "bias" and key in _OF_BIASES):
                continue
            raise _wrong(
                f"{where}: {key} of {name} is {value}, and that of {other} is {shared[key]}, which decides here"
            )
    if "bit_width" in _group(own, "bias") and tensors["bias"]["bit_width"] != weights["bit_width"]:
        note(f"{where}: bit_width of bias means nothing here: biases have the bits that the machine states")
    if results["per_channel"]:
        note(f"{where}: per_channel is that of weights: activations have one scale a tensor")
    if results["scale_type"] == "poweroftwo" and results["round_mode"] not in ("std_round", "half_up"):
        raise _wrong(f"{where}: round_mode {results['round_mode']} of activation: the DPU rounds halves up")
    batches = results["calib_statistic_method"]
    if results["method"] not in ("maxmin", "diffs") and batches != _DEFAULT["calib_statistic_method"]:
        note(
            f"{where}: calib_statistic_method {batches} means nothing for the method {results['method']}, which sees all "
            "batches at once"
        )


def _classes(classes: Any, where: str) -> dict[str, Any]:
    if not isinstance(classes, list) or not set(classes) <= set(_CLASSES):
        raise _wrong(f"{where}: quantizable_data_type is a list of {', '.join(_CLASSES)}")
    names = {"activations" if name in ("input", "activation") else name for name in classes}
    return (
        {}
        if len(names) == 3
        else {"classes": [name for name in ("weights", "activations", "bias") if name in names]}
    )


def _range_method(settings: Mapping[str, Any]) -> str:
    if settings["datatype"] != "int":
        return "max"
    method = str(settings["method"])
    return _STATISTICS[settings["calib_statistic_method"]] if method == "maxmin" else _METHODS[method]


def _group(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    group = settings.get(name) or {}
    if not isinstance(group, Mapping):
        raise _wrong(f"{name} is not an object")
    return group


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(f"{name} is {value!r}, and has to be true or false")
    return value


def _wrong(text: str, fix: str = "") -> NpucError:
    return refusal("QUANTIZER_TORCH_QUANT_CONFIG", text, fix, QuantizationError)
