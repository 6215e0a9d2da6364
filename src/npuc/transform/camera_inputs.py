"""Inputs that take the bytes of images in other colours than the network was made for: it converts them itself.

    func @main(%x: 1x3x4x4xf32)            func @main(%x: 1x24xui8)
        %y = top.conv(%x, ...)      →          %0 = top.cast(%x)
                                               ...                       # slice, reshape, resize, concat, conv
                                               %y = top.conv(%5, ...)

A row of bytes is an image of Y, U and V with one U and one V for 2 x 2 pixels: all Y of it, then the two others. `image_ops` has
the conversion; pixels that share a U and a V get the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from npuc.errors import PreprocessError, UnknownTensorError
from npuc.images.kernels import yuv_shape
from npuc.ir import Value
from npuc.ir.dtypes import dtype_of, shape_of, tensor_type
from npuc.ir.graph import Graph, Port
from npuc.ir.top import Concat
from npuc.transform.image_ops import BT709_FULL, TO_BT709_FULL, ColourMatrix, ImageOps
from npuc.transform.input_layers import with_input_layer

PLANAR = ("i420", "yv12", "nv12", "nv21")
"""Formats with one U and one V for 2 x 2 pixels."""


def with_yuv_input(
    graph: Graph, name: str, layout: str, yuv: str = "i420", colours: ColourMatrix = BT709_FULL
) -> Graph:
    """The network with an image of three channels, red first, replaced by N x bytes of Y, U and V; `layout` is nchw or nhwc."""
    port = _port(graph, name)
    shape = shape_of(port.value)
    if len(shape) != 4 or shape[1 if layout == "nchw" else 3] != 3 or yuv not in PLANAR:
        raise PreprocessError(
            f"an input of shape {list(shape)} takes no image of three channels in {yuv} format",
            where=f"input '{name}'",
            fix=f"It needs rank 4, three channels and one of {', '.join(PLANAR)}",
        )
    batch, (height, width) = shape[0], shape[2:] if layout == "nchw" else shape[1:3]
    rows, columns = _yuv_shape(name, height, width, yuv)

    def convert(ops: ImageOps, value: SSAValue) -> SSAValue:
        data = ops.reshaped(ops.cast(value), (batch, rows, columns), "bytes")
        image = ops.planes(data, yuv, "rgb", (height, width))
        return image if layout == "nchw" else ops.permuted(image, (0, 2, 3, 1), "nhwc")

    return _converted(graph, name, (batch, rows * columns), colours, convert)


def with_rgb_input(
    graph: Graph, name: str, size: tuple[int, int], colours: ColourMatrix = TO_BT709_FULL
) -> Graph:
    """The network with N x bytes of Y, U and V (I420) replaced by N x H x W x 3 bytes, red first; `size` is height and width.

    The U and V of 2 x 2 pixels are those of the first of them.
    """
    port = _port(graph, name)
    shape, (height, width) = shape_of(port.value), size
    rows, columns = _yuv_shape(name, height, width, "i420")
    if len(shape) != 2 or shape[1] != rows * columns:
        raise PreprocessError(
            f"an input of shape {list(shape)} does not take the {rows * columns} bytes of an image of {height} x {width}",
            where=f"input '{name}'",
        )
    batch, half = shape[0], (height // 2, width // 2)

    def convert(ops: ImageOps, value: SSAValue) -> SSAValue:
        pixels = ops.permuted(ops.cast(value), (0, 3, 1, 2), "nchw")
        planes = ops.mixed(pixels, colours.weights, colours.bias, "yuv")
        luma = ops.slice(planes, "luma", (0, 0, 0, 0), (batch, 1, height, width))
        chroma = ops.strided(planes, "chroma", (0, 1, 0, 0), (1, 1, 2, 2), (batch, 2, *half))
        parts = [
            ops.reshaped(luma, (batch, height * width), "y"),
            ops.reshaped(chroma, (batch, height * width // 2), "uv"),
        ]
        return ops.add(Concat.make(parts, axis=1, **ops.named("bytes")))

    return _converted(graph, name, (batch, height, width, 3), colours, convert)


def _converted(
    graph: Graph,
    name: str,
    shape: tuple[int, ...],
    colours: ColourMatrix,
    convert: Callable[[ImageOps, SSAValue], SSAValue],
) -> Graph:
    """The network with another shape and uint8 at one input, and the ops of `convert` behind it."""
    dtype = dtype_of(_port(graph, name).type).name

    def make(changed: Graph, values: Sequence[Value], _: object) -> list[Value]:
        return [convert(ImageOps(changed, name, dtype, colours), values[0])]

    return with_input_layer(graph, {name: tensor_type(shape, "ui8")}, make)


def _port(graph: Graph, name: str) -> Port:
    ports = {port.name: port for port in graph.inputs}
    if name not in ports:
        raise UnknownTensorError(f"there is no input '{name}'", fix=f"The inputs are {', '.join(ports)}")
    if not dtype_of(ports[name].type).is_float:
        raise PreprocessError(
            f"an input of {dtype_of(ports[name].type).name} gets no conversion of colours",
            where=f"input '{name}'",
        )
    return ports[name]


def _yuv_shape(name: str, height: int, width: int, yuv: str) -> tuple[int, int]:
    try:
        rows, columns = yuv_shape(height, width, yuv)
    except PreprocessError as error:
        raise PreprocessError(error.message, where=f"input '{name}'", fix=error.fix) from error
    return rows, columns
