"""Compass IR to Top IR.

A float text becomes the network as it is. In a text of a quantized network, whose results have integer types and a scale, weights
and biases become the numbers that they stand for, and each such result is rounded to its integers: npuc then sees a network that
brings its own quantization, as ONNX files in QDQ form do. The format writes q = round(x * scale) - zero point, so that a scale
there is the reciprocal of one here, and a zero point the negative.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.export.compass.text import DOMAIN, STRUCTURE, CompassLayer, read_constants
from npuc.frontend.compass.reader import (
    INTEGERS,
    CompassSource,
    inputs_of,
    plain_inputs,
    read,
    stated_shapes,
)
from npuc.frontend.compass.registry import RULES, CompassContext
from npuc.frontend.layered.build import build
from npuc.frontend.layered.context import NoForm
from npuc.frontend.layered.network import LayeredNetwork, NetworkLayer
from npuc.frontend.options import ImportOptions
from npuc.frontend.support import guarded
from npuc.ir import Graph, Value, is_static, shape_of, tensor_type, top


def import_compass(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Import a text with its binary file; the result is verified, not yet canonical."""
    path, options = Path(path), options or ImportOptions()
    return guarded(path, lambda: imported(read(path, options), options))


def imported(source: CompassSource, options: ImportOptions) -> Graph:
    """Import a network that has been read."""
    network = network_of(source)
    constants = {
        layer.name: _real_constants(layer, read_constants(layer, source.data, source.path), source)
        for layer in source.text.layers
    }
    context = partial(CompassContext, constants=constants)
    own = {layer.kind for layer in network.layers if layer.kind not in RULES and stated_shapes(layer.data)}
    graph = build(network, options, _rules() | dict.fromkeys(own, of_a_plugin), context, DOMAIN, _kept)
    graph.name = source.text.header.get("model_name", graph.name)
    return graph


def network_of(source: CompassSource) -> LayeredNetwork:
    """The layers in their order; an input of integers is one, too.

    With a scale, it rounds the real numbers that the network takes; without one, the network takes the integers as they are, and
    the layer makes real numbers of them.
    """
    text = source.text
    layers: list[NetworkLayer] = []
    names: set[str] = set()
    plain = plain_inputs(text)
    taken = {name for block in text.layers for name in block.names("layer_top")}
    rounded = {name: _unused(f"{name}/real", taken) for name in plain} | {
        name: _unused(f"{name}/integers", taken)
        for block in text.layers
        if block.kind == "Input" and block.names("layer_top_scale")
        for name, kind in zip(block.names("layer_top"), block.names("layer_top_type"), strict=False)
        if kind in INTEGERS
    }
    for block in text.layers:
        if block.name in names:
            raise InvalidModelError(f"two layers are called '{block.name}'")
        names.add(block.name)
        tops, bottoms = block.names("layer_top"), block.names("layer_bottom")
        if block.kind == "Input":
            if not set(tops) & set(rounded):
                continue
            tops, bottoms = [rounded[name] for name in tops], tops
        else:
            bottoms = [rounded.get(name, name) for name in bottoms]
        layers.append(NetworkLayer(block.name, block.kind, tuple(bottoms), tuple(tops), block))
    outputs = tuple(text.names("output_tensors"))
    if not outputs:
        read_by = {name for layer in layers for name in layer.inputs}
        outputs = tuple(name for layer in layers for name in layer.outputs if name not in read_by)
    return LayeredNetwork(tuple(layers), inputs_of(text), outputs, {}, plain)


def _unused(name: str, taken: Container[str]) -> str:
    return _unused(f"{name}_", taken) if name in taken else name


def _rules() -> dict[str, Any]:
    """The rules, each followed by the check of the stated shapes and the rounding of quantized results."""
    return {kind: partial(_checked, rule=rule) for kind, rule in RULES.items()}


def _checked(ctx: CompassContext, rule: Any) -> list[Value]:
    outcome = rule(ctx)
    values = [outcome] if isinstance(outcome, Value) else list(outcome)
    for value, shape in zip(values, stated_shapes(ctx.block), strict=False):
        if is_static(value) and shape_of(value) != shape:
            raise ctx.invalid(
                f"layer_top_shape says {list(shape)}, and its parameters make {list(shape_of(value))}"
            )
    return [_rounded(ctx, value, index) for index, value in enumerate(values)]


