"""The keys of the optimizer as npuc's own settings: a scheme, schemes of single layers, and a range method."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npuc.compat.compass.cfg import CfgSection
from npuc.compat.compass.float_layers import KEY as FLOAT_KEY
from npuc.compat.compass.float_layers import float_levels
from npuc.compat.compass.logger import say
from npuc.compat.compass.per_layer import IrLayer, PerLayer, in_scopes, parse_per_layer
from npuc.compat.compass.quant_configs import values_of_plugin
from npuc.errors import FileFormatError, UsageError
from npuc.files import existing_file, read_short
from npuc.ir import Graph
from npuc.quant.config import QuantizationConfig
from npuc.target import Target

KEYS = (
    "graph",
    "bin",
    "model_name",
    "dataset",
    "calibration_data",
    "calibration_batch_size",
    "calibration_strategy_for_activation",
    "calibration_strategy_for_weight",
    "calibration_strategyh_for_weight",
    "weight_bits",
    "activation_bits",
    "bias_bits",
    "lut_items_in_bits",
    "bias_effective_bits",
    "running_statistic_momentum",
    "histc_bins",
    "trim_infinity_before_statistic",
    "save_statistic_info",
    "statistic_file",
    "quantize_method_for_weight",
    "quantize_method_for_activation",
    "quant_ir_name",
    "out_ir_name",
    "output_dir",
    "metric",
    "data",
    "label",
    "metric_batch_size",
    "unify_scales_for_concat",
    "opt_config",
    "dump",
    "dump_dir",
    "resize_degrade_to_nearest",
    "fake_quant_scopes_for_debug",
    "fake_quant_operators_for_debug",
    "mixed_precision_auto_search",
    "global_calibration",
    "eval_original_model",
    "eval_optimized_model",
    "min_compatible_zhouyi_target",
    "enable_ds",
    "qconfig",
    FLOAT_KEY,
)
_TILES = "the scheduler cuts feature maps into tiles by its cost model, with the same results"
IGNORED = {
    "dataloader_workers": "samples are read by one thread",
    "data_loader_workers": "samples are read by one thread",
    "unify_scales_for_concat_max_depth": "operands of a concat always have one scale",
    "unify_scales_for_concat_threshold": "operands of a concat always have one scale",
    "with_winograd": "convolutions are computed as they are, with the same results",
    "cast_dtypes_for_lib": "every layer has kernels for its types",
    "perf_mode_for_lib": "every layer has one kernel",
    "featuremap_tiling_param": _TILES,
    "featuremap_splits_item_x": _TILES,
    "featuremap_splits_item_y": _TILES,
    "featuremap_splits_overlap_rate": _TILES,
    "featuremap_splits_concat_blk": _TILES,
    "featuremap_splits_sram_size": _TILES,
    "calibration_shuffle": "samples are taken in their order",
    "data_batch_dim": "the network says where its batch is",
    "without_batch_dim": "samples are taken with an axis of batches, and without",
    "label_batch_dim": "labels are taken one by one",
    "write_similarity_to_ir": "'npuc analyze' shows the error of each layer",
    "record_debug_acc_info": "'npuc analyze' shows the error of each layer",
    "weight_block_size": "scales are those of a tensor or of its channels",
    "activation_block_size": "scales are those of a tensor or of its channels",
    "bias_effective_bits_auto_adaption": "biases always have the bits that the target states",
}
"""Keys without an effect here, and why."""
_WEIGHT_METHODS = tuple(
    f"per_{unit}_symmetric_{span}_range" for unit in ("tensor", "channel") for span in ("restricted", "full")
)
_ACTIVATION_METHODS = (
    "per_tensor_symmetric_restricted_range",
    "per_tensor_symmetric_full_range",
    "per_tensor_asymmetric",
)
_LARGEST = 16 << 20


@dataclass
class OptSettings:
    """What a section asks of the quantization."""

    config: QuantizationConfig
    method: str | None
    """The range method of activations; None leaves the choice to npuc."""
    overrides: dict[str, str] = field(default_factory=dict)
    """Range methods of single layers."""


def settings_of(section: CfgSection, graph: Graph, layers: Sequence[IrLayer], target: Target) -> OptSettings:
    """The settings of a section, for a network with these layers on a target."""
    own = values_of_plugin(section, layers)
    by_layer: dict[str, dict[str, Any] | str] = {}
    options: dict[str, Any] = {}
    known = {name for name in graph.tensor_names()} | {port.name for port in graph.inputs}

    def apply(key: str, make: Any, default: str = "") -> None:
        entry = parse_per_layer(section, key, default)
        if entry.default:
            options.update(make(section, key, entry.default))
        for name, value in {**entry.exceptions(layers), **own.get(key, {})}.items():
            level = by_layer.setdefault(name, {})
            assert isinstance(level, dict)
            level.update(make(section, key, value))

    for key, make in _SCHEME_KEYS.items():
        apply(key, make)
    strategy = parse_per_layer(section, "calibration_strategy_for_activation")
    method = range_method(section, strategy.default) if strategy.default else None
    words = {**strategy.exceptions(layers), **own.get("calibration_strategy_for_activation", {})}
    overrides = {name: range_method(section, word) for name, word in words.items()}
    if "opt_config" in section.values:
        tensors = {layer.node: layer.name for layer in layers}
        for stated_name, (level, own_method) in read_opt_config(section).items():
            name = tensors.get(stated_name, stated_name)
            if name not in known:
                say(
                    "W",
                    f"opt_config names the layer '{name}', which the network does not have: it is passed over",
                    "Optimizer",
                )
            by_layer[name] = {**_levels(by_layer.get(name)), **level}
            if own_method:
                overrides[name] = own_method
    trigger = parse_per_layer(section, FLOAT_KEY, "disable")
    words = dict.fromkeys((layer.name for layer in layers if layer.kind != "Input"), trigger.default)
    words |= {**trigger.exceptions(layers), **own.get(FLOAT_KEY, {})}
    by_layer |= float_levels(
        section,
        {name: word for name, word in words.items() if name in known},
        by_layer,
        options.get("weight", "i8"),
        target,
    )
    for name in _float_layers(section, layers):
        by_layer[name] = "float"
    if options.get("activation_scales") == "symmetric" and options.get("activation", "i8") == "i8":
        # As the vendor's optimizer: tensors without negative values are unsigned, and none has a zero point.
        options |= {"activation": "ui8", "unsigned_from_zero": True}
    stated = {
        "weight_bits",
        "activation_bits",
        "quantize_method_for_weight",
        "quantize_method_for_activation",
    }
    config = QuantizationConfig(
        options=options,
        layers={name: level for name, level in by_layer.items() if name in known and level},
        widen=not stated & set(section.values),
    )
    return OptSettings(config, method, {name: word for name, word in overrides.items() if name in known})


def _levels(level: dict[str, Any] | str | None) -> dict[str, Any]:
    return level if isinstance(level, dict) else {}


def range_method(section: CfgSection, word: str) -> str:
    """npuc's range method for a strategy of activations."""
    name = word.lower()
    if name == "extrema":
        return "max"
    if name == "mean":
        return f"mean:momentum={section.number('running_statistic_momentum', 0.9, 0.0, 0.999999):g}"
    if name in ("kld", "10kld") or re.fullmatch(r"\d*kld", name):
        return f"kl:bins={section.integer('histc_bins', 2048, 256, 1 << 16)}"
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)std", name):
        return f"std:n={float(match[1]):g}"
    if match := re.fullmatch(r"(0?\.\d+|1(?:\.0+)?)?percentile", name):
        return f"percentile:ratio={match[1] or 0.9999}"
    if name in ("aciq_laplace", "aciq_gauss", "aciq"):
        return f"aciq:distribution={'gauss' if name.endswith('gauss') else 'laplace'}"
    raise UsageError(
        f"calibration_strategy_for_activation '{word}' is not supported",
        where=section.path,
        fix="There are mean, extrema, Nstd such as 3std, KLD, percentile, aciq_laplace and aciq_gauss",
    )


