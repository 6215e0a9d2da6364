"""Parser plugins on models of TFLite, TensorFlow and Caffe: import rules by which an operator becomes a layer of a plugin.

A rule makes of its operands what `npuc.compat.compass.parser_layers` makes of an ONNX node: the plugin sees the arrays and the
attributes of the operator, and says what shapes, parameters and constants the layer has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from npuc.compat.compass.plugin_layer import PluginLayer, plugin_layer
from npuc.export.compass.text import DOMAIN
from npuc.frontend.caffe.registry import RULES as CAFFE
from npuc.frontend.caffe.registry import CaffeContext
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.custom import attributes_of
from npuc.frontend.tensorflow.registry import RULES as TENSORFLOW
from npuc.frontend.tensorflow.registry import TensorflowContext
from npuc.frontend.tflite.registry import RULES as TFLITE
from npuc.frontend.tflite.scope import TfliteContext
from npuc.ir import Value, dtype_of, shape_of

_REASON = "a layer of a plugin"


def register_rule(content: str, cls: Any, kind: str, check: Callable[[], None]) -> bool:
    """Let the operators that a plugin claims become layers; `check` is called for each. False for a format without rules."""
    if content not in _RULES:
        return False
    registry, rule = _RULES[content]
    registry.add(
        [cls.op_type], partial(rule, cls=cls, kind=kind, check=check), replace=True, module=cls.__module__
    )
    return True


def _zeros(value: Value) -> Any:
    return np.zeros(shape_of(value), dtype_of(value.type).numpy)


def _caffe(ctx: CaffeContext, cls: Any, kind: str, check: Callable[[], None]) -> list[Value]:
    check()
    values = ctx.values()
    info: dict[str, Any] = {}
    for key, given in ctx.raw.message.fields.items():
        if key.endswith("_param") and key != "include":
            info |= {name: _single(entries) for name, entries in ctx.parameters(key).fields.items() if given}
    for index, name in enumerate(("weights", "biases")[: ctx.blob_count or 0]):
        info[name] = ctx.blobs.read(ctx.layer.name, index)
    layer = plugin_layer(
        cls, kind, "Caffe", ctx.layer.name, info, [_zeros(x) for x in values], len(ctx.layer.outputs)
    )
    operands = [values[index] for index in layer.kept]
    constants = [ctx.literal(array, key) for key, array in layer.constants.items()]
    return ctx.onnx(kind, [*operands, *constants], layer.types, _REASON, DOMAIN, **layer.attributes)


def _single(entries: Any) -> Any:
    values = [entry for entry in entries if isinstance(entry, str | int | float)]
    return values[0] if len(values) == 1 else values


def _tflite(ctx: TfliteContext, cls: Any, kind: str, check: Callable[[], None]) -> list[Value]:
    check()
    places = [index for index in range(len(ctx.op.inputs)) if ctx.has(index)]
    arrays = {index: ctx.real_array(index) for index in places}
    values = {index: ctx.real(index) for index in places if arrays[index] is None}
    given = [_zeros(values[index]) if index in values else arrays[index] for index in places]
    info = {"custom_options": ctx.op.custom} if ctx.op.custom else {}
    name = ctx.output().name
    layer = plugin_layer(cls, kind, "TFLite", name, info, given, len(ctx.op.outputs))
    return _emitted(ctx, layer, [ctx.real(places[index]) for index in layer.kept], kind)


def _emitted(ctx: Any, layer: PluginLayer, operands: list[Value], kind: str) -> list[Value]:
    constants = [ctx.literal(array, key) for key, array in layer.constants.items()]
    results: list[Value] = ctx.onnx(
        kind, [*operands, *constants], layer.types, _REASON, layer.attributes, domain=DOMAIN
    )
    return results


def _tensorflow(ctx: TensorflowContext, cls: Any, kind: str, check: Callable[[], None]) -> list[LayoutTensor]:
    check()
    given = [np.zeros(x.shape, x.dtype.numpy) if x.array is None else np.asarray(x.array) for x in ctx.inputs]
    info: Mapping[str, Any] = attributes_of(ctx.node)
    layer = plugin_layer(cls, kind, "TensorFlow", ctx.node.name, info, given, 1)
    operands = [ctx.c.value(ctx.inputs[index]) for index in layer.kept]
    return [LayoutTensor(value) for value in _emitted(ctx.c, layer, operands, kind)]


_RULES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "caffe": (CAFFE, _caffe),
    "tflite": (TFLITE, _tflite),
    "tensorflow": (TENSORFLOW, _tensorflow),
}
"""Registries and rules by the kind of content."""
