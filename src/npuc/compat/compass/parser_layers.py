"""Parser plugins of single operators of ONNX: a node becomes a layer of the plugin's type, which `op_register` computes.

`infer_shape` of the plugin says what shapes the layer makes, `params` and `constants` are the layer's own, and inputs that the
plugin removes are left out. A subgraph, or a type that no function computes, is refused: only the vendor's core would compute it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from npuc.compat.compass.optimizer_plugins import OPERATORS
from npuc.compat.compass.parser_plugins import PLUGINS
from npuc.errors import PluginError, UnsupportedOpError
from npuc.export.compass.text import DOMAIN
from npuc.frontend.onnx.registry import RULES
from npuc.frontend.onnx.scope import NodeContext
from npuc.frontend.sniff import describe_content
from npuc.ir import Value, tensor_type


def apply_parser_plugins(model: Path) -> None:
    """Let parser plugins import the operators of an ONNX model that they claim; an error if nothing computes the layer."""
    parsers = [cls for (kind, _), cls in PLUGINS.items() if kind == "Parser"]
    if not parsers:
        return
    claimed: set[tuple[str, str]] = set()
    if describe_content(model).kind == "onnx":
        from npuc.frontend.onnx.reader import read

        claimed = {(node.domain, node.op_type) for node in read(model).model.graph.node}
    for cls in parsers:
        kind = cls.alias_op_type or cls.op_type
        operators = [key for key in claimed if key[1] == cls.op_type]
        subgraph = cls.pattern_nodes or cls.start_nodes or cls.input_nodes
        if subgraph or (operators and ("forward", kind) not in OPERATORS):
            raise UnsupportedOpError(
                f"the parser plugin {cls.__name__} makes layers of type {kind}, which only the vendor's own core computes",
                where=str(model),
                fix="Say what it computes: op_register of its type, or npuc.plugins.api.onnx_subgraph (docs/plugins.md)",
            )
        for key in operators:
            RULES.add([key], partial(_layer, cls=cls, kind=kind), replace=True, module=cls.__module__)


def _layer(ctx: NodeContext, cls: Any, kind: str) -> list[Value]:
    """The layer of a node."""
    info = {name: helper.get_attribute_value(entry) for name, entry in ctx.node.attributes.items()}
    plugin = cls("ONNX", {"name": ctx.node.proto.name, **info})
    count = len(ctx.node.inputs)
    arrays = [ctx.constant(index) for index in range(count)]
    given = [
        np.zeros(ctx.shape(index), ctx.dtype(index).numpy) if array is None else array
        for index, array in enumerate(arrays)
    ]
    results = plugin.infer_shape(given)
    if not isinstance(results, list | tuple) or len(results) != len(ctx.node.outputs):
        raise PluginError(f"{cls.__name__}.infer_shape gives no list of {len(ctx.node.outputs)} arrays")
    removed = {index for _, index in plugin.removed_inputs}
    operands = [ctx.operand(index) for index in range(count) if index not in removed]
    constants = [ctx.literal(np.asarray(array), key) for key, array in plugin.constants.items()]
    return ctx.onnx(
        kind,
        [*operands, *constants],
        [tensor_type(np.shape(array), "f32") for array in results],
        "a layer of a plugin",
        {
            "layer": ctx.node.proto.name or ctx.node.outputs[0],
            "constants": ",".join(plugin.constants),
            **{f"ir_{key}": _text(value) for key, value in plugin.params.items()},
        },
        domain=DOMAIN,
    )


def _text(value: Any) -> str:
    """A parameter as the text of an IR writes it."""
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(plain, bool):
        return str(plain).lower()
    return str(plain).replace(" ", "") if isinstance(plain, list | tuple | int | float) else str(plain)
