"""The arguments of `quantize_model` as npuc's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npuc.compat.vitis.notices import near_names, unknown_option, warn
from npuc.compat.vitis.quantization import dpu_scheme, layers_outside
from npuc.compat.vitis.targets import B4096
from npuc.errors import FileFormatError, UnknownTensorError, UsageError
from npuc.files import existing_file, read_short
from npuc.ir import Graph, result_names, top
from npuc.ir.definition import TopOp
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder.run import PipelineOptions
from npuc.quant.patterns import layer_names
from npuc.target import Target, load_target

_DPU = ("pof2s", "pow2s", "pof2s_tqt", "pow2s_tqt", "8bit_tqt", "8bit")
FLOAT_SCALES = ("fs", "fsx")
"""Strategies whose models no DPU takes."""
NAMES = (*_DPU, *FLOAT_SCALES)
"""All strategies."""
_LARGEST = 1 << 20
_OLD_NAMES = {
    "fold_bn": "convert_bn_to_dwconv",
    "replace_sigmoid": "convert_sigmoid_to_hard_sigmoid",
    "replace_relu6": "convert_relu_to_relu6",
    "forced_cle": "cle_to_relu6",
}
_DEFAULTS: dict[str, Any] = {
    **{f"{what}_bit": 8 for what in ("input", "weight", "bias", "activation")},
    **{f"{what}_symmetry": True for what in ("input", "weight", "bias", "activation")},
    **{f"{what}_per_channel": False for what in ("input", "weight", "bias", "activation")},
    **{f"{what}_unsigned": False for what in ("input", "weight", "bias", "activation")},
    "input_method": 0, "weight_method": 1, "bias_method": 0, "activation_method": 1,
    "input_round_mode": 1, "weight_round_mode": 0, "bias_round_mode": 0, "activation_round_mode": 1,
    "convert_sigmoid_to_hard_sigmoid": None, "convert_relu_to_relu6": None, "include_cle": None, "cle_to_relu6": False,
    "include_fast_ft": False, "output_format": "", "output_dir": "./quantize_results", "convert_datatype": None,
    "input_layers": [], "output_layers": [], "ignore_layers": [],
}  # fmt: skip
"""What is known, with the vendor's defaults; None leaves the choice to npuc."""
_WITHOUT_EFFECT = {
    "separate_conv_act": "a layer and its activation are one instruction",
    "fold_conv_bn": "batch norms are always folded",
    "convert_bn_to_dwconv": "batch norms are always folded or become convolutions",
    "cle_steps": "equalization goes on until it changes nothing",
    "fast_ft_epochs": "the number of iterations is npuc's own",
    "remove_dropout": "there is no dropout in inference",
    "onnx_opset_version": "the oldest that says what is in the file is taken",
    "bias_bit": "biases have the bits that the machine states",
    "bias_method": "biases have the scale of their sums",
    "input_method": "inputs have the range method of activations",
    "weight_method": "scales of weights are those of least error",
}
_METHODS = {0: "max", 1: None, 2: "kl", 3: "percentile"}
_DATATYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


@dataclass(frozen=True)
class Strategy:
    """What is asked of a quantization."""

    scheme: Any
    """None: that of the machine."""
    target: Target | None
    method: str | None
    stated: Mapping[str, Any] = field(default_factory=dict)
    """The arguments that were given, by the vendor's present names."""

    @property
    def needs_data(self) -> bool:
        """Whether ranges are needed."""
        return "convert_datatype" not in self.stated

    @property
    def output_format(self) -> str:
        """The format of the file to write; empty for none."""
        return str(self.stated.get("output_format", ""))

    @property
    def output_dir(self) -> str:
        """Where it is written."""
        return str(self.stated.get("output_dir", _DEFAULTS["output_dir"]))

    @property
    def ladder(self) -> PipelineOptions | None:
        """The steps that were asked for."""
        steps = ["equalize"] if self.stated.get("include_cle") or self.stated.get("cle_to_relu6") else []
        steps += ["adaquant"] if self.stated.get("include_fast_ft") else []
        return PipelineOptions(steps=tuple(steps)) if steps else None

    def config(self, graph: Graph, after: Mapping[str, str]) -> QuantizationConfig:
        """The configuration for a network; `after` has the layer behind each layer of the model."""
        forms = ["relu6-to-relu"] if self.stated.get("convert_relu_to_relu6") else []
        forms += ["hard-sigmoid"] if self.stated.get("convert_sigmoid_to_hard_sigmoid") else []
        floats = [*_tensors(graph, self.stated.get("ignore_layers", ()), after)]
        begin, end = (
            _tensors(graph, self.stated.get(key, ()), after) for key in ("input_layers", "output_layers")
        )
        if begin or end:
            floats += layers_outside(graph, begin, end)
        settings: dict[str, Any] = {"layers": dict.fromkeys(floats, "float")}
        if forms:
            settings["activation_forms"] = tuple(forms)
        return (
            QuantizationConfig(**settings)
            if self.scheme is None
            else QuantizationConfig(scheme=self.scheme, **settings)
        )


