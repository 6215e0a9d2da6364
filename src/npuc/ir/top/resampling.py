"""Resampling in space."""

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute

from npuc.arrays import Array
from npuc.ir.definition import (
    TopOp,
    boolean,
    integers,
    number,
    numbers,
    operand,
    require,
    result,
    shape_of,
    text,
    top_op,
)
from npuc.ir.dtypes import dtype_of, element_of, tensor_type

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
_BLENDED = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


@top_op
class Resize(TopOp):
    """x resized to `sizes` on every axis, by nearest, linear or cubic interpolation.

    `coordinates` and `rounding` (of nearest) are ONNX's transformation modes. `scales` is empty if the factors are
    sizes / input sizes; it is kept where a model states factors, because ONNX computes coordinates with those.
    """

    name = "top.resize"
    x = operand()
    sizes: tuple[int, ...] = integers()
    scales: tuple[float, ...] = numbers(())
    mode: str = text()
    coordinates: str = text("half_pixel")
    rounding: str = text("round_prefer_floor")
    cubic_coefficient: float = number(-0.75)
    exclude_outside: bool = boolean(False)
    antialias: bool = boolean(False)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The sizes given."""
        x = shape_of(self.x)
        require(len(self.sizes) == len(x) and min(self.sizes, default=1) >= 0, f"needs {len(x)} sizes")
        require(len(self.scales) in (0, len(x)), f"needs {len(x)} scales or none")
        return [tensor_type(self.sizes, element_of(self.x))]

    def check(self) -> None:
        """Known modes."""
        require(self.mode in ("nearest", "linear", "cubic"), f"unknown mode '{self.mode}'")
        require(self.coordinates in COORDINATES, f"unknown coordinates '{self.coordinates}'")

    def nearest_maps(self) -> list[Array]:
        """Of nearest: for each axis, the index in x of each element of the result, as ONNX defines it."""
        maps = []
        for axis, (size, out) in enumerate(zip(shape_of(self.x), self.sizes, strict=True)):
            scale = np.float64(self.scales[axis]) if self.scales else np.float64(out) / size
            y = np.arange(out, dtype=np.float64)
            match self.coordinates:
                case "asymmetric":
                    x = y / scale
                case "align_corners":
                    x = y * (size - 1) / (out - 1) if out > 1 else np.zeros(out)
                case "pytorch_half_pixel":
                    x = (y + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
                case "tf_half_pixel_for_nn":
                    x = (y + 0.5) / scale
                case "half_pixel_symmetric":
                    adjust = out / (scale * size)
                    x = size / 2 * (1 - adjust) + (y + 0.5) / scale - 0.5
                case _:
                    x = (y + 0.5) / scale - 0.5
            match self.rounding:
                case "floor":
                    index = np.floor(x)
                case "ceil":
                    index = np.ceil(x)
                case "round_prefer_ceil":
                    index = np.floor(x + 0.5)
                case _:
                    index = np.ceil(x - 0.5)
            maps.append(np.clip(index, 0, size - 1).astype(np.int64))
        return maps

    @property
    def is_plain_linear(self) -> bool:
        """Whether each element is a blend of the two nearest along each axis, at coordinates that integers have a form for."""
        plain = self.mode == "linear" and not self.antialias and not self.exclude_outside
        return plain and self.coordinates in _BLENDED

    @property
    def blends_images(self) -> bool:
        """Whether it is a plain linear interpolation of height and width."""
        x = shape_of(self.x)
        return self.is_plain_linear and len(x) == 4 and self.sizes[:2] == x[:2]


@top_op
class GridSample(TopOp):
    """x (N x C x spatial) sampled at the points of a grid (N x spatial' x rank) of coordinates in [-1, 1]."""

    name = "top.grid_sample"
    x = operand()
    grid = operand()
    mode: str = text("linear")
    padding: str = text("zeros")
    align_corners: bool = boolean(False)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """N x C x spatial'."""
        x, grid = shape_of(self.x), shape_of(self.grid)
        require(len(x) == len(grid) and x[0] == grid[0] and grid[-1] == len(x) - 2, "x and grid do not fit")
        return [tensor_type((*x[:2], *grid[1:-1]), dtype_of(self.x.type))]