def _bits(low: int, high: int, field_name: str) -> Any:
    def make(section: CfgSection, key: str, text: str) -> dict[str, Any]:
        if not text.isdigit() or not low <= int(text) <= high:
            raise section.wrong(key, f"has bits that are not from {low} to {high}")
        return {field_name: f"i{text}"}

    return make


def _bias_bits(section: CfgSection, key: str, text: str) -> dict[str, Any]:
    if not text.isdigit() or not 16 <= int(text) <= 48:
        raise section.wrong(key, "is not from 16 to 48")
    bits = int(text)
    return {"bias_bits": min(bits, 32), "wide_bias_bits": max(bits, 32) if bits > 32 else bits}


def _lut(section: CfgSection, key: str, text: str) -> dict[str, Any]:
    if not text.isdigit() or not 4 <= int(text) <= 15:
        raise section.wrong(key, "is not from 4 to 15")
    entries = 1 << int(text)
    if entries < 256:
        return {"table_entries": entries + 1, "wide_table_entries": entries + 1}
    return {"wide_table_entries": entries + 1}


def _effective(section: CfgSection, key: str, text: str) -> dict[str, Any]:
    if not text.isdigit() or not 2 <= int(text) <= 32:
        raise section.wrong(key, "is not from 2 to 32")
    return {"bias_significant_bits": 0 if text == "32" else int(text)}


