"""A border of the tensor's own elements is a gather along each axis that has one.

    pad(x: N,C,L, reflect 2)   →   gather(x, [2, 1, 0, 1, 2, ..]) {axis = 2}

Rows and columns around images stay a pad, which can be computed row by row. It runs before quantization; the elements move as
they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuc.arrays import Array
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Pad
from npuc.transform.axis_gathers import replace_by_gathers
from npuc.transform.patterns import GraphPattern, is_float


def has_gathers(op: Pad) -> bool:
    """Whether a pad of reals repeats elements anywhere else than around images."""
    return op.mode != "constant" and is_float(op.x) and not op.frames_images and any(op.pads)


def border_index(size: int, before: int, after: int, mode: str) -> Array:
    """The element of an axis that each element of the padded axis shows; negative pads crop.

    >>> border_index(4, 2, -1, "reflect").tolist()
    [2, 1, 0, 1, 2]
    """
    kept = np.arange(max(-before, 0), size - max(-after, 0))
    padded: Array = np.pad(kept, (max(before, 0), max(after, 0)), mode=mode)  # type: ignore[call-overload]
    return padded


class OwnBorder(GraphPattern):
    """pad(x) {mode = reflect, edge or wrap} → gathers"""

    @rewrites
    def match_and_rewrite(self, op: Pad, rewriter: PatternRewriter) -> None:
        """Around anything but images."""
        if not has_gathers(op):
            return
        shape = shape_of(op.x)
        ends = zip(op.pads[: len(shape)], op.pads[len(shape) :], strict=True)
        indices = {axis: border_index(shape[axis], *pair, op.mode) for axis, pair in enumerate(ends)}
        replace_by_gathers(self.graph, rewriter, op, op.x, indices)


@register_pass
@dataclass(frozen=True)
class PadToGather(Pass):
    """A border of a tensor's own elements is a gather along each axis."""

    name: ClassVar[str] = "pad-to-gather"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [OwnBorder(graph)])
