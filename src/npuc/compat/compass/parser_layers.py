"""Parser plugins on models: an operator, or a subgraph of an ONNX model, becomes a layer of the plugin's type.

`op_register` computes such layers; a plugin with `input_nodes` puts one in front of inputs.

`infer_shape` of the plugin says what shapes the layer makes, `params` and `constants` are the layer's own, and inputs that the
plugin removes are left out. A type that no function computes is refused: only the vendor's core would compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from npuc.compat.compass.optimizer_plugins import OPERATORS
from npuc.compat.compass.parser_plugins import PLUGINS
from npuc.compat.compass.parser_subgraphs import Subgraph, SubgraphRules, subgraphs_of
from npuc.compat.compass.plugin_layer import plugin_layer
from npuc.compat.compass.plugin_rules import register_rule
from npuc.errors import PluginError, UnsupportedOpError
from npuc.export.compass.text import DOMAIN
from npuc.frontend.onnx.registry import RULES
from npuc.frontend.onnx.scope import NodeContext
from npuc.frontend.onnx_op import onnx_op
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph, Value, shape_of, tensor_type
from npuc.ir.names import location
from npuc.transform.input_layers import with_input_layer

_FRAMEWORKS = {"onnx": "ONNX", "tflite": "TFLite", "tensorflow": "TensorFlow", "caffe": "Caffe"}
"""What plugins call a framework, by the kind of content."""


def _parsers() -> list[Any]:
    """The parser plugins; of those for one place in a model, the one of the highest priority comes first."""
    own = [cls for (kind, _), cls in PLUGINS.items() if kind == "Parser"]
    return sorted(own, key=lambda cls: -int(cls.priority))


def apply_parser_plugins(model: Path) -> None:
    """Let parser plugins import what they claim of a model; an error if nothing computes the layer."""
    content = describe_content(model).kind
    rules = SubgraphRules()
    for cls in _parsers():
        if cls.input_nodes is not None:
            continue
        if content == "onnx":
            _apply(cls, model, rules)
        elif _is_subgraph(cls):
            raise UnsupportedOpError(
                f"the parser plugin {cls.__name__} takes a subgraph, which npuc finds in ONNX models only",
                where=str(model),
                fix="Convert the model to ONNX, or let a plugin take each operator",
            )
        else:
            kind = cls.alias_op_type or cls.op_type
            register_rule(content, cls, kind, partial(_check_computed, cls, kind, model))


def put_in_front(graph: Graph, model: Path) -> Graph:
    """The network with the layers of plugins in front of the inputs that they name."""
    taken: set[str] = set()
    framework = _FRAMEWORKS.get(describe_content(model).kind, "ONNX")
    for cls in _parsers():
        names = list(cls.input_nodes or ())
        if not names or taken.issuperset(names):
            continue
        inputs = {port.name: port for port in graph.inputs}
        if not set(names) <= set(inputs):
            continue
        kind = cls.alias_op_type or cls.op_type
        _check_computed(cls, kind, model)
        taken |= set(names)
        graph = _with_layer(graph, cls, kind, framework, names)
    return graph


def _with_layer(graph: Graph, cls: Any, kind: str, framework: str, names: Sequence[str]) -> Graph:
    ports = {port.name: port for port in graph.inputs}
    shapes = [tuple(int(side) for side in shape) for shape in cls.input_shapes]
    given = [np.zeros(shape, np.float32) for shape in shapes]
    before = [np.zeros(shape_of(ports[name].value), np.float32) for name in names]
    name = f"{names[0]}/{kind}"
    layer = plugin_layer(cls, kind, framework, name, {}, given, len(names), results=before)
    for own, shape, array in zip(names, layer.shapes, before, strict=True):
        if shape != array.shape:
            raise PluginError(
                f"{cls.__name__}.infer_shape gives {list(shape)} for the input '{own}', which is {list(array.shape)}"
            )

    def make(changed: Graph, values: Sequence[Value], emit: Any) -> list[Value]:
        constants = [
            emit(changed.add_weight(f"{name}/{key}", array)).output for key, array in layer.constants.items()
        ]
        op = onnx_op(
            kind,
            [*(values[index] for index in layer.kept), *constants],
            layer.types,
            version=1,
            domain=DOMAIN,
            reason="a layer of a plugin",
            attributes=layer.attributes,
        )
        op.location = location([f"{own}/{kind}" for own in names], name)
        return list(emit(op).results)

    return with_input_layer(
        graph, {own: tensor_type(shape, "f32") for own, shape in zip(names, shapes, strict=True)}, make
    )


def _check_computed(cls: Any, kind: str, model: Path) -> None:
    if ("forward", kind) not in OPERATORS:
        raise UnsupportedOpError(
            f"the parser plugin {cls.__name__} makes layers of type {kind}, which only the vendor's own core computes",
            where=str(model),
            fix="Say what it computes: op_register of its type, or npuc.plugins.api.onnx_subgraph (docs/plugins.md)",
        )


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
    if keys:
        _check_computed(cls, kind, model)
    for key in keys:
        rule = partial(_layer, cls=cls, kind=kind, subgraphs=rules.subgraphs)
        RULES.add([key], rule, replace=True, module=cls.__module__)


def _is_subgraph(cls: Any) -> bool:
    return cls.start_nodes is not None or cls.pattern_nodes is not None


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
    starts = None
    if _is_subgraph(cls):
        subgraph = subgraphs[int(attributes["subgraph"])]
        attributes, name = subgraph.info, f"{name}_plugin"
        starts = [sum(map(len, subgraph.inputs[:place])) for place in range(len(subgraph.inputs))]
    layer = plugin_layer(
        cls, kind, "ONNX", name or ctx.node.outputs[0], attributes, given, len(ctx.node.outputs), starts
    )
    operands = [ctx.operand(index) for index in layer.kept]
    constants = [ctx.literal(array, key) for key, array in layer.constants.items()]
    reason = "a layer of a plugin"
    return ctx.onnx(kind, [*operands, *constants], layer.types, reason, layer.attributes, domain=DOMAIN)
