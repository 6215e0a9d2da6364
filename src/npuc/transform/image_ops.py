"""Images inside a network: from the bytes that a camera gives to the planes of an input, as ops.

    ui8 bytes → top.cast → (yuv: slice, resize, concat, conv) → top.resize → top.pad or top.slice → planes, N x C x H x W

Values stay those of pixels, 0 to 255. All but the conversions of colours moves bytes or blends them, so that integers of 8 bits
have the pixels themselves. The resize takes the two nearest pixels of each axis, as OpenCV does.
"""

from __future__ import annotations

from collections.abc import Sequence
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

_FROM_YUV = np.array([[1.164, 0.0, 1.596], [1.164, -0.391, -0.813], [1.164, 2.018, 0.0]])
"""BT.601 of limited range: rows are red, green and blue, columns Y, U and V."""
_YUV_ZERO = np.array([16.0, 128.0, 128.0])
_LUMA = np.array([0.299, 0.587, 0.114])


def source_shape(batch: int, size: tuple[int, int], source: str) -> tuple[int, ...]:
    """The shape of an input that takes the bytes of images: N x H x W x channels, or as `yuv_shape` says."""
    return (batch, *(yuv_shape(*size, source) if source in YUV_FORMATS else (*size, CHANNELS[source])))


class ImageOps:
    """Ops that are inserted before the first of a network; each method takes planes and gives the next ones."""

    def __init__(self, graph: Graph, name: str, dtype: str) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype
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
            return self._mixed(planes, weights, np.zeros(1), "gray")
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
            luma = self._reshaped(self._last(value, luma_at, "luma"), (n, 1, height, width), "y")
            chroma = self._last(value, 1 - luma_at, "chroma")
            chroma = self._paired(chroma, (n, height, width // 2, 2), False)
        else:
            luma = self.slice(value, "luma", (0, 0, 0), (n, height, width))
            luma = self._reshaped(luma, (n, 1, height, width), "y")
            chroma = self.slice(value, "chroma", (0, height, 0), (n, height // 2, width))
            if source in ("i420", "yv12"):
                chroma = self._reshaped(chroma, (n, 2, height // 2, width // 2), "uv")
                chroma = self.reversed(chroma, "swapped") if source == "yv12" else chroma
            else:
                chroma = self._paired(chroma, (n, height // 2, width // 2, 2), source == "nv21")
        if colours == "gray":
            return self._mixed(luma, _FROM_YUV[:1, :1], -_FROM_YUV[0, :1] * _YUV_ZERO[0], "gray")
        sizes: dict[str, Any] = {
            "sizes": (n, 2, height, width),
            "mode": "nearest",
            "coordinates": "asymmetric",
            "rounding": "floor",
        }
        chroma = self.add(Resize.make(chroma, **sizes, **self.named("spread")))
        planes = self.add(Concat.make([luma, chroma], axis=1, **self.named("yuv")))
        weights = _FROM_YUV[::-1] if colours == "bgr" else _FROM_YUV
        return self._mixed(planes, weights, -weights @ _YUV_ZERO, colours)

    def _last(self, value: SSAValue, index: int, what: str) -> SSAValue:
        shape = shape_of(value)
        return self.slice(value, what, (0,) * (len(shape) - 1) + (index,), (*shape[:-1], 1))

    def _paired(self, value: SSAValue, shape: tuple[int, ...], is_swapped: bool) -> SSAValue:
        """Interleaved U and V as two planes."""
        pairs = self._reshaped(value, shape, "pairs")
        planes = self.add(Permute.make(pairs, order=(0, 3, 1, 2), **self.named("uv")))
        return self.reversed(planes, "swapped") if is_swapped else planes

    def _reshaped(self, value: SSAValue, shape: tuple[int, ...], what: str) -> SSAValue:
        return self.add(Reshape.make(value, shape=shape, **self.named(what)))

    def reversed(self, planes: SSAValue, what: str, axis: int = 1) -> SSAValue:
        """The channels in reverse order."""
        shape = shape_of(planes)
        offset, steps = [0] * len(shape), [1] * len(shape)
        offset[axis], steps[axis] = shape[axis] - 1, -1
        return self.add(Slice.make(planes, offset=offset, steps=steps, shape=shape, **self.named(what)))

    def _mixed(self, planes: SSAValue, weights: Array, bias: Array, what: str) -> SSAValue:
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
