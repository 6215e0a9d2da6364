"""Images inside a network: from the bytes that a camera gives to the planes of an input, as ops.

    ui8 bytes → top.cast → (yuv: slice, resize, concat, conv) → top.resize → top.pad or top.slice → planes, N x C x H x W

Values stay those of pixels, 0 to 255. All but the conversions of colours moves bytes or blends them, so that integers of 8 bits
have the pixels themselves. The resize takes the two nearest pixels of each axis, as OpenCV does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from npuc.arrays import Array
from npuc.errors import PreprocessError
from npuc.images.kernels import YUV_FORMATS, yuv_shape
from npuc.images.preprocess import CHANNELS, Preprocess
from npuc.ir.dtypes import dtype_of, shape_of
from npuc.ir.graph import Graph
from npuc.ir.top import Cast, Concat, Conv, Pad, Permute, Reshape, Resize, Slice, Tile

_RESIZE: dict[str, dict[str, Any]] = {
    "bilinear": {"mode": "linear"},
    "opencv-linear": {"mode": "linear"},
    "opencv-linear-exact": {"mode": "linear"},
    "nearest": {"mode": "nearest", "rounding": "round_prefer_ceil"},
    "opencv-nearest-exact": {"mode": "nearest", "rounding": "round_prefer_ceil"},
    "opencv-nearest": {"mode": "nearest", "coordinates": "asymmetric", "rounding": "floor"},
}
"""Properties of `top.resize` by interpolation."""


@dataclass(frozen=True)
class ColourMatrix:
    """What makes colours of others: `matrix @ (pixel - before) + after`, limited to 0 to 255."""

    matrix: tuple[tuple[float, float, float], ...]
    """A row for each channel that is made."""
    before: tuple[float, float, float] = (0.0, 0.0, 0.0)
    after: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def weights(self) -> Array:
        """The matrix as an array."""
        return np.array(self.matrix)

    @property
    def bias(self) -> Array:
        """What is added to the product of matrix and pixel."""
        bias: Array = np.array(self.after) - self.weights @ np.array(self.before)
        return bias


BT601_LIMITED = ColourMatrix(
    ((1.164, 0.0, 1.596), (1.164, -0.391, -0.813), (1.164, 2.018, 0.0)), before=(16.0, 128.0, 128.0)
)
"""Red, green and blue of Y, U and V by BT.601, with a luma of 16 to 235."""
BT709_FULL = ColourMatrix(
    ((1.0, 0.0, 1.5748), (1.0, -0.187324, -0.468124), (1.0, 1.8556, 0.0)), before=(0.0, 128.0, 128.0)
)
"""Red, green and blue of Y, U and V by BT.709, with a luma of 0 to 255."""
TO_BT709_FULL = ColourMatrix(
    ((0.2126, 0.7152, 0.0722), (-0.114572, -0.385428, 0.5), (0.5, -0.454153, -0.045847)),
    after=(0.0, 128.0, 128.0),
)
"""Y, U and V of red, green and blue by BT.709, with a luma of 0 to 255."""
_LUMA = np.array([0.299, 0.587, 0.114])


def source_shape(batch: int, size: tuple[int, int], source: str) -> tuple[int, ...]:
    """The shape of an input that takes the bytes of images: N x H x W x channels, or as `yuv_shape` says."""
    return (batch, *(yuv_shape(*size, source) if source in YUV_FORMATS else (*size, CHANNELS[source])))


class ImageOps:
    """Ops that are inserted before the first of a network; each method takes planes and gives the next ones."""

    def __init__(self, graph: Graph, name: str, dtype: str, from_yuv: ColourMatrix = BT601_LIMITED) -> None:
        self.graph, self.name, self.dtype, self.from_yuv = graph, name, dtype, from_yuv
        self._before = graph.block.first_op

    def add(self, op: Operation) -> SSAValue:
        """Insert an op."""
        assert self._before is not None
        self.graph.block.insert_op_before(op, self._before)
        return op.results[0]

    def named(self, what: str) -> dict[str, Any]:
        """The name of a new op, after the input that it belongs to."""
        return {"name": f"{self.name}/{what}", "layer": self.name}

    def weight(self, what: str, array: Array) -> SSAValue:
        """A constant."""
        return self.add(
            self.graph.add_weight(f"{self.name}/{what}", array.astype(dtype_of(self.dtype).numpy))
        )

    def cast(self, value: SSAValue) -> SSAValue:
        """Bytes as reals."""
        return self.add(Cast.make(value, to=self.dtype, **self.named("cast")))

    def planes(self, value: SSAValue, source: str, colours: str, size: tuple[int, int]) -> SSAValue:
        """The bytes of images as N x C x H x W in the given `colours`; red and blue may have to be swapped yet."""
        if source in YUV_FORMATS:
            return self._from_yuv(value, source, colours, size)
        planes = self.add(Permute.make(value, order=(0, 3, 1, 2), **self.named("nchw")))
        if source == colours or {source, colours} == {"rgb", "bgr"}:
            return planes
        if colours == "gray":
            luma = _LUMA if source in ("rgb", "rgba") else _LUMA[::-1]
            weights = np.zeros((1, CHANNELS[source]))
            weights[0, :3] = luma
            return self.mixed(planes, weights, np.zeros(1), "gray")
        if source == "rgba":
            return self.slice(planes, "rgb", (0, 0, 0, 0), (*shape_of(planes)[:1], 3, *size))
        if source == "gray" and colours in ("rgb", "bgr"):
            return self.add(Tile.make(planes, repeats=(1, 3, 1, 1), **self.named("rgb")))
        raise PreprocessError(f"images in {source} format cannot become {colours} inside the network")

    def slice(self, value: SSAValue, what: str, offset: Sequence[int], shape: Sequence[int]) -> SSAValue:
        """A part of a tensor."""
        if tuple(shape) == shape_of(value):
            return value
        return self.strided(value, what, offset, (1,) * len(shape), shape)

    def strided(
        self, value: SSAValue, what: str, offset: Sequence[int], steps: Sequence[int], shape: Sequence[int]
    ) -> SSAValue:
        """Every so many elements of a tensor."""
        return self.add(
            Slice.make(
                value, offset=tuple(offset), steps=tuple(steps), shape=tuple(shape), **self.named(what)
            )
        )

    def permuted(self, value: SSAValue, order: Sequence[int], what: str) -> SSAValue:
        """The axes in another order."""
        return self.add(Permute.make(value, order=tuple(order), **self.named(what)))

    def fitted(self, planes: SSAValue, preprocess: Preprocess, shape: Sequence[int]) -> SSAValue:
        """Images resized, padded and cropped for an input of `shape`."""
        n, c, height, width = shape_of(planes)
        at = preprocess.placement(shape, height, width)
        rows, columns = preprocess.image_size(shape)
        if (at.height, at.width) != (height, width):
            properties = _RESIZE.get(preprocess.interpolation)
            if properties is None:
                raise PreprocessError(
                    f"{preprocess.interpolation} interpolation has no integer form",
                    fix=f"Resize inside the network by {', '.join(_RESIZE)}",
                )
            sizes = (n, c, at.height, at.width)
            planes = self.add(Resize.make(planes, sizes=sizes, **properties, **self.named("resized")))
        top, left = max(at.top, 0), max(at.left, 0)
        kept = min(at.height, rows), min(at.width, columns)
        planes = self.slice(planes, "cropped", (0, 0, -min(at.top, 0), -min(at.left, 0)), (n, c, *kept))
        if kept != (rows, columns):
            pads = (0, 0, top, left, 0, 0, rows - kept[0] - top, columns - kept[1] - left)
            planes = self.add(
                Pad.make(planes, pads=pads, value=float(preprocess.pad_value), **self.named("padded"))
            )
        return planes

    def _from_yuv(self, value: SSAValue, source: str, colours: str, size: tuple[int, int]) -> SSAValue:
        n, (height, width) = shape_of(value)[0], size
        if source in ("yuyv", "uyvy"):
            luma_at = 0 if source == "yuyv" else 1
            luma = self.reshaped(self._last(value, luma_at, "luma"), (n, 1, height, width), "y")
            chroma = self._last(value, 1 - luma_at, "chroma")
            chroma = self._paired(chroma, (n, height, width // 2, 2), False)
        else:
            luma = self.slice(value, "luma", (0, 0, 0), (n, height, width))
            luma = self.reshaped(luma, (n, 1, height, width), "y")
            chroma = self.slice(value, "chroma", (0, height, 0), (n, height // 2, width))
            if source in ("i420", "yv12"):
                chroma = self.reshaped(chroma, (n, 2, height // 2, width // 2), "uv")
                chroma = self.reversed(chroma, "swapped") if source == "yv12" else chroma
            else:
                chroma = self._paired(chroma, (n, height // 2, width // 2, 2), source == "nv21")
        if colours == "gray":
            factor = self.from_yuv.weights[:1, :1]
            return self.mixed(luma, factor, -factor[0] * self.from_yuv.before[0], "gray")
        sizes: dict[str, Any] = {
            "sizes": (n, 2, height, width),
            "mode": "nearest",
            "coordinates": "asymmetric",
            "rounding": "floor",
        }
        chroma = self.add(Resize.make(chroma, **sizes, **self.named("spread")))
        planes = self.add(Concat.make([luma, chroma], axis=1, **self.named("yuv")))
        order = slice(None, None, -1 if colours == "bgr" else 1)
        return self.mixed(planes, self.from_yuv.weights[order], self.from_yuv.bias[order], colours)

    def _last(self, value: SSAValue, index: int, what: str) -> SSAValue:
        shape = shape_of(value)
        return self.slice(value, what, (0,) * (len(shape) - 1) + (index,), (*shape[:-1], 1))

    def _paired(self, value: SSAValue, shape: tuple[int, ...], is_swapped: bool) -> SSAValue:
        """Interleaved U and V as two planes."""
        pairs = self.reshaped(value, shape, "pairs")
        planes = self.add(Permute.make(pairs, order=(0, 3, 1, 2), **self.named("uv")))
        return self.reversed(planes, "swapped") if is_swapped else planes

    def reshaped(self, value: SSAValue, shape: tuple[int, ...], what: str) -> SSAValue:
        """The same elements under another shape."""
        return self.add(Reshape.make(value, shape=shape, **self.named(what)))

    def reversed(self, planes: SSAValue, what: str, axis: int = 1) -> SSAValue:
        """The channels in reverse order."""
        shape = shape_of(planes)
        offset, steps = [0] * len(shape), [1] * len(shape)
        offset[axis], steps[axis] = shape[axis] - 1, -1
        return self.add(Slice.make(planes, offset=offset, steps=steps, shape=shape, **self.named(what)))

    def mixed(self, planes: SSAValue, weights: Array, bias: Array, what: str) -> SSAValue:
        """Each channel of the result a sum of channels, limited to the values of pixels."""
        kernel = self.weight(f"{what}_weight", weights.reshape(*weights.shape, 1, 1))
        return self.add(
            Conv.make(
                planes,
                kernel,
                self.weight(f"{what}_bias", bias),
                strides=(1, 1),
                pads=(0, 0, 0, 0),
                dilations=(1, 1),
                relu=True,
                relu_limit=255.0,
                **self.named(what),
            )
        )