def strategy_of(name: str, arguments: Mapping[str, Any]) -> Strategy:
    """The settings of a strategy's name and of the arguments of `quantize_model`."""
    if name not in NAMES:
        raise UsageError(
            f"there is no quantize_strategy {name!r}",
            fix=f"There are {', '.join((*_DPU[:4], *FLOAT_SCALES))}",
        )
    stated = _known(arguments)
    if "convert_datatype" in stated:
        kind = _DATATYPES.get(str(stated["convert_datatype"]))
        if kind is None:
            raise UsageError(
                f"convert_datatype is {stated['convert_datatype']!r}",
                fix=f"Give one of {', '.join(_DATATYPES)}",
            )
        return Strategy(kind, None, None, stated)
    method = _method(stated.get("activation_method", 1))
    changes = {"weight": f"i{_bits(stated, 'weight', 2)}", "activation": f"i{_bits(stated, 'activation', 8)}"}
    if name in FLOAT_SCALES:
        affine = not stated.get("activation_symmetry", True)
        scheme = {"activation_scales": "affine" if affine else "symmetric", "weight_scales": "symmetric",
                  "per_channel": bool(stated.get("weight_per_channel", False)), **changes}  # fmt: skip
        return Strategy(scheme, None, method, stated)
    for key in ("activation_symmetry", "weight_symmetry", "input_symmetry", "weight_per_channel"):
        if stated.get(key, _DEFAULTS[key]) != _DEFAULTS[key]:
            raise UsageError(
                f"{key}={stated[key]} is not what the DPU computes with", fix="Use quantize_strategy='fs'"
            )
    if changes == {"weight": "i8", "activation": "i8"}:
        return Strategy(None, load_target(B4096), method, stated)
    return Strategy(dpu_scheme(**changes), None, method, stated)


def defaults() -> dict[str, Any]:
    """The settings that nobody stated; those that npuc chooses are left out."""
    return {key: value for key, value in _DEFAULTS.items() if value is not None}


def read_strategy(source: Any, name: str) -> tuple[str, dict[str, Any]]:
    """The strategy and the settings of a file that `dump_quantize_strategy` wrote, or of its content."""
    content = source
    where = "the quantize strategy"
    if not isinstance(source, Mapping):
        where = str(source)
        path = existing_file(source)
        try:
            content = json.loads(read_short(path, _LARGEST, "a quantize strategy", FileFormatError))
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"is not JSON: {error}", where=where) from error
    if not isinstance(content, Mapping):
        raise FileFormatError(
            "is no object of settings", where=where, fix="dump_quantize_strategy shows the form"
        )
    classes = [key for key in content if key.endswith(("_config", "_configs", "_registry"))]
    if classes:
        raise FileFormatError(
            f"has '{classes[0]}': the classes of the vendor's quantizers do not exist here",
            where=where,
            fix="State arguments of quantize_model, as dump_quantize_strategy does: weight_bit, ignore_layers, ...",
        )
    known = defaults()
    settings = {key: value for key, value in content.items() if key not in known or value != known[key]}
    return str(settings.pop("quantize_strategy", name)), settings


def _known(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by their present names; a word about those without effect, an error for those that would change results."""
    stated = {}
    for key, value in arguments.items():
        name = _OLD_NAMES.get(key, key)
        if name in _WITHOUT_EFFECT:
            if value != _DEFAULTS.get(name, object()):
                warn(f"{key} has no effect here: {_WITHOUT_EFFECT[name]}")
            continue
        if name not in _DEFAULTS:
            unknown_option(key, "quantize_model")
            continue
        if name.endswith(("_round_mode", "_unsigned")) or name in (
            "input_per_channel",
            "activation_per_channel",
            "input_bit",
        ):
            if value != _DEFAULTS[name]:
                raise UsageError(
                    f"{key}={value} is not supported: the DPU has {_DEFAULTS[name]}", fix="Leave it out"
                )
            continue
        stated[name] = value
    return stated


def _method(number: Any) -> str | None:
    if number not in _METHODS:
        raise UsageError(
            f"activation_method is {number!r}",
            fix="Give 0 (non-overflow), 1 (min MSE), 2 (KL) or 3 (percentile)",
        )
    return _METHODS[number]


def _bits(stated: Mapping[str, Any], what: str, least: int) -> int:
    bits = stated.get(f"{what}_bit", 8)
    if not isinstance(bits, int) or not least <= bits <= 16:
        raise UsageError(f"{what}_bit is {bits!r}", fix=f"Give a number from {least} to 16")
    return bits


def _tensors(graph: Graph, names: Any, after: Mapping[str, str]) -> tuple[str, ...]:
    """The tensors that layers of the original make; a layer that was fused makes that of the layer behind it."""
    if isinstance(names, str):
        raise UsageError(f"{names!r} is no list of layers", fix=f"Write ['{names}']")
    aliases = graph.layer_aliases()
    makers = {
        name: result_names(op)[0]
        for op in graph.ops
        if isinstance(op, TopOp) and not isinstance(op, top.WeightOp) and op.results
        for name in layer_names(op, aliases)
    }
    tensors = []
    for name in map(str, names or ()):
        place = name
        while place not in makers and place in after:
            place = after[place]
        if place not in makers:
            raise UnknownTensorError(
                f"the model has no layer '{name}'", fix=near_names(name, {*makers, *after})
            )
        tensors.append(makers[place])
    return tuple(tensors)
