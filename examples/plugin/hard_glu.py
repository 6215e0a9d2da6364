"""A plugin that adds an op end to end: the gated unit y = a * clip(slope * b + 1/2, 0, 1), a GLU with a hard sigmoid.

    npuc compile model.onnx --plugin hard_glu.py --target edge-4t -o model.npu

It is imported from ONNX nodes com.example:HardGlu, computed in float by NumPy, quantized, compiled to a custom instruction of the
vector engine, simulated to the bit, and built into an exported C application (hard_glu.c).
"""

from pathlib import Path

import numpy as np

from npuc.plugins.api import (
    KernelCall,
    NoIntegerForm,
    NpuOp,
    TopOp,
    add_op_kind,
    claims,
    custom_instruction,
    dtype_of,
    float_forward,
    integer,
    integers,
    kernel,
    lowers,
    npu_op,
    number,
    onnx_rule,
    operand,
    quantize_multiplier,
    quantized,
    register_kernel,
    require,
    result,
    shape_of,
    tensor_type,
    top_op,
)

TYPES = {"i8": 0, "ui8": 1, "i16": 2}
NUMPY = (np.int8, np.uint8, np.int16)
GATE_BITS = 26


# The op on reals: definition and shape, meaning, import.


@top_op
class HardGlu(TopOp):
    """y = a * clip(slope * b + 1/2, 0, 1)"""

    name = "top.hard_glu"
    a = operand()
    b = operand()
    slope: float = number(1 / 6)
    y = result()

    def infer(self):
        """The shape of a."""
        require(self.a.type == self.b.type, "a and b have different types")
        require(self.slope > 0, f"a slope of {self.slope}")
        return [self.a.type]


@float_forward(HardGlu)
def forward(arrays, attributes):
    """In NumPy."""
    a, b = arrays
    gate = np.clip(np.float32(attributes.get("slope", 1 / 6)) * b + np.float32(0.5), 0, 1)
    return [(a * gate).astype(a.dtype)]


# ONNX Runtime does not know the node either: with this, the check of an import runs the original too.
register_kernel("com.example", "HardGlu", forward)


@onnx_rule("HardGlu", domain="com.example")
def from_onnx(ctx):
    """A node with the attribute `slope`."""
    return ctx.emit(HardGlu, ctx.operand(0), ctx.operand(1), slope=ctx.node.float("slope", 1 / 6)).y


@claims("npuc.custom", "HardGlu")
def from_custom(op, graph):
    """What `npuc.lang.custom("HardGlu", ...)` makes."""
    return HardGlu.make(*op.operands, slope=op.onnx_attributes.get("slope", 1 / 6))


# The op on integers: definition, how it is made of the one on reals, meaning, cost.


@npu_op
class NpuHardGlu(NpuOp):
    """y = y_zero + ((a - a_zero) * gate * multiplier >> shift), gate = clip((b - b_zero) * slope + 2^25, 0, 2^26)"""

    name = "npu.hard_glu"
    a = operand()
    b = operand()
    slope: int = integer()
    scaling: tuple[int, ...] = integers()
    lo: int = integer()
    hi: int = integer()
    y = result()

    def infer(self):
        """The shape of a."""
        quantized(self.a)
        quantized(self.b)
        require(shape_of(self.a) == shape_of(self.b), "a and b have different shapes")
        return [tensor_type(shape_of(self.a), self.to)]


@lowers(HardGlu)
def to_integers(op, context):
    """Scales become a multiplier and a shift."""
    a, b, y = (context.type_of(value) for value in (op.a, op.b, op.y))
    slope = round(op.slope * b.scale * 2**GATE_BITS)
    if not 1 <= slope < 2**31:
        raise NoIntegerForm(f"its second operand has a scale of {b.scale:.3g}")
    multiplier, shift = quantize_multiplier(a.scale / y.scale / 2**GATE_BITS, bits=15)
    if not 1 <= shift <= 62:
        raise NoIntegerForm("its result is too fine")
    low, high = y.dtype.limits
    return context.emit(
        NpuHardGlu,
        context.integer(op.a),
        context.integer(op.b),
        to=y,
        slope=slope,
        scaling=(multiplier, shift),
        lo=low,
        hi=high,
        loc=op.location,
    ).y


def numbers_of(op):
    """What an instruction tells the kernel."""
    values = op.a, op.b, op.y
    types = [TYPES[dtype_of(value.type).name] for value in values]
    zeros = [quantized(value).zero_point for value in values]
    return (*types, *zeros, op.slope, *op.scaling, op.lo, op.hi)


@kernel("hard_glu", c_source=Path(__file__).with_suffix(".c"))
def hard_glu(call: KernelCall) -> None:
    """The same as hard_glu.c."""
    x_type, b_type, y_type, x_zero, b_zero, y_zero, slope, multiplier, shift, low, high, *_ = call.parameters
    assert call.b is not None
    a = call.x.view(NUMPY[x_type]).astype(np.int64) - x_zero
    b = call.b.view(NUMPY[b_type]).astype(np.int64) - b_zero
    gate = np.clip(b * slope + 2 ** (GATE_BITS - 1), 0, 2**GATE_BITS)
    y = y_zero + ((a * gate * multiplier + (1 << (shift - 1))) >> shift)
    call.y.view(NUMPY[y_type])[:] = np.clip(y, low, high)


custom_instruction(
    NpuHardGlu, kernel="hard_glu", operands=("a", "b"), parameters=numbers_of, work=3, by_row=True
)

# Target files may now name the op and limit it: `limits: {rules: {hard_glu: ...}}`.
add_op_kind("hard_glu")
