"""The arithmetic of an input's preprocessing becomes part of the network, which then takes raw uint8 pixels.

    func @main(%x: 1x3x4x4xf32 {mean, scale})      func @main(%x: 1x3x4x4xui8)
                                                       %0 = top.cast(%x) {to = "f32"}
                                           →           %1 = top.scale(%0, %scale, %bias)

The standardisation of an image (`standardize`) becomes `top.group_norm` of one group, or `top.instance_norm` for each channel.
What is left of the preprocessing, resize and crop, stays attached. Pixels come in the format and layout that the
network was made for, unless the options `pixel_format` (rgb, bgr) and `layout` (nchw, nhwc) say otherwise: then the
network reverses the channels and permutes the axes itself. Where the preprocessing states a source (`source_size`,
`source_format`), the network also converts colours, resizes, crops and pads (`image_ops`), and its input takes the bytes of the
source, row by row. This pass changes the interface of the network, so it is not part of the canonical form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import SSAValue, Use

from npuc.errors import PreprocessError
from npuc.images.preprocess import Preprocess
from npuc.ir.dtypes import dtype_of, shape_of, tensor_type
from npuc.ir.graph import Graph, Port
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import Add, GroupNorm, InstanceNorm, Mul, Permute, Scale
from npuc.transform.image_ops import ImageOps, source_shape

_SWAPPED = {"rgb": "bgr", "bgr": "rgb"}


@register_pass
@dataclass(frozen=True)
class FusePreprocess(Pass):
    """Mean, scale, channel order and layout of image inputs become ops."""

    name: ClassVar[str] = "fuse-preprocess"

    pixel_format: str = ""
    """The format of the pixels that will be given; empty is what the network wants."""
    layout: str = ""
    """The layout of the pixels that will be given; empty is what the network wants."""

    def run(self, graph: Graph) -> None:
        """Every float input that has a preprocessing attached."""
        plans: list[tuple[Port, Preprocess]] = []
        ports: list[tuple[str, Any, dict[str, Any] | None]] = []
        for port in graph.inputs:
            if port.preprocess is None or not dtype_of(port.type).is_float:
                ports.append((port.name, port.type, port.preprocess))
                continue
            stated = Preprocess.from_dict(port.preprocess)
            stated.check(shape_of(port.value))
            if stated.has_source:
                ports.append((port.name, _source_type(port, stated), stated.of_source().to_dict()))
                plans.append((port, stated))
                continue
            given = self._given(port, stated)
            shape = _relaid(shape_of(port.value), stated.layout, given.layout)
            ports.append((port.name, tensor_type(shape, "ui8"), given.geometry().to_dict()))
            plans.append((port, stated))
        floats = {port.name: (shape_of(port.value), dtype_of(port.type).name) for port, _ in plans}
        graph.set_inputs(ports)
        for port, stated in plans:
            shape, dtype = floats[port.name]
            if stated.has_source:
                _insert_source(graph, port, stated, shape, dtype)
            else:
                _insert(graph, port, stated, self._given(port, stated), dtype)

    def _given(self, port: Port, stated: Preprocess) -> Preprocess:
        """The preprocessing for the pixels that will be given."""
        pixel_format, layout = self.pixel_format or stated.pixel_format, self.layout or stated.layout
        if pixel_format not in (stated.pixel_format, _SWAPPED.get(stated.pixel_format)):
            raise PreprocessError(
                f"pixels in {pixel_format} format cannot become {stated.pixel_format} inside the network",
                where=f"input '{port.name}'",
                fix=f"Give {stated.pixel_format} pixels",
            )
        return Preprocess.from_dict({**stated.to_dict(), "pixel_format": pixel_format, "layout": layout})


def _relaid(shape: tuple[int, ...], old: str, new: str) -> tuple[int, ...]:
    lead, (a, b, c) = shape[:-3], shape[-3:]
    if old == new:
        return shape
    return (*lead, b, c, a) if new == "nhwc" else (*lead, c, a, b)


def _insert(graph: Graph, port: Port, stated: Preprocess, given: Preprocess, to: str) -> None:
    """Mean, scale, channel order and layout of pixels that have the size of the input."""
    users, ops = list(port.value.uses), ImageOps(graph, port.name, to)
    value = ops.cast(port.value)
    rank = len(shape_of(value))
    if given.layout != stated.layout:
        lead = tuple(range(rank - 3))
        order = (rank - 1, rank - 3, rank - 2) if stated.layout == "nchw" else (rank - 2, rank - 1, rank - 3)
        value = ops.add(Permute.make(value, order=(*lead, *order), **ops.named(stated.layout)))
    channel = rank - 3 if stated.layout == "nchw" else rank - 1
    if given.pixel_format != stated.pixel_format:
        value = ops.reversed(value, stated.pixel_format, channel)
    _feed(users, _normalized(ops, value, stated, channel))


def _insert_source(graph: Graph, port: Port, stated: Preprocess, shape: tuple[int, ...], to: str) -> None:
    """All that lies between the bytes of the source and the input of `shape`."""
    users, ops = list(port.value.uses), ImageOps(graph, port.name, to)
    source = stated.source_format or stated.pixel_format
    size = stated.of_source().image_size(shape_of(port.value))
    value = ops.planes(ops.cast(port.value), source, stated.pixel_format, size)
    if stated.source_size is not None:
        value = ops.fitted(value, stated, shape)
    if {source.removesuffix("a"), stated.pixel_format} == {"rgb", "bgr"}:
        value = ops.reversed(value, stated.pixel_format, 1)
    value = _normalized(ops, value, stated, 1)
    if stated.layout == "nhwc":
        value = ops.add(Permute.make(value, order=(0, 2, 3, 1), **ops.named("nhwc")))
    _feed(users, value)
    shrinks = stated.source_size is not None and any(
        own < other for own, other in zip(stated.steps(shape)[0], stated.source_size, strict=True)
    )
    if stated.interpolation == "bilinear" and shrinks:
        graph.notes.append(
            f"input '{port.name}': the network resizes by the two nearest pixels of each axis (opencv-linear); Pillow's "
            "bilinear takes more of them when an image shrinks"
        )


def _normalized(ops: ImageOps, value: SSAValue, stated: Preprocess, channel: int) -> SSAValue:
    """(pixel - mean) * scale, or the standardisation of each image"""
    if not stated.has_arithmetic:
        return value
    rank = len(shape_of(value))
    if stated.standardize:
        return _standardized(ops, value, stated, channel)
    mean, factor = (np.asarray(values, np.float64) for values in stated.arithmetic())
    bias = -mean * factor
    if rank == 4 and channel == 1:
        scale, offset = ops.weight("scale", factor), ops.weight("bias", bias)
        return ops.add(Scale.make(value, scale, offset, **ops.named("normalized")))
    tail = (-1,) + (1,) * (rank - 1 - channel)
    value = ops.add(Mul.make(value, ops.weight("scale", factor.reshape(tail)), **ops.named("scaled")))
    return ops.add(Add.make(value, ops.weight("bias", bias.reshape(tail)), **ops.named("normalized")))


def _standardized(ops: ImageOps, value: SSAValue, stated: Preprocess, channel: int) -> SSAValue:
    """Mean 0 and deviation 1 of an image, or of its channels; epsilon keeps a flat image from being divided by 0."""
    shape = shape_of(value)
    if len(shape) != 4:
        raise PreprocessError(
            f"an image of rank {len(shape)} is not standardised in the network",
            fix="Give the input rank 4, such as 1,3,224,224, or leave out --fuse-preprocess",
        )
    if channel == 3:
        value = ops.add(Permute.make(value, order=(0, 3, 1, 2), **ops.named("planes")))
    channels, pixels = shape[channel], math.prod(shape[1:]) // shape[channel]
    scale, bias = ops.weight("one", np.ones(channels)), ops.weight("zero", np.zeros(channels))
    named = ops.named("standardized")
    if stated.standardize == "channel":
        value = ops.add(InstanceNorm.make(value, scale, bias, epsilon=1 / pixels, **named))
    else:
        value = ops.add(
            GroupNorm.make(value, scale, bias, groups=1, epsilon=1 / (pixels * channels), **named)
        )
    return ops.add(Permute.make(value, order=(0, 2, 3, 1), **ops.named("pixels"))) if channel == 3 else value


def _feed(users: Sequence[Use], value: SSAValue) -> None:
    for use in users:
        use.operation.operands[use.index] = value


def _source_type(port: Port, stated: Preprocess) -> Any:
    shape = shape_of(port.value)
    if len(shape) != 4:
        raise PreprocessError(
            f"an input of rank {len(shape)} takes no bytes of a camera",
            where=f"input '{port.name}'",
            fix="A source needs an input of rank 4, such as 1,3,224,224",
        )
    size = stated.source_size or stated.image_size(shape)
    try:
        return tensor_type(source_shape(shape[0], size, stated.source_format or stated.pixel_format), "ui8")
    except PreprocessError as error:
        raise PreprocessError(error.message, where=f"input '{port.name}'", fix=error.fix) from error