def _rounded(ctx: CompassContext, value: Value, index: int) -> Value:
    """A result as the integers that the text states can hold it; the result itself if it is float."""
    kinds = ctx.block.names("layer_top_type")
    scale = scales_of(ctx.block)
    if index >= len(kinds) or kinds[index] not in INTEGERS or index >= len(scale):
        return value
    step, zero_point = scale[index]
    to = INTEGERS[kinds[index]]
    operands = (
        ctx.literal(np.array(step, np.float32), "scale"),
        ctx.literal(np.array(zero_point, np.dtype(kinds[index])), "zero_point"),
    )
    quantized = ctx.emit(top.Quantize, value, *operands, to=to)
    return ctx.emit(top.Dequantize, quantized, *operands)


def scales_of(block: CompassLayer) -> list[tuple[float, int]]:
    """The scale and zero point of each result, in npuc's sense: x = (q - zero point) * scale."""
    scales, zeros = block.names("layer_top_scale"), block.names("layer_top_zp")
    pairs = []
    for index, text in enumerate(scales):
        try:
            scale, zero = float(text), int(float(zeros[index])) if index < len(zeros) else 0
            pairs.append((1.0 / scale, -zero))
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise InvalidModelError(f"layer_top_scale of '{block.name}' is no list of scales") from error
    return pairs


def _real_constants(layer: CompassLayer, arrays: dict[str, Array], source: CompassSource) -> dict[str, Array]:
    """Constants as the reals that they stand for: integer weights by their scale, biases by that of the sums."""
    weights = arrays.get("weights")
    if weights is None or weights.dtype.kind not in "iu":
        return arrays
    scale = _scale_of(layer, "weights", arrays)
    if scale is None:
        return arrays
    real = dict(arrays)
    real["weights"] = weights.astype(np.float32) / scale.reshape(-1, *[1] * (weights.ndim - 1)).astype(
        np.float32
    )
    biases = arrays.get("biases")
    if biases is not None and biases.dtype.kind in "iu":
        stated = _scale_of(layer, "biases", arrays)
        if stated is None:
            makers = {top_: block for block in source.text.layers for top_ in block.names("layer_top")}
            maker = makers.get(next(iter(layer.names("layer_bottom")), ""))
            pairs = scales_of(maker) if maker is not None else []
            if not pairs:
                raise NoForm("the scale of its input is not stated")
            if pairs[0][1]:
                raise InvalidModelError(
                    f"'{layer.name}' reads integers with a zero point, which its biases hold, too; state biases_scale"
                )
            stated = scale / pairs[0][0]
        real["biases"] = biases.astype(np.float32) / np.broadcast_to(stated.reshape(-1), biases.shape).astype(
            np.float32
        )
    return real


def _scale_of(layer: CompassLayer, key: str, arrays: dict[str, Array]) -> Array | None:
    if f"{key}_scale" in arrays:
        return np.asarray(arrays[f"{key}_scale"], np.float64).reshape(-1)
    text = layer.names(f"{key}_scale")
    try:
        return np.array([float(word) for word in text], np.float64) if text else None
    except ValueError as error:
        raise InvalidModelError(f"{key}_scale of '{layer.name}' is no list of numbers") from error


def of_a_plugin(ctx: CompassContext) -> list[Value]:
    """A layer that a plugin computes, in the shapes that the text states; its parameters are kept as texts."""
    lines = {key: text for key, text in ctx.block.values.items() if key not in STRUCTURE}
    constants = [ctx.literal(array, key) for key, array in ctx.constants.items()]
    for key in ctx.constants:
        for ending in ("type", "shape", "offset", "size"):
            lines.pop(f"{key}_{ending}", None)
    return ctx.onnx(
        ctx.layer.kind,
        [*ctx.values(), *constants],
        [tensor_type(shape, "f32") for shape in stated_shapes(ctx.block)],
        "a layer of a plugin",
        DOMAIN,
        layer=ctx.layer.name,
        constants=",".join(ctx.constants),
        **{f"ir_{key}": text for key, text in lines.items()},
    )


def _kept(ctx: CompassContext) -> tuple[list[Value], dict[str, Any]]:
    """A layer without a rule keeps its parameters."""
    return [], {"type": ctx.layer.kind, **{f"ir_{key}": text for key, text in ctx.block.values.items()}}
