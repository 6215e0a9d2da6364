"""The `npu` dialect: ops on quantized tensors, on bf16, f16 and f32, and on blocks, each with all that its arithmetic needs.

Ops that only move elements, and `top.max_pool`, are those of the `top` dialect on quantized tensors: they are the same
in both. Importing this package registers every op in `NPU_OPS`.
"""

from npuc.ir.npu.arithmetic import Add, AvgPool, ChannelTable, Mul, Requant, Sub, Table
from npuc.ir.npu.blocks import BlockConv, BlockLinear, BlockMatMul, BlockPack, is_block_op
from npuc.ir.npu.boundary import Dequantize, Quantize, Reinterpret
from npuc.ir.npu.definition import NPU_OPS, NpuOp, OutputStage
from npuc.ir.npu.floating import (
    Cast,
    FloatAdd,
    FloatAvgPool,
    FloatConv,
    FloatDeconv,
    FloatLinear,
    FloatMatMul,
    FloatMax,
    FloatMaxPool,
    FloatMin,
    FloatMul,
    FloatNorm,
    FloatOp,
    FloatReduce,
    FloatSoftmax,
    FloatSub,
    FloatTable,
)
from npuc.ir.npu.linear import Conv, Deconv, MatMul
from npuc.ir.npu.recurrent import GRU, LSTM, RNN
from npuc.ir.npu.rows import Norm, ReduceSum, ResizeBilinear, Softmax
from npuc.ir.npu.single_precision import computes_in_f32, is_f32_on_npu

__all__ = [
    "GRU",
    "LSTM",
    "NPU_OPS",
    "RNN",
    "Add",
    "AvgPool",
    "BlockConv",
    "BlockLinear",
    "BlockMatMul",
    "BlockPack",
    "Cast",
    "ChannelTable",
    "Conv",
    "Deconv",
    "Dequantize",
    "FloatAdd",
    "FloatAvgPool",
    "FloatConv",
    "FloatDeconv",
    "FloatLinear",
    "FloatMatMul",
    "FloatMax",
    "FloatMaxPool",
    "FloatMin",
    "FloatMul",
    "FloatNorm",
    "FloatOp",
    "FloatReduce",
    "FloatSoftmax",
    "FloatSub",
    "FloatTable",
    "MatMul",
    "Mul",
    "Norm",
    "NpuOp",
    "OutputStage",
    "Quantize",
    "ReduceSum",
    "Reinterpret",
    "Requant",
    "ResizeBilinear",
    "Softmax",
    "Sub",
    "Table",
    "computes_in_f32",
    "is_block_op",
    "is_f32_on_npu",
]
