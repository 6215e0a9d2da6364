"""How an `npu` op is defined: like a `top` op, with its result's element type as a property.

`to` is the type of the result's elements, scale and zero point included. `OutputStage` is shared by all ops that end in
y = sat(zero_point + rq(acc), lo, hi): its parameters are what docs/arithmetic.md says, so the op's meaning needs no
target to be known.
"""

from __future__ import annotations

from typing import Any, TypeVar

from xdsl.ir import Attribute

from npuc.arithmetic.kinds import Kind
from npuc.ir.definition import TensorOp, define_op, element_type, integer, requantization, require
from npuc.ir.dtypes import QuantType, quant_of
from npuc.registries import Registry

NPU_OPS: Registry[str, type[NpuOp]] = Registry("an op")
"""Every op of the `npu` dialect by its name, filled by `npu_op`."""


class NpuOp(TensorOp):
    """Base of all ops of the `npu` dialect."""

    to: Attribute = element_type()


def check_kind(kind: Kind) -> None:
    """A kind that there is."""
    require(isinstance(kind, Kind), f"kind '{kind}' is not one of {', '.join(Kind)}")


class OutputStage(NpuOp):
    """An op that ends in y = sat(zero_point + rq(acc), lo, hi); `lo` and `hi` hold a fused relu."""

    kind: Kind = requantization()
    lo: int = integer()
    hi: int = integer()

    def check(self) -> None:
        """A known kind, and limits that fit the result."""
        check_kind(self.kind)
        if isinstance(self.to, QuantType):
            least, most = self.to.dtype.limits
            require(
                least <= self.lo <= self.hi <= most, f"limits {self.lo} to {self.hi} for {self.to.dtype.name}"
            )


_NpuOpT = TypeVar("_NpuOpT", bound=NpuOp)


def npu_op(cls: type[_NpuOpT]) -> type[_NpuOpT]:
    """Class decorator that makes an `npu` op of the class and registers it."""
    return define_op(cls, NPU_OPS)


def quantized(value: Any) -> QuantType:
    """The quantized type of an operand; `ShapeError` if its elements are plain."""
    kind = quant_of(value)
    require(kind is not None, f"an operand of type {value.type} is not quantized")
    assert kind is not None
    return kind
