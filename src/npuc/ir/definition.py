"""How a `top` op is defined: a class that states operands, properties, and the types of its results.

    @top_op
    class LeakyRelu(Unary):
        '''y = x if x > 0 else alpha * x'''
        name = "top.leaky_relu"
        alpha: float = number(0.01)

That is all: parsing, printing, building, verification, shape inference and the table in `docs/` come from it.
Properties read as plain Python values. `infer()` is the op's shape inference, and its verifier compares the types
with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, ClassVar, Self, TypeVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    f64,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, OpResult, SSAValue, SSAValues
from xdsl.irdl import (
    AttrSizedOperandSegments,
    BaseAttr,
    IRDLOperation,
    OpDef,
    OptOperandDef,
    VarOperandDef,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.irdl.operations import get_accessors_from_op_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from npuc.arithmetic.kinds import Kind
from npuc.ir.attributes import to_attribute, to_native
from npuc.ir.dtypes import is_static, shape_of
from npuc.ir.names import describe, location
from npuc.registries import Registry

Tensor = BaseAttr(TensorType)

TOP_OPS: Registry[str, type[TopOp]] = Registry("an op")
"""Every op of the `top` dialect by its name, filled by `top_op`."""

_REQUIRED: Any = object()


def _property(constraint: Any, default: Any, convert: Callable[[Any], Attribute]) -> Any:
    field: Any = prop_def(constraint) if default is _REQUIRED else opt_prop_def(constraint)
    field.npuc_default = default
    field.npuc_convert = convert
    return field


def _integer_array(values: Sequence[int]) -> Attribute:
    return _integers(tuple(map(int, values)))


@lru_cache(maxsize=1 << 14)
def _integers(values: tuple[int, ...]) -> Attribute:
    return DenseArrayBase.from_list(i64, list(values))


@lru_cache(maxsize=1 << 10)
def _segments(sizes: tuple[int, ...]) -> Attribute:
    return DenseArrayBase.from_list(i32, list(sizes))


def _float_array(values: Sequence[float]) -> Attribute:
    return ArrayAttr([FloatAttr(float(value), f64) for value in values])


def _text_array(values: Sequence[str]) -> Attribute:
    return ArrayAttr([StringAttr(value) for value in values])


def integer(default: int = _REQUIRED) -> int:
    """A property that reads as an `int`."""
    return cast(int, _property(IntegerAttr, default, lambda value: to_attribute(int(value))))


def boolean(default: bool = _REQUIRED) -> bool:
    """A property that reads as a `bool`."""
    return cast(bool, _property(IntegerAttr, default, lambda value: to_attribute(bool(value))))


def number(default: float = _REQUIRED) -> float:
    """A property that reads as a `float`."""
    return cast(float, _property(FloatAttr, default, lambda value: to_attribute(float(value))))


def text(default: str = _REQUIRED) -> str:
    """A property that reads as a `str`."""
    return cast(str, _property(StringAttr, default, to_attribute))


def requantization() -> Kind:
    """A property that is a requantization kind; files have its older spelling, and both are read.

    A name that is no kind reads as it is, for the op to refuse it.
    """
    field = _property(StringAttr, _REQUIRED, lambda value: StringAttr(_kind(str(value), "spelling")))
    field.npuc_read = lambda attribute: _kind(attribute.data)
    return cast(Kind, field)


@cache
def _kind(name: str, of: str = "") -> Any:
    try:
        kind = Kind(name)
    except ValueError:
        return name
    return getattr(kind, of) if of else kind


def symbol() -> str:
    """A property that is a symbol reference, `@name`, and reads as a `str`."""
    return cast(str, _property(SymbolRefAttr, _REQUIRED, SymbolRefAttr))


def integers(default: Sequence[int] = _REQUIRED) -> tuple[int, ...]:
    """A property that reads as a tuple of integers."""
    return cast("tuple[int, ...]", _property(DenseArrayBase, default, _integer_array))


def numbers(default: Sequence[float] = _REQUIRED) -> tuple[float, ...]:
    """A property that reads as a tuple of floats."""
    return cast("tuple[float, ...]", _property(ArrayAttr, default, _float_array))


def texts(default: Sequence[str] = _REQUIRED) -> tuple[str, ...]:
    """A property that reads as a tuple of strings."""
    return cast("tuple[str, ...]", _property(ArrayAttr, default, _text_array))


def element_type() -> Attribute:
    """A property that is an element type, and reads as one."""
    field = _property(Attribute, _REQUIRED, lambda value: value)
    field.npuc_read = lambda attribute: attribute
    return cast(Attribute, field)


def dictionary(default: dict[str, Any] = _REQUIRED) -> dict[str, Any]:
    """A property that reads as a dictionary."""
    return cast("dict[str, Any]", _property(DictionaryAttr, default, to_attribute))


def operand() -> SSAValue:
    """A tensor operand."""
    return operand_def(Tensor)


def optional_operand() -> SSAValue | None:
    """A tensor operand that may be absent."""
    return opt_operand_def(Tensor)


def operands() -> Sequence[SSAValue]:
    """Any number of tensor operands."""
    return var_operand_def(Tensor)


def result() -> SSAValue:
    """The tensor result."""
    return result_def(Tensor)


def results() -> Sequence[SSAValue]:
    """Any number of results."""
    return var_result_def(Tensor)


class TensorOp(IRDLOperation, ABC):
    """Base of all ops of npuc's dialects: pure functions of tensors with static shapes."""

    traits = traits_def(Pure())

    DEFAULTS: ClassVar[dict[str, Any]] = {}
    """Property name to default value, for the properties that have one."""

    DEFAULT_ATTRIBUTES: ClassVar[dict[str, Attribute]] = {}
    """The same as attributes."""

    CONVERTERS: ClassVar[dict[str, Callable[[Any], Attribute]]] = {}
    """Property name to the function that makes its attribute of a Python value."""

    @classmethod
    def attribute_of(cls, key: str, value: Any) -> Attribute:
        """The attribute that property `key` has for a Python value."""
        return value if isinstance(value, Attribute) else cls.CONVERTERS[key](value)

    @abstractmethod
    def infer(self) -> Sequence[Attribute]:
        """The result types, from operand types and properties. Raises `ShapeError` where they cannot fit."""

    def check(self) -> None:
        """Further rules of the op, beyond its types; raises `ShapeError`."""

    @classmethod
    def make(
        cls,
        *values: SSAValue | Sequence[SSAValue] | None,
        name: str | Sequence[str] = "",
        layer: str | None = None,
        loc: Attribute | None = None,
        **properties: Any,
    ) -> Self:
        """Build the op: one argument an operand (None if absent, a list if variadic), properties by keyword.

        The result types are inferred. `name` names the results, `layer` the node they come from; `loc` copies the
        names of another op (`loc=other.location`).
        """
        definition = cls.get_irdl_definition()
        attributes: dict[str, Attribute] = {}
        for key in definition.properties:
            if key in properties:
                attributes[key] = cls.attribute_of(key, properties.pop(key))
            elif key in cls.DEFAULT_ATTRIBUTES:
                attributes[key] = cls.DEFAULT_ATTRIBUTES[key]
        if properties:
            raise TypeError(f"{cls.name} has no property {', '.join(properties)}")
        flat: list[SSAValue] = []
        sizes: list[int] = []
        if len(values) > len(definition.operands):
            raise TypeError(f"{cls.name} takes {len(definition.operands)} operands, not {len(values)}")
        for index, (_, kind) in enumerate(definition.operands):
            value = values[index] if index < len(values) else None
            group: list[SSAValue]
            if isinstance(kind, OptOperandDef):
                group = [] if value is None else [cast(SSAValue, value)]
            elif isinstance(kind, VarOperandDef):
                group = list(cast("Sequence[SSAValue]", value or ()))
            else:
                group = [cast(SSAValue, value)]
            flat.extend(group)
            sizes.append(len(group))
        if any(isinstance(option, AttrSizedOperandSegments) for option in definition.options):
            attributes["operandSegmentSizes"] = _segments(tuple(sizes))
        op = cls.create(
            operands=flat,
            properties=attributes,
            location=cast(Any, loc if loc is not None else location(name, layer)),
        )
        op.results = SSAValues(OpResult(kind, op, index) for index, kind in enumerate(op.infer()))
        return op

    def verify_(self) -> None:
        """Types are those that `infer` gives, and the rules of `check` hold."""
        for value in self.operands:
            if not is_static(value.type):
                raise VerifyException(f"{describe(self)}: operand of type {value.type} is not static")
        try:
            expected = tuple(self.infer())
            self.check()
        except ShapeError as error:
            raise VerifyException(f"{describe(self)}: {error}") from error
        actual = tuple(value.type for value in self.results)
        if actual != expected:
            raise VerifyException(
                f"{describe(self)}: results are {_list(actual)}, but its operands and properties give {_list(expected)}"
            )

    def native_properties(self) -> dict[str, Any]:
        """All properties as Python values, defaults filled in, in the order of definition."""
        native = {}
        for key in self.get_irdl_definition().properties:
            if key in self.properties:
                native[key] = to_native(self.properties[key])
            elif key in self.DEFAULTS:
                native[key] = self.DEFAULTS[key]
        return native


