"""Arithmetic of two tensors under broadcasting, comparison, and choice."""

from __future__ import annotations

from typing import Any

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import add_parameters, mul_parameters
from npuc.export.tflite.arithmetic import check_kind
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.ending import ending
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm, exports
from npuc.ir import dtype_of, npu, top
from npuc.ir.dtypes import QuantType, quant_of

_FUSED: dict[type[Any], tuple[str, str]] = {
    top.Add: ("ADD", "AddOptions"),
    npu.Add: ("ADD", "AddOptions"),
    top.Sub: ("SUB", "SubOptions"),
    npu.Sub: ("SUB", "SubOptions"),
    top.Mul: ("MUL", "MulOptions"),
    npu.Mul: ("MUL", "MulOptions"),
    top.Div: ("DIV", "DivOptions"),
}
_SHIFTED = ("ADD", "SUB")
_COMPARISONS = {
    "equal": ("EQUAL", "EqualOptions"),
    "less": ("LESS", "LessOptions"),
    "less_equal": ("LESS_EQUAL", "LessEqualOptions"),
    "greater": ("GREATER", "GreaterOptions"),
    "greater_equal": ("GREATER_EQUAL", "GreaterEqualOptions"),
}


def _check(op: Any) -> None:
    """The integers are those that LiteRT derives from the scales."""
    types = [quant_of(value) for value in (op.a, op.b, op.y)]
    a, b, y = types
    assert isinstance(a, QuantType) and isinstance(b, QuantType) and isinstance(y, QuantType)
    check_kind(op.kind)
    if not a.dtype == b.dtype == y.dtype:
        raise NoTFLiteForm("its tensors have different element types", SCHEME)
    if a.dtype.name == "i16" and any((a.zero_point, b.zero_point, y.zero_point)):
        raise NoTFLiteForm("16-bit tensors have a zero point of 0 in TFLite", SCHEME)
    if isinstance(op, npu.Mul):
        scaling = mul_parameters(Kind.DOUBLE_ROUNDING, a.scale, b.scale, y.scale)
        assert scaling.multiplier is not None and scaling.shift is not None
        expected = (int(scaling.multiplier[0]), int(scaling.shift[0]))
    else:
        p = add_parameters(Kind.DOUBLE_ROUNDING, a.scale, b.scale, y.scale, width=8 * a.dtype.itemsize)
        expected = (p.left, p.multiplier_a, p.shift_a, p.multiplier_b, p.shift_b, p.multiplier, p.shift)  # type: ignore[assignment]
        if p.shift < 31:
            raise NoTFLiteForm("its result is too fine for TFLite, which only scales sums down")
    if tuple(op.parameters) != expected:
        raise NoTFLiteForm("its multipliers are not those that TFLite derives from its scales", SCHEME)


@exports(*_FUSED)
def arithmetic(op: Any, emit: TFLiteEmitter) -> None:
    """One operator, with its activation."""
    code, table = _FUSED[type(op)]
    if isinstance(op, npu.OutputStage):
        _check(op)
    elif code == "DIV" and not dtype_of(op.y.type).is_float:
        raise NoTFLiteForm("TFLite's quotient of integers is not npuc's")
    order = emit.common_order(op.a, op.b)
    options: dict[str, Any] = {}
    if code in _SHIFTED and dtype_of(op.y.type).name == "i16":
        options["PotScaleInt16"] = False
    end = ending(emit, op, order)
    emit.operator(
        code,
        [emit.broadcast(op.a, order), emit.broadcast(op.b, order)],
        [end.out],
        table,
        FusedActivationFunction=end.activation,
        **options,
    )
    end.finish()


@exports(top.Max, top.Min)
def extreme(op: Any, emit: TFLiteEmitter) -> None:
    """The larger or the smaller."""
    _simple(op, emit, "MAXIMUM" if isinstance(op, top.Max) else "MINIMUM", "MaximumMinimumOptions")


@exports(top.Pow)
def power(op: top.Pow, emit: TFLiteEmitter) -> None:
    """Both of one type."""
    if dtype_of(op.a.type) != dtype_of(op.b.type):
        raise NoTFLiteForm("its base and exponent have different element types")
    _simple(op, emit, "POW", "PowOptions")


@exports(top.Compare)
def compare(op: top.Compare, emit: TFLiteEmitter) -> None:
    """Booleans."""
    _simple(op, emit, *_COMPARISONS[op.mode])


@exports(top.Logical)
def logical(op: top.Logical, emit: TFLiteEmitter) -> None:
    """And, or."""
    if op.mode == "xor":
        _simple(op, emit, "NOT_EQUAL", "NotEqualOptions")
    else:
        name = op.mode.capitalize()
        _simple(op, emit, f"LOGICAL_{op.mode.upper()}", f"Logical{name}Options")


def _simple(op: Any, emit: TFLiteEmitter, code: str, table: str) -> None:
    order = emit.common_order(op.a, op.b)
    operands = [emit.broadcast(op.a, order), emit.broadcast(op.b, order)]
    emit.operator(code, operands, [emit.result(op.y, order)], table)


@exports(top.Where)
def where(op: top.Where, emit: TFLiteEmitter) -> None:
    """SELECT_V2 broadcasts as the program does."""
    order = emit.common_order(op.condition, op.a, op.b)
    operands = [emit.broadcast(value, order) for value in (op.condition, op.a, op.b)]
    emit.operator("SELECT_V2", operands, [emit.result(op.y, order)], "SelectV2Options")
