"""The values of a float network in the integer one: as integers of some type, as floats of the machine, as reals.

A value is made in a form when a rule first asks for it, and kept: two layers that read it share it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import SHORT_ACTIVATIONS
from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import is_power_of_two, requant_parameters
from npuc.arrays import Array
from npuc.calib.statistics import DEFAULT_BOUND
from npuc.ir import DType, Graph, Value, Weight, dtype_of, npu, tensor_type, top, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import QuantType, mlir_type, quant_of
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.lowering.registry import (
    NoIntegerForm,
)
from npuc.quant.lowering.scaling import flat, require_multipliers, require_room, span_of
from npuc.quant.parameters import (
    activation_type,
    output_limits,
    quantize_affine_weight,
    quantize_array,
    quantize_bias,
    quantize_weight,
)
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.type_assignment import Positions, Ranges, TypeAssignment, is_real


def _stored(dtype: DType) -> DType:
    """The type of a constant's elements: of fewer than 8 bits, files know weights alone."""
    return dtype.carrier if dtype.name in SHORT_ACTIVATIONS else dtype


class IntegerValues(TypeAssignment):
    """What lowering rules see of the new network: the old values in the forms that they ask for, and new ops."""

    rounding: str | None = None
    """How ties are rounded where reals become integers; None leaves it to the scheme."""

    def __init__(
        self, graph: Graph, ranges: Ranges, scheme_of: LayerSchemes, moved: Positions | None = None
    ) -> None:
        super().__init__(graph, ranges, scheme_of, moved)
        inputs = [(port.name, port.type) for port in graph.inputs]
        preprocess = {port.name: port.preprocess for port in graph.inputs if port.preprocess}
        self.graph = Graph.empty(inputs, graph.weights.copy(), preprocess)
        self.graph.take_names(graph)
        self.graph.states = graph.states
        self._real: dict[Value, Value] = dict(zip(graph.block.args, self.graph.block.args, strict=True))
        self._integer: dict[tuple[Value, Any], Value] = {}
        self._shared: dict[Any, Value] = {}
        """Values of the new graph that several rules use, by what they are."""
        self._given: Counter[str] = Counter()
        self._current = SCHEMES["int8"]
        """The scheme of the op that is being lowered."""
        self._views: dict[Value, QuantType] = {}
        """Types of operands of the op that is being lowered, where its scheme cannot work with their own."""

    def is_integer(self, value: Value) -> bool:
        """Whether an old value was made as integers, not quantized from reals."""
        integers = self._integer.get((value, self._types[value])) if value in self._types else None
        return integers is not None and not isinstance(integers.owner, npu.Quantize)

    def type_of(self, value: Value) -> Any:
        """The type of elements that a value of the old graph has: a `QuantType`, or bf16, f16 or f32."""
        return self._views.get(value) or self._own_type(value)

    def own_integers(self, value: Value) -> tuple[Array, float] | None:
        """The integers, less their zero point, and the one scale of a constant that the model quantized; else None."""
        return None

    def quantized_weight(
        self, value: Value, axis: int, scheme: Scheme, bias: Value | None, scale: float, least: float = 0.0
    ) -> tuple[Array, Array, int]:
        """A constant operand as integers, their scales (one, or one an entry of `axis`) and their zero point.

        `scale` is that of the other operand; no scale of the weights is to be below `least`.
        """
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm("its weights are computed at run time")
        _require_numbers(array, "its weights")
        if scheme.weight_scales == "affine":
            return quantize_affine_weight(array, scheme, self.constant(bias), scale, least)
        return (*quantize_weight(array, axis, scheme, self.constant(bias), scale, least), 0)

    def quantized_bias(self, value: Value, scale: float, weight_scale: Array, scheme: Scheme) -> Array:
        """A constant bias as integers of the scale of the sum, one or one a channel."""
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm("its bias is computed at run time")
        _require_numbers(array, "its biases")
        return quantize_bias(array, scale, weight_scale, scheme)

    def weight(
        self,
        name: str,
        array: np.ndarray[Any, Any],
        to: QuantType | None = None,
        dtype: DType | None = None,
    ) -> Value:
        """A new constant, under a quantized type if one is given; `dtype` is that of its elements if NumPy has none like it."""
        dtype = dtype or (None if to is None else _stored(to.dtype))
        op = self.graph.add_weight(name, array if dtype is None else Weight(dtype, array.shape, array))
        if to is not None:
            op = top.WeightOp.of(op.ref, tensor_type(array.shape, to))
        self.graph.block.add_op(op)
        return op.output

    def emit(self, op_class: type[TensorOp], /, *operands: Any, **properties: Any) -> Any:
        """Append an op to the new graph."""
        op = op_class.make(*operands, **properties)
        self.graph.block.add_op(op)
        return op

    def integer(self, value: Value, to: QuantType | None = None) -> Value:
        """An old value as integers: of its own type, or requantized to another."""
        array = self.constant(value)
        # A constant in a type that is asked for needs none of its own: minus infinity would have none.
        own = self._own_type(value) if array is None or to is None else to
        to = to or self._views.get(value) or own
        if not isinstance(to, QuantType):
            return self.short(value, to)
        if (value, to) in self._integer:
            return self._integer[value, to]
        if array is not None:
            scheme = self._current
            integers = quantize_array(array, to, scheme.constant_rounding, narrow=scheme.narrow_activations)
            quantized = self.weight(f"{value_name(value)}/quantized", integers, to)
        elif (value, own) in self._integer and isinstance(own, QuantType):
            quantized = self.requantized(self._integer[value, own], to, self.derived(value, "requantized"))
        else:
            quantized = self.rounded(value, self._exact(value), to)
        self._integer[value, to] = quantized
        return quantized

    def rounded(self, value: Value, real: Value, to: QuantType) -> Value:
        """The reals of an old value as integers of a type, none outside of its width or of a narrow range."""
        # Integers that NumPy has cross the border; those of fewer bits are made of them.
        border = QuantType.of(to.dtype.carrier, to.scale, to.zero_point)
        name = self.derived(value, "quantized")
        quantized: Value = self.emit(npu.Quantize, real, to=border, rounding=self._ties, name=name).y
        if border != to or (self._current.narrow_activations and to.dtype.limits[0] < 0):
            quantized = self.requantized(quantized, to, self.derived(value, "narrowed"))
        return quantized

    @property
    def _ties(self) -> str:
        """Away from zero, as TFLite rounds; to even under `float_scale`, as ONNX's QuantizeLinear does."""
        return self.rounding or ("half_even" if self._current.requant.has_scale else "half_away")

    def short(self, value: Value, to: Any) -> Value:
        """An old value as bf16, f16 or f32."""
        if (value, to) in self._integer:
            return self._integer[value, to]
        array, kind = self.constant(value), dtype_of(to)
        if array is not None:
            with np.errstate(over="ignore"):
                rounded = array.astype(np.float32).astype(kind.numpy)
            if not np.isfinite(rounded).all():
                raise NoIntegerForm(
                    f"{kind.name} does not hold all values of the constant '{value_name(value)}'"
                )
            if kind.name == "f32":
                return self.real(value)
            cast = self.weight(f"{value_name(value)}/{kind.name}", rounded)
        elif kind.name == "f32":
            return self.real(value)
        else:
            cast = self.emit(npu.Cast, self.real(value), to=to, name=self.derived(value, kind.name)).y
        self._integer[value, to] = cast
        return cast

    def widened(self, value: Value, to: Any) -> Value:
        """An old value as float32 that bf16 or f16 holds; constants, and what is not float32, as they are."""
        if self.constant(value) is not None or not is_real(value):
            return self.real(value)
        if self._types.get(value) == to and (value, to) in self._integer and value not in self._real:
            return self.real(value)
        if (value, "wide", to) not in self._shared:
            name = self.derived(value, "rounded")
            wide = mlir_type("f32")
            self._shared[value, "wide", to] = self.emit(npu.Cast, self.short(value, to), to=wide, name=name).y
        return self._shared[value, "wide", to]

    def shared_weight(self, name: str, array: Array, to: QuantType | None = None) -> Value:
        """A constant that equal ones share, under a quantized type if one is given."""
        key = (name, array.shape, array.tobytes(), to)
        if key not in self._shared:
            self._given[name] += 1
            count = self._given[name] - 1
            self._shared[key] = self.weight(f"{name}.{count}" if count else name, array, to)
        return self._shared[key]

    def joined(self, value: Value, to: QuantType) -> Value:
        """An operand of a concatenation in the type of the result."""
        return self.integer(value, to)

    def mask(self, value: Value, to: QuantType) -> Value:
        """An old boolean as integers: 1 where it is true, and 0 elsewhere, of a type whose scale is 1."""
        array, own = self.constant(value), self._types.get(value)
        if array is not None:
            return self.integer(value, to)
        if own is not None and (value, own) in self._integer:
            return self.integer(value, to)
        if (value, to) not in self._integer:
            real = self.emit(top.Cast, self.real(value), to="f32", name=self.derived(value, "mask")).y
            name = self.derived(value, "quantized")
            self._integer[value, to] = self.emit(npu.Quantize, real, to=to, rounding=self._ties, name=name).y
        return self._integer[value, to]

    def derived(self, value: Value, what: str) -> str:
        """A name for another form of an old value, given once."""
        name = f"{value_name(value)}/{what}"
        self._given[name] += 1
        return name if self._given[name] == 1 else f"{name}.{self._given[name] - 1}"

    def requantized(self, value: Value, to: QuantType, name: str) -> Value:
        """An integer value of the new graph under another type."""
        source = quant_of(value)
        assert source is not None
        kind = self._current.requant
        if kind is Kind.POW2 and not is_power_of_two(source.scale / to.scale):
            kind = Kind.SINGLE_ROUNDING
        if kind is Kind.POW2 and to.scale / source.scale > (reach := 2.0**self._current.max_shift):
            # One shift does not get there: several do.
            nearer = QuantType.of(source.dtype, source.scale * reach, source.zero_point)
            value, source = self.requantized(value, nearer, f"{name}/shifted"), nearer
        try:
            scaling = requant_parameters(kind, source.scale, to.scale, **self._current.stage)
        except ValueError as error:
            raise NoIntegerForm(str(error)) from error
        require_multipliers(scaling, 2.0 ** (8 * source.dtype.itemsize) * source.scale / to.scale)
        require_room(scaling, span_of(source))
        parameters = flat(scaling)
        lo, hi = output_limits(to, narrow=self._current.narrow_activations)
        rescaled: Value = self.emit(
            npu.Requant, value, to=to, kind=kind, lo=lo, hi=hi, name=name, **parameters
        ).y
        return rescaled

    def _own_type(self, value: Value) -> Any:
        if value in self._types:
            return self._types[value]
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm(f"its operand '{value_name(value)}' has no quantized type")
        if self._current.has_no_integers:
            return self._ranged(value, self._current)
        low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        _require_numbers(np.array([low, high]), f"the values of its operand '{value_name(value)}'")
        self._types[value] = activation_type(low, high, self._current)
        return self._types[value]

    def _exact(self, value: Value) -> Value:
        """An old value as the reals that it is quantized from."""
        return self.real(value)

    def real(self, value: Value) -> Value:
        """An old value as real numbers (or whatever plain type it had)."""
        if value not in self._real:
            array = self.constant(value)
            if array is not None:
                owner = value.owner
                assert isinstance(owner, top.WeightOp)
                copy = top.WeightOp.of(owner.ref, owner.output.type)
                self.graph.block.add_op(copy)
                self._real[value] = copy.output
            else:
                own = self._types[value]
                integers, name = self._integer[value, own], f"{value_name(value)}/real"
                kind = npu.Dequantize if isinstance(own, QuantType) else npu.Cast
                self._real[value] = self.emit(kind, integers, to=mlir_type("f32"), name=name).y
                if dtype_of(value.type).name == "i1":
                    truth = self.emit(
                        top.Cast, self._real[value], to="i1", name=self.derived(value, "truth")
                    ).y
                    self._real[value] = truth
        return self._real[value]

    def packed(self, value: Value, axis: int, kind: str) -> Value:
        """An old value as packed blocks along an axis that is innermost in memory."""
        key = (value, axis, kind)
        if key not in self._shared:
            self._shared[key] = self.emit(
                npu.BlockPack,
                self.real(value),
                to=mlir_type("ui8"),
                axis=axis,
                format=kind,
                name=self.derived(value, kind),
            ).y
        return self._shared[key]


def _require_numbers(array: Array, what: str) -> None:
    """Refuse NaN, infinity and the like: differences of such numbers (1e38 * mask - 1e38) are lost in integers."""
    if not (np.abs(array) < DEFAULT_BOUND).all():
        raise NoIntegerForm(f"{what} are not all within ±{DEFAULT_BOUND:g}")
