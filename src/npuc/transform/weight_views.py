"""A constant under another shape: the same bytes, nothing copied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.ir.graph import Graph
from npuc.ir.top import WeightOp
from npuc.ir.weights import Weight


def reshaped_weight(graph: Graph, op: WeightOp, shape: Sequence[int]) -> WeightOp:
    """A new `top.weight` (not yet in a block) for the bytes of another one."""
    weight = graph.weights[op.ref]
    data = weight.data.reshape(tuple(shape)) if isinstance(weight.data, np.ndarray) else weight.data
    return graph.add_weight(f"{op.ref}/reshaped", Weight(weight.dtype, tuple(shape), data))
