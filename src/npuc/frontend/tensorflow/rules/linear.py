"""Matrix products."""

from __future__ import annotations

from npuc.frontend.blocks.arithmetic import matmul
from npuc.frontend.blocks.einsum import einsum
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule


@rule("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def product(ctx: TensorflowContext) -> Outcome:
    """Either operand may be transposed; batches broadcast."""
    plain = ctx.node.op == "MatMul"
    first, second = ("transpose_a", "transpose_b") if plain else ("adj_x", "adj_y")
    return matmul(
        ctx.c,
        ctx.x(0),
        ctx.x(1),
        adjoint_a=ctx.node.flag(first),
        adjoint_b=ctx.node.flag(second),
    )


@rule("Einsum")
def einsum_(ctx: TensorflowContext) -> Outcome:
    """One or two operands, every letter once in each, an ellipsis for batch axes."""
    product: LayoutTensor = einsum(ctx.c, ctx.node.text("equation"), list(ctx.inputs))
    return product