class TopOp(TensorOp):
    """Base of all ops of the `top` dialect."""


class ShapeError(ValueError):
    """Operands or properties of an op do not fit together; the text says how."""


def require(condition: bool, message: str) -> None:
    """Raise `ShapeError(message)` unless the condition holds."""
    if not condition:
        raise ShapeError(message)


def _list(types: Sequence[Attribute]) -> str:
    return ", ".join(str(kind) for kind in types) or "none"


def _reader(key: str, default: Any, native: Callable[[Attribute], Any]) -> property:
    def read(self: Operation) -> Any:
        attribute = self.properties.get(key)
        return default if attribute is None else native(attribute)

    return property(read)


_TensorOpT = TypeVar("_TensorOpT", bound=TensorOp)
_TopOpT = TypeVar("_TopOpT", bound=TopOp)


def top_op(cls: type[_TopOpT]) -> type[_TopOpT]:
    """Class decorator that makes a `top` op of the class and registers it."""
    return define_op(cls, TOP_OPS)


def define_op(cls: type[_TensorOpT], registry: Registry[str, Any]) -> type[_TensorOpT]:
    """Make an op of a class that states operands, properties and results, and register it by its name."""
    defaults: dict[str, Any] = {}
    converters: dict[str, Callable[[Any], Attribute]] = {}
    readers: dict[str, Callable[[Attribute], Any]] = {}
    for base in reversed(cls.__mro__):
        for key, field in _stated_by(base) if base is cls else _properties_of(base):
            default = getattr(field, "npuc_default", _REQUIRED)
            if default is not _REQUIRED:
                defaults[key] = tuple(default) if isinstance(default, list) else default
            converters[key] = field.npuc_convert
            readers[key] = getattr(field, "npuc_read", to_native)
    # What `irdl_op_definition` does, but with the fields of base classes first: the operand x of `Unary` comes before
    # those that a subclass adds.
    definition = OpDef.from_pyrdl(cls)
    stated = {key for key, _ in definition.operands} | definition.properties.keys()
    order = [key for base in reversed(cls.__mro__) for key in vars(base) if key in stated]
    rank = {key: index for index, key in reversed(list(enumerate(order)))}
    definition.operands.sort(key=lambda item: rank[item[0]])
    definition.properties = dict(
        sorted(definition.properties.items(), key=lambda item: rank.get(item[0], len(rank)))
    )
    for key, accessor in get_accessors_from_op_def(definition, getattr(cls, "verify_", None)).items():
        setattr(cls, key, accessor)
    for key in definition.properties:
        if key in converters:
            setattr(cls, key, _reader(key, defaults.get(key), readers[key]))
    cls.DEFAULTS = defaults
    cls.CONVERTERS = converters
    cls.DEFAULT_ATTRIBUTES = {key: converters[key](value) for key, value in defaults.items()}
    registry.add([cls.name], cls, module=cls.__module__)
    return cls


