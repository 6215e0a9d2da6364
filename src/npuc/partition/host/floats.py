"""bf16 and f16 where one rounding says it all: casts, sums and products of two tensors.

Longer sums have an order (docs/arithmetic-float.md) that ONNX Runtime does not keep.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.export.onnx.emitter import Emitter
from npuc.ir import dtype_of, npu
from npuc.partition.host import on_host
from npuc.partition.host.numbers import F32


@on_host(npu.Cast)
def cast(op: npu.Cast, emit: Emitter) -> None:
    """Cast rounds to nearest even."""
    emit.cast(op.x, dtype_of(op.y.type), to=op.y)


@on_host(npu.FloatAdd, npu.FloatSub, npu.FloatMul)
def binary(op: Any, emit: Emitter) -> None:
    """In float32, then the fused relu, then one rounding."""
    node = {npu.FloatAdd: "Add", npu.FloatSub: "Sub", npu.FloatMul: "Mul"}[type(op)]
    y = emit(node, emit.cast(op.a, F32), emit.cast(op.b, F32))
    if op.relu:
        y = emit("Relu", y)
        if op.relu_limit > 0:
            y = emit("Min", y, np.asarray(np.float32(op.relu_limit)))
    emit.cast(y, dtype_of(op.y.type), to=op.y)
