"""The `npu` dialect: integer ops on quantized tensors, each with all that its arithmetic needs.

Ops that only move elements, and `top.max_pool`, are those of the `top` dialect on quantized tensors: they are the same
in both. Importing this package registers every op in `NPU_OPS`.
"""

from npuc.ir.npu.arithmetic import Add, AvgPool, ChannelTable, Mul, Requant, Sub, Table
from npuc.ir.npu.boundary import Dequantize, Quantize
from npuc.ir.npu.definition import KINDS, NPU_OPS, NpuOp, OutputStage
from npuc.ir.npu.linear import Conv, Deconv, MatMul
from npuc.ir.npu.rows import Norm, ReduceSum, ResizeBilinear, Softmax

__all__ = [
    "KINDS",
    "NPU_OPS",
    "Add",
    "AvgPool",
    "ChannelTable",
    "Conv",
    "Deconv",
    "Dequantize",
    "MatMul",
    "Mul",
    "Norm",
    "NpuOp",
    "OutputStage",
    "Quantize",
    "ReduceSum",
    "Requant",
    "ResizeBilinear",
    "Softmax",
    "Sub",
    "Table",
]
