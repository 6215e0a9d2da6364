"""Types of tensors in the IR: the MLIR type of every element type, and quantized types.

Types that MLIR has no builtin for (strings, and ONNX's rarer ones) are `!top.opaque<"name">`, so that an op on them can
still travel through the IR on its way to the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from xdsl.dialects import builtin
from xdsl.dialects.builtin import (
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
    TensorType,
    UnrankedTensorType,
    f64,
    i64,
)
from xdsl.ir import Attribute, BlockArgument, OpResult, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.utils.exceptions import VerifyException

from npuc.arithmetic import dtypes
from npuc.arithmetic.dtypes import DType

DYNAMIC = builtin.DYNAMIC_INDEX
"""The size of a dimension that is not known at compile time."""


@irdl_attr_definition
class OpaqueType(ParametrizedAttribute, TypeAttribute):
    """`!top.opaque<"string">`: an element type that only the CPU understands."""

    name = "top.opaque"

    kind: StringAttr


@irdl_attr_definition
class QuantType(ParametrizedAttribute, TypeAttribute):
    """`!npu.q<i8, 0.02 : f64, -3 : i64>`: integers that stand for real = scale * (q - zero_point)."""

    name = "npu.q"

    storage: IntegerType
    scale_attr: FloatAttr[Float64Type]
    zero_point_attr: IntegerAttr[IntegerType]

    @staticmethod
    def of(dtype: Any, scale: float, zero_point: int = 0) -> QuantType:
        """The type of a storage dtype, a scale and a zero point."""
        storage = mlir_type(dtype_of(dtype))
        assert isinstance(storage, IntegerType)
        return QuantType(storage, FloatAttr(float(scale), f64), IntegerAttr(int(zero_point), i64))

    @property
    def scale(self) -> float:
        """The real step between neighbouring integers."""
        return self.scale_attr.value.data

    @property
    def zero_point(self) -> int:
        """The integer that stands for zero."""
        return self.zero_point_attr.value.data

    @property
    def dtype(self) -> DType:
        """The storage type."""
        return dtype_of(self)

    def verify(self) -> None:
        """The scale is positive and finite, and the zero point can be stored."""
        if not 0.0 < self.scale < float("inf"):
            raise VerifyException(f"a scale of {self.scale} is not positive and finite")
        lo, hi = self.dtype.limits
        if not lo <= self.zero_point <= hi:
            raise VerifyException(f"the zero point {self.zero_point} does not fit {self.dtype.name}")


def _uint(width: int) -> IntegerType:
    return IntegerType(width, Signedness.UNSIGNED)


def _opaque(kind: str) -> OpaqueType:
    return OpaqueType(StringAttr(kind))


_TYPES: dict[str, Attribute] = {
    "f32": builtin.f32,
    "ui8": _uint(8),
    "i8": IntegerType(8),
    "ui16": _uint(16),
    "i16": IntegerType(16),
    "i32": IntegerType(32),
    "i64": IntegerType(64),
    "string": _opaque("string"),
    "i1": IntegerType(1),
    "f16": builtin.f16,
    "f64": builtin.f64,
    "ui32": _uint(32),
    "ui64": _uint(64),
    "complex64": _opaque("complex64"),
    "complex128": _opaque("complex128"),
    "bf16": builtin.bf16,
    "f8E4M3FN": builtin.Float8E4M3FNType(),
    "f8E4M3FNUZ": builtin.Float8E4M3FNUZType(),
    "f8E5M2": builtin.Float8E5M2Type(),
    "f8E5M2FNUZ": builtin.Float8E5M2FNUZType(),
    "ui4": _uint(4),
    "i4": IntegerType(4),
    "f4E2M1FN": builtin.Float4E2M1FNType(),
    "f8E8M0FNU": builtin.Float8E8M0FNUType(),
    "ui2": _uint(2),
    "i2": IntegerType(2),
    "f6E2M3FN": builtin.Float6E2M3FNType(),
    "f6E3M2FN": builtin.Float6E3M2FNType(),
}
_TYPES |= {dtype.name: IntegerType(dtype.bits) for dtype in dtypes.NARROW}
_BY_TYPE = {kind: dtypes.dtype_of(name) for name, kind in _TYPES.items()}
_BY_STORAGE = {kind: dtypes.activation_dtype(dtype) for kind, dtype in _BY_TYPE.items()}


def mlir_type(dtype: DType | str) -> Attribute:
    """An element type as MLIR writes it.

    >>> str(mlir_type("ui8"))
    'ui8'
    """
    return _TYPES[dtype if isinstance(dtype, str) else dtype.name]


def dtype_of(key: Any) -> DType:
    """Find a `DType` by its name, NumPy dtype, ONNX number or MLIR type; `KeyError` if there is none.

    A quantized type gives the type of its integers.

    >>> dtype_of("f32").numpy
    dtype('float32')
    """
    if type(key) is TensorType or isinstance(
        key, Attribute
    ):  # the first is asked for often, and answered soon
        element = key.element_type if isinstance(key, TensorType | UnrankedTensorType) else key
        return _BY_STORAGE[element.storage] if type(element) is QuantType else _BY_TYPE[element]
    return dtypes.dtype_of(key)


def tensor_type(shape: Sequence[int] | None, dtype: Any) -> Attribute:
    """`tensor<...>` of a shape and an element type; `shape=None` is an unknown rank.

    >>> str(tensor_type((1, 3), "f32"))
    'tensor<1x3xf32>'
    """
    element = dtype if isinstance(dtype, QuantType) else mlir_type(dtype_of(dtype))
    return _tensor_type(None if shape is None else tuple(map(int, shape)), element)


@lru_cache(maxsize=1 << 14)
def _tensor_type(shape: tuple[int, ...] | None, element: Attribute) -> Attribute:
    # Types are values: one object serves all that are equal, and is checked once.
    return UnrankedTensorType(element) if shape is None else TensorType(element, shape)


def quant_of(value: Any) -> QuantType | None:
    """The quantized element type of a value or a tensor type; None if its elements are plain."""
    kind = _type_of(value)
    element = kind.element_type if isinstance(kind, TensorType) else None
    return element if type(element) is QuantType else None


def _type_of(value: Any) -> Any:
    """The type of a value, or the type that is given for one."""
    return (
        value.type if type(value) in (OpResult, BlockArgument) or not isinstance(value, Attribute) else value
    )


def is_narrow_float(kind: Any) -> bool:
    """True for the element types bf16 and f16."""
    return isinstance(kind, builtin.BFloat16Type | builtin.Float16Type)


def is_machine_float(kind: Any) -> bool:
    """True for the element types that float instructions compute with: bf16, f16 and f32."""
    return is_narrow_float(kind) or isinstance(kind, builtin.Float32Type)


def element_of(value: Any) -> Attribute:
    """The element type of a value as it stands, quantized or plain."""
    return quant_of(value) or mlir_type(dtype_of(value.type))


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a value or a tensor type; its rank must be known."""
    kind = _type_of(value)
    if not isinstance(kind, TensorType):
        raise TypeError(f"a tensor of known rank was expected, not {kind}")
    return tuple([size.data for size in kind.shape.data])


def is_ranked(value: Any) -> bool:
    """True if the value is a tensor of known rank."""
    return isinstance(_type_of(value), TensorType)


def is_static(value: Any) -> bool:
    """True if the value is a tensor whose every dimension is known."""
    kind = _type_of(value)
    return isinstance(kind, TensorType) and DYNAMIC not in kind.get_shape()
