"""The native core's functions on NumPy arrays, one module a family."""

from npuc.kernels.gemm import ConvPlan, MatMulPlan, isa, matmul, select_isa
from npuc.kernels.requant import Requant

__all__ = ["ConvPlan", "MatMulPlan", "Requant", "isa", "matmul", "select_isa"]
