"""Samples of an image at constant points are a product with a constant matrix.

    grid_sample(x: 1,C,H,W, grid: 1,H',W',2)   →   reshape(matmul(reshape(x: C,H*W), matrix: H*W,H'*W'))

Each sample is a weighted sum of pixels; the float engine computes the weights, as the samples of an identity. Points that are
known at run time only stay as they are: 8 bits for a coordinate are too few. It runs before quantization.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from npuc.arrays import Array
from npuc.ir.dtypes import shape_of, tensor_type
from npuc.ir.graph import Graph
from npuc.ir.names import result_names
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import GridSample, MatMul, Reshape
from npuc.transform.axis_products import LARGEST_MATRIX
from npuc.transform.patterns import GraphPattern, insert_part, insert_weight, is_float, replace


def is_product(op: GridSample, graph: Graph) -> bool:
    """Whether the points of one image are constant, and few enough for a matrix."""
    if not is_float(op.x) or graph.constant(op.grid) is None or shape_of(op.x)[0] != 1:
        return False
    return 0 < prod(shape_of(op.x)[2:]) * prod(shape_of(op.y)[2:]) <= LARGEST_MATRIX


def weights_of(op: GridSample, grid: Array) -> Array:
    """The matrix of samples: pixels x points."""
    from npuc.engine import FloatEngine

    spatial = shape_of(op.x)[2:]
    pixels = prod(spatial)
    graph = Graph.empty([("x", tensor_type((1, pixels, *spatial), "f32"))])
    points = graph.add_weight("grid", grid)
    properties = op.native_properties()
    sample = GridSample.make(graph.block.args[0], points.output, **properties, name="y")
    for part in (points, sample):
        graph.block.add_op(part)
    graph.set_outputs([("y", sample.y)])
    identity = np.eye(pixels, dtype=np.float32).reshape(1, pixels, *spatial)
    return FloatEngine(graph, threads=1).run({"x": identity})["y"].reshape(pixels, -1)


class ConstantPoints(GraphPattern):
    """grid_sample(x, constant) → matmul(x, constant)"""

    @rewrites
    def match_and_rewrite(self, op: GridSample, rewriter: PatternRewriter) -> None:
        """Of one image."""
        grid = self.graph.constant(op.grid) if is_product(op, self.graph) else None
        if grid is None:
            return
        _, channels, *spatial = shape_of(op.x)
        matrix = weights_of(op, grid)
        name = f"{result_names(op)[0]}/samples/matrix"
        pixels = insert_part(rewriter, op, "pixels", Reshape, op.x, shape=(channels, prod(spatial)))
        weight = insert_weight(self.graph, rewriter, name, matrix, like=op.x)
        samples = insert_part(rewriter, op, "samples", MatMul, pixels, weight, None)
        replace(rewriter, op, Reshape.make(samples, shape=shape_of(op.y)))


@register_pass
@dataclass(frozen=True)
class GridToMatmul(Pass):
    """Samples at constant points are a product with a constant matrix."""

    name: ClassVar[str] = "grid-to-matmul"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [ConstantPoints(graph)])
