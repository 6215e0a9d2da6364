"""Resizes that integers have no op for, as ops that they have.

| resize | becomes |
|---|---|
| nearest, along any axes but height and width | a gather along each axis |
| linear, of one or three spatial axes | linear resizes of images |
| cubic; linear with antialiasing, without what is outside, or with other coordinates | a matrix product along each axis |

An interpolation along an axis is linear in its elements, hence a matrix; the float engine computes it, as the resize of an
identity. It runs before quantization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import SSAValue

from npuc.arrays import Array
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import shape_of, tensor_type
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Reshape, Resize
from npuc.transform.axis_gathers import replace_by_gathers
from npuc.transform.axis_products import LARGEST_MATRIX, axis_product
from npuc.transform.patterns import GraphPattern, derived_location, insert, insert_part, is_float, replace


def is_composite(op: Resize) -> bool:
    """Whether a resize of reals has no integer form of its own, and ops that it is made of."""
    if not is_float(op.x) or 0 in (*shape_of(op.x), *op.sizes) or not resized_axes(op):
        return False
    if op.mode == "nearest":
        return len(op.sizes) != 4 or op.sizes[:2] != shape_of(op.x)[:2]
    if op.blends_images:
        return False
    return all(op.sizes[axis] * shape_of(op.x)[axis] <= LARGEST_MATRIX for axis in resized_axes(op))


def resized_axes(op: Resize) -> list[int]:
    """The axes that change."""
    scales = op.scales or (1.0,) * len(op.sizes)
    shape = shape_of(op.x)
    return [axis for axis, size in enumerate(op.sizes) if size != shape[axis] or scales[axis] != 1.0]


def interpolation(op: Resize, axis: int) -> Array:
    """The matrix of a resize along one axis: its size x the new size."""
    from npuc.engine import FloatEngine

    size = shape_of(op.x)[axis]
    graph = Graph.empty([("x", tensor_type((size, size), "f32"))])
    properties = op.native_properties() | {"sizes": (size, op.sizes[axis])}
    if op.scales:
        properties["scales"] = (1.0, op.scales[axis])
    resize = Resize.make(graph.block.args[0], **properties, name="y")
    graph.block.add_op(resize)
    graph.set_outputs([("y", resize.y)])
    return FloatEngine(graph, threads=1).run({"x": np.eye(size, dtype=np.float32)})["y"]


class Composite(GraphPattern):
    """resize(x) → gathers, resizes of images, or matrix products"""

    @rewrites
    def match_and_rewrite(self, op: Resize, rewriter: PatternRewriter) -> None:
        """Whatever integers have no op for."""
        if not is_composite(op):
            return
        if op.mode == "nearest":
            replace_by_gathers(self.graph, rewriter, op, op.x, dict(enumerate(op.nearest_maps())))
        elif len(op.sizes) in (3, 5) and op.sizes[:2] == shape_of(op.x)[:2] and op.is_plain_linear:
            self._by_images(op, rewriter)
        else:
            self._by_products(op, rewriter)

    def _by_images(self, op: Resize, rewriter: PatternRewriter) -> None:
        """A line is an image of one row; of a volume, first its planes, then its depth."""
        n, c, *spatial = shape_of(op.x)
        new, scales = op.sizes[2:], op.scales[2:] or (0.0,) * len(spatial)
        common: dict[str, Any] = {"mode": "linear", "coordinates": op.coordinates}
        x = op.x
        if len(spatial) == 3:
            x = insert_part(rewriter, op, "images", Reshape, x, shape=(n, c * spatial[0], *spatial[1:]))
            sizes = (n, c * spatial[0], *new[1:])
            factors = (1.0, 1.0, *scales[1:]) if op.scales else ()
            x = insert_part(rewriter, op, "planes", Resize, x, sizes=sizes, scales=factors, **common)
            x = insert_part(rewriter, op, "deep", Reshape, x, shape=(n, c, spatial[0], new[1] * new[2]))
            sizes, factors = (n, c, new[0], new[1] * new[2]), (1.0, 1.0, scales[0], 1.0)
        else:
            x = insert_part(rewriter, op, "row", Reshape, x, shape=(n, c, 1, spatial[0]))
            sizes, factors = (n, c, 1, new[0]), (1.0, 1.0, 1.0, scales[0])
        y = insert_part(
            rewriter, op, "2d", Resize, x, sizes=sizes, scales=factors if op.scales else (), **common
        )
        replace(rewriter, op, Reshape.make(y, shape=op.sizes))

    def _by_products(self, op: Resize, rewriter: PatternRewriter) -> None:
        """The last axes first, as they need no turning."""
        x = op.x
        first, *others = resized_axes(op)
        for axis in reversed(others):
            product = self._product(op, rewriter, x, axis)
            product.location = derived_location(op, f"axis{axis}")
            x = insert(rewriter, product).results[0]
        replace(rewriter, op, self._product(op, rewriter, x, first))

    def _product(self, op: Resize, rewriter: PatternRewriter, x: SSAValue, axis: int) -> TopOp:
        return axis_product(self.graph, rewriter, op, x, axis, interpolation(op, axis), f"axis{axis}")


@register_pass
@dataclass(frozen=True)
class ExpandResize(Pass):
    """Resizes without an integer form as gathers, resizes of images or matrix products."""

    name: ClassVar[str] = "expand-resize"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [Composite(graph)])
