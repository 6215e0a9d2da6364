"""A value of a network that is being built: an input, a constant, or the result of an op.

Tensors are immutable and belong to no network: `build` collects what its outputs need. So parts can be written as
plain functions of tensors, and one part can serve several networks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from npuc.arrays import Array
from npuc.errors import NetworkError
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, Value, dtype_of, shape_of, tensor_type

_ORDER = itertools.count()


@dataclass(frozen=True, eq=False)
class NetworkNode:
    """What makes tensors: an op and the tensors that it takes. An input and a constant have no op."""

    kind: Literal["input", "constant", "op"]
    name: str
    op: Any = None
    operands: tuple[Tensor, ...] = ()
    data: Array | None = None
    preprocess: Preprocess | None = None
    holder: Graph | None = None
    """What keeps the value of an input alive."""
    order: int = field(default_factory=lambda: next(_ORDER))
    """Ops keep the order in which they were made."""


@dataclass(frozen=True, eq=False, repr=False)
class Tensor:
    """A tensor of known shape and type; arithmetic works as in NumPy."""

    value: Value
    node: NetworkNode
    index: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes; images are batch x channels x rows x columns."""
        return shape_of(self.value)

    @property
    def dtype(self) -> str:
        """The element type, such as `f32` or `i8`."""
        return dtype_of(self.value.type).name

    @property
    def name(self) -> str:
        """The name that the user gave; empty until `build` finds one."""
        return self.node.name

    @property
    def data(self) -> Array | None:
        """The values of a constant."""
        return self.node.data

    def __repr__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        return f"<Tensor{name} {self.dtype} {list(self.shape)}>"

    def __add__(self, other: Operand) -> Tensor:
        return _op("add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return _op("add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return _op("sub", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return _op("sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return _op("mul", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return _op("mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return _op("div", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return _op("div", other, self)

    def __matmul__(self, other: Operand) -> Tensor:
        return _op("matmul", self, other)

    def __neg__(self) -> Tensor:
        return _op("neg", self)

    # NumPy would otherwise take an array on the left as one operand of many.
    __array_ufunc__ = None

    def __getitem__(self, key: Any) -> Tensor:
        from npuc.lang.indexing import take

        return take(self, key)


Operand = Tensor | Array | np.number[Any] | float | Sequence[float]
"""What an op takes: a tensor, or anything that becomes a constant."""


def _op(name: str, *operands: Operand) -> Tensor:
    from npuc.lang import ops

    result: Tensor = getattr(ops, name)(*operands)
    return result


def input(
    name: str, shape: Sequence[int], dtype: str = "f32", *, preprocess: Preprocess | None = None
) -> Tensor:
    """An input of the network; `preprocess` says how an image becomes it, and travels with the network."""
    if not name:
        raise NetworkError("an input needs a name")
    sizes = tuple(int(size) for size in shape)
    if any(size < 1 for size in sizes):
        raise NetworkError(f"the shape {list(sizes)} has a size below 1", where=f"input '{name}'")
    if preprocess is not None:
        preprocess.check(sizes)
    holder = Graph.empty([(name, tensor_type(sizes, dtype_of(dtype)))])
    return Tensor(holder.block.args[0], NetworkNode("input", name, preprocess=preprocess, holder=holder))


def constant(
    data: Operand,
    *,
    name: str = "",
    dtype: str | None = None,
    scale: float | Sequence[float] | None = None,
    zero_point: int | Sequence[int] = 0,
    axis: int = 0,
) -> Tensor:
    """A constant. With a `scale`, integers stand for (data - zero_point) * scale, a scale each index of `axis` if
    there are several: such weights are taken into the integer network as they are.

    >>> constant([1, 2, 3]).dtype
    'f32'
    """
    if isinstance(data, Tensor):
        raise NetworkError(f"{data!r} is a tensor already, not data for a constant")
    array = np.asarray(data)
    element_type = dtype_of(dtype).numpy if dtype else np.dtype(np.float32)
    if dtype or not isinstance(data, (np.ndarray, np.number)) or array.dtype == np.float64:
        array = array.astype(element_type)
    array = np.ascontiguousarray(array).reshape(array.shape)
    array.flags.writeable = False
    holder = Graph.empty([(name, tensor_type(array.shape, dtype_of(array.dtype)))])
    integers = Tensor(holder.block.args[0], NetworkNode("constant", name, data=array, holder=holder))
    if scale is None:
        return integers
    scales, zeros = _parameters(scale, zero_point, array.dtype)
    from npuc.lang import ops

    return ops.dequantize(integers, scales, zeros, axis=axis, name=name and f"{name}/dequantized")


def quantized(
    x: Operand,
    scale: float | Sequence[float],
    zero_point: int | Sequence[int] = 0,
    *,
    dtype: str = "i8",
    axis: int = 1,
    name: str = "",
) -> Tensor:
    """The tensor rounded to integers of these parameters, and back: the quantizer takes them as they are.

    A network where every tensor has its parameters needs no calibration.
    """
    from npuc.lang import ops

    scales, zeros = _parameters(scale, zero_point, dtype_of(dtype).numpy)
    integers = ops.quantize(x, scales, zeros, axis=axis, to=dtype, name=name and f"{name}/integers")
    return ops.dequantize(integers, scales, zeros, axis=axis, name=name)


def _parameters(
    scale: float | Sequence[float], zero_point: int | Sequence[int], dtype: Any
) -> tuple[Array, Array]:
    scales = np.asarray(scale, np.float32)
    if not np.isfinite(scales).all() or (scales <= 0).any():
        raise NetworkError("a scale has to be a finite number above 0")
    zeros = np.broadcast_to(np.asarray(zero_point), scales.shape)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        if (zeros < limits.min).any() or (zeros > limits.max).any():
            raise NetworkError(f"a zero point is outside {limits.min} .. {limits.max}")
    return scales, zeros.astype(dtype)
