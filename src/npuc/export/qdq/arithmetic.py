"""The requantization kind of an integer network, for the metadata of its QDQ file.

Scales do not say how sums are rounded to them. With the kind in the file, npuc lowers it to the integers that it was written
of; other tools do not read the entry.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from npuc.arithmetic.kinds import Kind
from npuc.ir import Graph, npu

_PAIRS = (npu.Mul, npu.Requant, npu.AvgPool, npu.ReduceSum)
"""Ops whose parameters are pairs of multiplier and shift."""


def stated_arithmetic(graph: Graph) -> str:
    """ "single_rounding/31": the kind, and the bits of its multipliers; empty for ONNX's own, `float_scale`.

    Under `double_rounding` and `pow2` some ops round once, so that one op of these kinds tells.
    """
    stages: list[Any] = [op for op in graph.ops if isinstance(op, npu.OutputStage | npu.ResizeBilinear)]
    kinds = Counter(op.kind for op in stages)
    if not kinds:
        # Nothing is requantized; ONNX would round the ties of reals to even.
        away = any(isinstance(op, npu.Quantize) and op.rounding == "half_away" for op in graph.ops)
        return f"{Kind.SINGLE_ROUNDING}/31" if away else ""
    telling = (kind for kind in (Kind.DOUBLE_ROUNDING, Kind.POW2) if kind in kinds)
    kind = next(telling, kinds.most_common(1)[0][0])
    if kind is Kind.FLOAT_SCALE:
        return ""
    largest = max((_largest_multiplier(op, graph) for op in stages if op.kind is kind), default=0)
    bits = next((bits for bits in (7, 15) if 0 < largest < 1 << bits), 31)
    return f"{kind}/{bits}"


def _largest_multiplier(op: Any, graph: Graph) -> int:
    if not op.kind.has_multiplier or isinstance(op, npu.ResizeBilinear):
        return 0
    if isinstance(op, npu.Conv | npu.Deconv | npu.MatMul):
        constants = graph.constant(op.multiplier)
        return 0 if constants is None else int(constants.max(initial=0))
    return max(op.parameters[0::2], default=0) if isinstance(op, _PAIRS) else 0
