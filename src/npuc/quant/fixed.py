"""Outputs whose scale and zero point are fixed by the scheme, independent of the data.

TFLite's integer kernels, and the chips that follow TFLite, fix the output ranges of these functions.
"""

from __future__ import annotations

from npuc.arithmetic.kinds import Kind
from npuc.ir import top
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.quant.scheme import Scheme

_UNIT: dict[str, tuple[float, int]] = {"i8": (1 / 256, -128), "ui8": (1 / 256, 0), "i16": (1 / 32768, 0)}
"""Values in [0, 1]."""
_SIGNED: dict[str, tuple[float, int]] = {"i8": (1 / 128, 0), "ui8": (1 / 128, 128), "i16": (1 / 32768, 0)}
"""Values in [-1, 1]."""
_FIXED: dict[type[TopOp], dict[str, tuple[float, int]]] = {
    top.Softmax: _UNIT,
    top.Sigmoid: _UNIT,
    top.Tanh: _SIGNED,
    top.L2Norm: _SIGNED,
}


def fixed_output(op: TopOp, scheme: Scheme) -> QuantType | None:
    """The type that the scheme fixes for the result of an op, or None."""
    name, storage = op.name.removeprefix("top."), scheme.activation
    own = {(kind, of): (scale, zero) for kind, of, scale, zero in scheme.fixed_outputs}
    usual = _FIXED.get(type(op), {}) if scheme.requant is Kind.DOUBLE_ROUNDING else {}
    scale, zero_point = own.get((name, storage)) or usual.get(storage, (0.0, 0))
    return QuantType.of(storage, scale, zero_point) if scale else None