def _refuse_blocks(section: CfgSection, key: str, word: str) -> None:
    if word.startswith("per_block_"):
        raise UsageError(
            f"[{section.name}] {key} = {word} is not supported: these machines have one scale for a tensor, or for each output "
            "channel of weights",
            where=section.path,
            fix="per_channel_symmetric_restricted_range is the finest for weights, and more weight_bits go further",
        )


def _weight_quantization(section: CfgSection, key: str, text: str) -> dict[str, Any]:
    word = text.lower()
    _refuse_blocks(section, key, word)
    if word not in _WEIGHT_METHODS:
        raise section.wrong(key, f"is none of {', '.join(_WEIGHT_METHODS)}")
    return {"per_channel": "channel" in word, "narrow_weights": "restricted" in word}


def _activation_quantization(section: CfgSection, key: str, text: str) -> dict[str, Any]:
    word = text.lower()
    _refuse_blocks(section, key, word)
    if word not in _ACTIVATION_METHODS:
        raise section.wrong(key, f"is none of {', '.join(_ACTIVATION_METHODS)}")
    if word.endswith("asymmetric"):
        return {"activation_scales": "affine"}
    return {"activation_scales": "symmetric", "narrow_activations": "restricted" in word}


def _weight_strategy(section: CfgSection, key: str, text: str) -> dict[str, Any]:
    name = text.lower()
    if name == "extrema":
        return {"weight_method": "max"}
    if name.endswith("kld"):
        return {"weight_method": "kl"}
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)std", name):
        return {"weight_method": f"std:n={float(match[1]):g}"}
    raise section.wrong(key, "is none of extrema, Nstd such as 3std, KLD")


_SCHEME_KEYS = {
    "quantize_method_for_weight": _weight_quantization,
    "quantize_method_for_activation": _activation_quantization,
    "weight_bits": _bits(4, 16, "weight"),
    "activation_bits": _bits(8, 16, "activation"),
    "bias_bits": _bias_bits,
    "lut_items_in_bits": _lut,
    "bias_effective_bits": _effective,
    "calibration_strategy_for_weight": _weight_strategy,
    "calibration_strategyh_for_weight": _weight_strategy,
}
_JSON_KEYS = {
    "q_bits_weight": "weight_bits",
    "q_bits_activation": "activation_bits",
    "q_bits_bias": "bias_bits",
    "q_mode_weight": "quantize_method_for_weight",
    "q_mode_activation": "quantize_method_for_activation",
    "q_strategy_weight": "calibration_strategy_for_weight",
    "lut_items_in_bits": "lut_items_in_bits",
}
"""Keys of opt_config by the keys of a cfg file that mean the same."""
_JSON_OTHERS = ("q_strategy_activation", "histc_bins", "running_statistic_momentum", "just_for_display")


def read_opt_config(section: CfgSection) -> dict[str, tuple[dict[str, Any], str]]:
    """The changes to the scheme, and the range method if one is stated, of each layer of an opt_config file."""
    path = existing_file(section.text("opt_config"))
    try:
        content = json.loads(read_short(path, _LARGEST, "an opt_config file", FileFormatError))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(content, Mapping) or not all(isinstance(entry, Mapping) for entry in content.values()):
        raise FileFormatError(
            "is no object of layers", where=str(path), fix="opt_template.json shows the form"
        )
    result = {}
    for name, entry in content.items():
        texts = {key: str(value) for key, value in entry.items() if key != "just_for_display"}
        own = CfgSection(f"layer {name}", texts, str(path))
        level: dict[str, Any] = {}
        for key, text in texts.items():
            if key in _JSON_KEYS:
                level |= _SCHEME_KEYS[_JSON_KEYS[key]](own, key, text)
            elif key not in _JSON_OTHERS:
                raise FileFormatError(f"layer '{name}' has a key '{key}'", where=str(path))
        strategy = texts.get("q_strategy_activation", "")
        result[str(name)] = level, range_method(own, strategy) if strategy else ""
    return result


def _float_layers(section: CfgSection, layers: Sequence[IrLayer]) -> list[str]:
    """Layers that are to compute in float, for debugging."""
    names = in_scopes(section, "fake_quant_scopes_for_debug", layers)
    kinds = {word.lower() for word in section.names("fake_quant_operators_for_debug")}
    unknown = kinds - {layer.kind.lower() for layer in layers}
    if unknown:
        raise section.wrong(
            "fake_quant_operators_for_debug", f"names {sorted(unknown)[0]}, which no layer is"
        )
    return names + [layer.name for layer in layers if layer.kind.lower() in kinds]


__all__ = ["IGNORED", "KEYS", "OptSettings", "PerLayer", "settings_of"]
