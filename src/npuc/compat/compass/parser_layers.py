"""Parser plugins on ONNX models: a node, or a subgraph, becomes a layer of the plugin's type, which `op_register` computes.

`infer_shape` of the plugin says what shapes the layer makes, `params` and `constants` are the layer's own, and inputs that the
plugin removes are left out. A type that no function computes is refused: only the vendor's core would compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from onnx import helper

from npuc.compat.compass.optimizer_plugins import OPERATORS
from npuc.compat.compass.parser_plugins import PLUGINS
from npuc.compat.compass.parser_subgraphs import Subgraph, SubgraphRules, subgraphs_of
from npuc.errors import PluginError, UnsupportedOpError
from npuc.export.compass.text import DOMAIN
from npuc.frontend.onnx.registry import RULES
from npuc.frontend.onnx.scope import NodeContext
from npuc.frontend.sniff import describe_content
from npuc.ir import Value, tensor_type


def apply_parser_plugins(model: Path) -> None:
    """Let parser plugins import what they claim of an ONNX model; an error if nothing computes the layer."""
    parsers = [cls for (kind, _), cls in PLUGINS.items() if kind == "Parser"]
    content = describe_content(model).kind
    rules = SubgraphRules()
    for cls in sorted(parsers, key=lambda cls: -int(cls.priority)):
        _refuse_input_nodes(cls, model)
        if content == "onnx":
            _apply(cls, model, rules)
        else:
            _refuse_elsewhere(cls, model, content)


def _apply(cls: Any, model: Path, rules: SubgraphRules) -> None:
    from npuc.frontend.onnx.reader import read
    from npuc.frontend.onnx.structure import sorted_nodes

    kind = cls.alias_op_type or cls.op_type
    nodes = sorted_nodes(read(model).model.graph)
    if _is_subgraph(cls):
        keys = [(DOMAIN, cls.op_type)] if subgraphs_of(cls, nodes) else []
        rules.add(cls, cls.op_type)
    else:
        keys = sorted({(node.domain, node.op_type) for node in nodes if node.op_type == cls.op_type})
    if keys and ("forward", kind) not in OPERATORS:
        raise UnsupportedOpError(
            f"the parser plugin {cls.__name__} makes layers of type {kind}, which only the vendor's own core computes",
            where=str(model),
            fix="Say what it computes: op_register of its type, or npuc.plugins.api.onnx_subgraph (docs/plugins.md)",
        )
    for key in keys:
        rule = partial(_layer, cls=cls, kind=kind, subgraphs=rules.subgraphs)
        RULES.add([key], rule, replace=True, module=cls.__module__)


def _is_subgraph(cls: Any) -> bool:
    return cls.start_nodes is not None or cls.pattern_nodes is not None


def _refuse_input_nodes(cls: Any, model: Path) -> None:
    if cls.input_nodes is not None:
        raise UnsupportedOpError(
            f"the parser plugin {cls.__name__} puts a layer in front of the inputs {', '.join(cls.input_nodes)}, which npuc does "
            "not",
            where=str(model),
            fix="Make it a node of the model, or use preprocess_type",
        )


_IMPORTERS = {
    "tflite": "npuc.frontend.tflite.registry",
    "tensorflow": "npuc.frontend.tensorflow.registry",
    "caffe": "npuc.frontend.caffe.registry",
}


def _refuse_elsewhere(cls: Any, model: Path, content: str) -> None:
    """A plugin is applied to ONNX models: elsewhere the operator that it claims is refused where the model has one."""

    def refuse(*_: Any) -> NoReturn:
        raise UnsupportedOpError(
            f"the parser plugin {cls.__name__} claims {cls.op_type}, and parser plugins are applied to ONNX models only",
            where=str(model),
            fix="Convert the model to ONNX, or import the operator with npuc.plugins.api (docs/plugins.md)",
        )

    if _is_subgraph(cls):
        refuse()
    if content in _IMPORTERS:
        registry = import_module(_IMPORTERS[content]).RULES
        registry.add([cls.op_type], refuse, replace=True, module=cls.__module__)


def _layer(ctx: NodeContext, cls: Any, kind: str, subgraphs: Sequence[Subgraph]) -> list[Value]:
    """The layer of a node."""
    attributes = {name: helper.get_attribute_value(entry) for name, entry in ctx.node.attributes.items()}
    name = ctx.node.proto.name
    count = len(ctx.node.inputs)
    arrays = [ctx.constant(index) for index in range(count)]
    given: list[Any] = [
        np.zeros(ctx.shape(index), ctx.dtype(index).numpy) if array is None else array
        for index, array in enumerate(arrays)
    ]
    starts = [0]
    if _is_subgraph(cls):
        subgraph = subgraphs[int(attributes["subgraph"])]
        attributes, name = subgraph.info, f"{name}_plugin"
        starts = [sum(map(len, subgraph.inputs[:place])) for place in range(len(subgraph.inputs))]
        given = [given[start:end] for start, end in zip(starts, [*starts[1:], count], strict=True)]
    plugin = cls("ONNX", {"name": name, **attributes})
    results = plugin.infer_shape(given)
    if not isinstance(results, list | tuple) or len(results) != len(ctx.node.outputs):
        raise PluginError(f"{cls.__name__}.infer_shape gives no list of {len(ctx.node.outputs)} arrays")
    removed = {_removed(cls, starts, count, *place) for place in plugin.removed_inputs}
    operands = [ctx.operand(index) for index in range(count) if index not in removed]
    constants = [ctx.literal(np.asarray(array), key) for key, array in plugin.constants.items()]
    return ctx.onnx(
        kind,
        [*operands, *constants],
        [tensor_type(np.shape(array), "f32") for array in results],
        "a layer of a plugin",
        {
            "layer": name or ctx.node.outputs[0],
            "constants": ",".join(plugin.constants),
            **{f"ir_{key}": _text(value) for key, value in plugin.params.items()},
        },
        domain=DOMAIN,
    )


def _removed(cls: Any, starts: list[int], count: int, node: int, tensor: int) -> int:
    """The place of an input that a plugin removes."""
    if node < len(starts):
        place = starts[node] + tensor
        if place < [*starts[1:], count][node]:
            return place
    raise PluginError(f"{cls.__name__}.remove_inputs_at({tensor}, {node}): there is no such input")


def _text(value: Any) -> str:
    """A parameter as the text of an IR writes it."""
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(plain, bool):
        return str(plain).lower()
    return str(plain).replace(" ", "") if isinstance(plain, list | tuple | int | float) else str(plain)