def _stated_by(cls: type) -> tuple[tuple[str, Any], ...]:
    """The properties that a class states itself; once it is an op, it has readers in their places."""
    return tuple((key, field) for key, field in vars(cls).items() if hasattr(field, "npuc_convert"))


_properties_of = cache(_stated_by)
"""The same for bases, which many ops have in common."""


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape of tensors under NumPy's broadcasting rule.

    >>> broadcast((3, 1), (1, 4))
    (3, 4)
    """
    rank = max((len(shape) for shape in shapes), default=0)
    out: list[int] = []
    for axis in range(rank):
        sizes = {shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0}
        sizes.discard(1)
        require(len(sizes) <= 1, f"shapes {' and '.join(map(str, map(list, shapes)))} do not broadcast")
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def normal_axis(axis: int, rank: int) -> int:
    """A non-negative axis; `ShapeError` if it is out of range."""
    require(-rank <= axis < max(rank, 1), f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


__all__ = [
    "TOP_OPS",
    "AttrSizedOperandSegments",
    "ShapeError",
    "TensorOp",
    "TopOp",
    "boolean",
    "broadcast",
    "define_op",
    "dictionary",
    "element_type",
    "integer",
    "integers",
    "normal_axis",
    "number",
    "numbers",
    "operand",
    "operands",
    "optional_operand",
    "requantization",
    "require",
    "result",
    "results",
    "shape_of",
    "symbol",
    "text",
    "texts",
    "top_op",
]
