"""Resampling in space."""

from collections.abc import Sequence

from xdsl.ir import Attribute

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
