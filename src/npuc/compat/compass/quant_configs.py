"""QConfig plugins: classes that state the quantization of single layers in Python, by the attributes of nodes.

    @register_plugin(PluginType.QConfig, "1.0")
    class Mine:
        def __init__(self, graph, config): ...
        def __call__(self):
            for node in self.graph.nodes:
                node.attrs["q_bits_weight"] = 16

What a plugin changes is what `<[(i,i)]:value>` of a cfg file would state for the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from npuc.compat.compass.builder_plugins import register_optype
from npuc.compat.compass.cfg import CfgSection
from npuc.compat.compass.optimizer_plugins import PyGraph, PyNode, PyTensor, qconfig_named
from npuc.compat.compass.per_layer import IrLayer, parse_per_layer
from npuc.errors import NpucError, PluginError

ATTRIBUTES = {
    "q_bits_weight": "weight_bits",
    "q_bits_activation": "activation_bits",
    "q_bits_bias": "bias_bits",
    "q_mode_weight": "quantize_method_for_weight",
    "q_mode_activation": "quantize_method_for_activation",
    "q_strategy_weight": "calibration_strategy_for_weight",
    "q_strategy_activation": "calibration_strategy_for_activation",
    "lut_items_in_bits": "lut_items_in_bits",
    "bias_effective_bits": "bias_effective_bits",
    "trigger_float_op": "trigger_float_op",
}
"""Attributes of a node by the keys of a cfg file that mean the same."""
_DEFAULTS = {
    "q_bits_weight": "8",
    "q_bits_activation": "8",
    "q_bits_bias": "32",
    "lut_items_in_bits": "8",
    "trigger_float_op": "disable",
}


def values_of_plugin(section: CfgSection, layers: Sequence[IrLayer]) -> dict[str, dict[str, str]]:
    """What the plugin that `qconfig` names changes: the values of a key by layer."""
    name = section.text("qconfig")
    if not name:
        return {}
    given = {key: parse_per_layer(section, key) for key in ATTRIBUTES.values()}
    stated = {key: entry.exceptions(layers) for key, entry in given.items()}
    nodes = []
    for layer in layers:
        attrs: dict[str, Any] = {"layer_id": str(layer.number)}
        for attribute, key in ATTRIBUTES.items():
            word = stated[key].get(layer.name, given[key].default) or _DEFAULTS.get(attribute, "")
            attrs[attribute] = int(word) if word.isdigit() else word
        node = PyNode(layer.node or layer.name, register_optype(layer.kind), attrs=attrs)
        node.outputs = [PyTensor(layer.name)]
        nodes.append(node)
    before = [dict(node.attrs) for node in nodes]
    _run(name, PyGraph(section.text("model_name", "unamed"), list(nodes)), section)
    values: dict[str, dict[str, str]] = {}
    for layer, node, old in zip(layers, nodes, before, strict=True):
        for attribute, value in node.attrs.items():
            if attribute in old and str(old[attribute]) == str(value):
                continue
            if attribute not in ATTRIBUTES:
                raise PluginError(
                    f"the plugin {name} sets '{attribute}' of '{node.name}', which npuc's quantization does not have",
                    fix=f"It takes {', '.join(ATTRIBUTES)}",
                )
            values.setdefault(ATTRIBUTES[attribute], {})[layer.name] = str(value)
    return values


def _run(name: str, graph: PyGraph, section: CfgSection) -> None:
    cls = qconfig_named(name)
    try:
        cls(graph, SimpleNamespace(**section.values))()
    except NpucError:
        raise
    except Exception as error:
        # The class is the user's own: anything may happen in it.
        raise PluginError(f"the plugin {cls.__name__} failed: {type(error).__name__}: {error}") from error
