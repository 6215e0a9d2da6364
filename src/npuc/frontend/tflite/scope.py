"""What tensors mean while a model is imported, and what a rule sees of it.

A tensor means a constant or a value, in one or both layouts (`npuc.frontend.tflite.layout`). One that the model
quantizes is held as its integers; `real` gives the reals that they stand for, with the model's own scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError, UnsupportedOpError
from npuc.frontend.support import Names
from npuc.frontend.tflite.layout import TO_NCHW, TO_PLAIN, Laid
from npuc.frontend.tflite.reader import Operator, Quantization, Subgraph, Tensor
from npuc.frontend.tflite.view import View
from npuc.ir import DType, Graph, Value, Weight, dtype_of, is_static, location, shape_of, top
from npuc.ir.definition import TopOp

ACTIVATIONS = ("i8", "ui8", "i16")
"""Element types whose integers stand for reals in activations."""
_OpT = TypeVar("_OpT", bound=TopOp)


@dataclass
class Meaning:
    """A tensor under way: its value by layout (the key is `nchw`), and the reals behind it."""

    values: dict[bool, Value] = field(default_factory=dict)
    reals: dict[bool, Value] = field(default_factory=dict)


class Scope:
    """Tensors and what they mean; `graph` is where ops are appended."""

    def __init__(self, graph: Graph, subgraph: Subgraph, weights: dict[int, Weight]) -> None:
        self.graph = graph
        self.tensors = subgraph.tensors
        self.weights = weights
        """The constants: those of the file, and those that were computed from them."""
        self.meanings: dict[int, Meaning] = {}
        self._literals: dict[Any, Value] = {}
        self.names = Names()

    def unique(self, name: str) -> str:
        """A name that no value has yet."""
        return self.names.unique(name)

    def append(self, op: TopOp, name: str) -> Value:
        """Append an op of one result under a name."""
        op.location = location(self.unique(name))  # type: ignore[assignment]
        self.graph.block.add_op(op)
        return op.results[0]

    def literal(self, array: Array, name: str) -> Value:
        """A constant of the importer's own."""
        op = self.graph.add_weight(self.unique(name), array)
        self.graph.block.add_op(op)
        return op.output

    def define(self, index: int, laid: Laid) -> None:
        """Give a tensor its value."""
        self.meanings[index] = Meaning({laid.nchw: laid.value})

    def is_defined(self, index: int) -> bool:
        """True if a tensor has a value or is constant."""
        return index in self.meanings or index in self.weights

    def value(self, index: int, nchw: bool = False) -> Value:
        """A tensor in a layout."""
        name = self.tensors[index].name
        meaning = self.meanings.setdefault(index, Meaning())
        if nchw not in meaning.values:
            weight = self.weights.get(index)
            if weight is not None:
                held = weight.array().transpose(TO_NCHW) if nchw else weight
                op = self.graph.add_weight(self.unique(name), held)
                self.graph.block.add_op(op)
                meaning.values[nchw] = op.output
            else:
                meaning.values[nchw] = self._turned(meaning.values[not nchw], nchw, name)
        return meaning.values[nchw]

    def _turned(self, value: Value, nchw: bool, name: str) -> Value:
        order = TO_NCHW if nchw else TO_PLAIN
        return self.append(top.Permute.make(value, order=order), f"{name}/{'nchw' if nchw else 'nhwc'}")

    def real(self, index: int, nchw: bool = False) -> Value:
        """The reals behind a quantized activation or constant."""
        tensor = self.tensors[index]
        meaning = self.meanings.setdefault(index, Meaning())
        if nchw not in meaning.reals:
            assert tensor.quantization is not None
            axis = tensor.quantization.axis
            if nchw and not tensor.quantization.per_tensor:
                axis = TO_PLAIN[axis]
            made = self.dequantized(self.value(index, nchw), tensor.quantization, axis, tensor.name)
            meaning.reals[nchw] = made
        return meaning.reals[nchw]

    def dequantized(self, value: Value, given: Quantization, axis: int, name: str) -> Value:
        """Integers as reals."""
        scale, zero = self.parameters(given, dtype_of(value.type), name)
        return self.append(top.Dequantize.make(value, scale, zero, axis=axis), f"{name}/real")

    def parameters(self, given: Quantization, dtype: DType, name: str) -> tuple[Value, Value]:
        """Scale and zero point as constants, for integers of a type."""
        least, most = dtype.limits
        if ((given.zero_point < least) | (given.zero_point > most)).any():
            raise InvalidModelError(f"the tensor '{name}' has a zero point that {dtype.name} does not hold")
        shape = () if given.per_tensor else (given.scale.size,)
        scale = self.shared(given.scale.reshape(shape), f"{name}/scale")
        return scale, self.shared(given.zero_point.astype(dtype.numpy).reshape(shape), f"{name}/zero_point")

    def shared(self, array: Array, name: str) -> Value:
        """A constant of the importer's own, once for all tensors that have the same."""
        key = array.dtype, array.shape, array.tobytes()
        if key not in self._literals:
            self._literals[key] = self.literal(array, name)
        return self._literals[key]


class Context:
    """What a rule sees: its operator, its operands, and how to emit ops."""

    def __init__(self, op: Operator, scope: Scope) -> None:
        self.op = op
        self.scope = scope
        self.emitted: list[TopOp] = []
        first = scope.tensors[op.outputs[0]].name if op.outputs else ""
        self.label = f"the operator {op.name} that makes '{first}'"
        self.first = first

    # The operator

    def options(self, kind: str) -> View | None:
        """Its options, if it has those of a kind."""
        return self.op.options(kind)

    def needed(self, kind: str) -> View:
        """Its options, which it cannot do without."""
        found = self.options(kind)
        if found is None:
            raise InvalidModelError(f"{self.label} has no {kind}")
        return found

    def refuse(self, why: str) -> UnsupportedOpError:
        """The error for a form of the operator that has no `top` form."""
        return UnsupportedOpError(
            f"{self.label} has no form in npuc: {why}", fix="Cut the network before it with --outputs"
        )

    # Operands

    def has(self, index: int) -> bool:
        """True if input `index` is given."""
        return index < len(self.op.inputs) and self.op.inputs[index] >= 0

    def number_of(self, index: int) -> int:
        """The tensor that input `index` is."""
        if not self.has(index):
            raise InvalidModelError(f"{self.label}: input {index} is missing")
        return self.op.inputs[index]

    def tensor(self, index: int) -> Tensor:
        """Input `index` as the file declares it."""
        return self.scope.tensors[self.number_of(index)]

    def output(self, index: int = 0) -> Tensor:
        """Output `index` as the file declares it."""
        if index >= len(self.op.outputs):
            raise InvalidModelError(f"{self.label}: output {index} is missing")
        return self.scope.tensors[self.op.outputs[index]]

    def weight(self, index: int) -> Weight | None:
        """Input `index` if it is constant."""
        return self.scope.weights.get(self.number_of(index)) if self.has(index) else None

    def array(self, index: int) -> Array | None:
        """The values of input `index` if it is constant; integers where it is quantized."""
        weight = self.weight(index)
        return None if weight is None else weight.array()

    def known(self, index: int, what: str) -> Array:
        """The values of input `index`, which must be constant."""
        array = self.array(index)
        if array is None:
            self.number_of(index)
            raise self.refuse(f"its {what} is computed at run time")
        return array

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """A constant input as integers."""
        array = self.known(index, what)
        if array.dtype.kind not in "iu" or array.size > 1 << 16:
            raise InvalidModelError(f"{self.label}: its {what} is not a list of integers")
        return tuple(int(n) for n in array.reshape(-1))

    def real_array(self, index: int) -> Array | None:
        """The reals of input `index` if it is constant."""
        array = self.array(index)
        given = self.tensor(index).quantization if array is not None else None
        if array is None or given is None or array.dtype.kind == "f":
            return array
        spread = [-1 if i == given.axis else 1 for i in range(array.ndim)] if not given.per_tensor else []
        steps = array.astype(np.int64) - given.zero_point.reshape(spread)
        real: Array = steps.astype(np.float32) * given.scale.reshape(spread)
        return real.astype(np.float32)

    def _defined(self, index: int) -> int:
        number = self.number_of(index)
        if not self.scope.is_defined(number):
            tensor = self.scope.tensors[number]
            if tensor.is_variable:
                raise self.refuse(f"it reads the variable '{tensor.name}', and networks have no state here")
            raise InvalidModelError(f"{self.label}: its input '{tensor.name}' is not defined before it")
        return number

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of input `index` in TFLite's order."""
        number = self._defined(index)
        if number in self.scope.weights:
            return self.scope.weights[number].shape
        values = self.scope.meanings[number].values
        value = values[False] if False in values else values[True]
        if not is_static(value):
            raise self.refuse(f"the shape of its input '{self.tensor(index).name}' depends on data")
        shape = shape_of(value)
        return shape if False in values else tuple(shape[axis] for axis in TO_PLAIN)

    def rank(self, index: int) -> int:
        """The number of axes of input `index`."""
        return len(self.shape(index))

    def dtype(self, index: int) -> DType:
        """The element type of input `index` as it is held."""
        number = self._defined(index)
        weight = self.scope.weights.get(number)
        if weight is not None:
            return weight.dtype
        return dtype_of(next(iter(self.scope.meanings[number].values.values())).type)

    def turned(self, *indices: int) -> bool:
        """True if one of these inputs (all, without any) is held with its channels second."""
        chosen = indices or range(len(self.op.inputs))
        found = (self.scope.meanings.get(self.number_of(i)) for i in chosen if self.has(i))
        return any(meaning is not None and True in meaning.values for meaning in found)

    def value(self, index: int, nchw: bool = False) -> Value:
        """Input `index` as it is held: integers where it is quantized."""
        number = self._defined(index)
        self.shape(index)
        return self.scope.value(number, nchw)

    @property
    def is_integer(self) -> bool:
        """True if the operator works on quantized activations."""
        makes = [self.scope.tensors[index] for index in self.op.outputs]
        takes = [self.scope.tensors[i] for i in self.op.inputs if i >= 0 and i not in self.scope.weights]
        return any(t.is_quantized and t.dtype.name in ACTIVATIONS for t in (*makes, *takes))

    def real(self, index: int, nchw: bool = False) -> Value:
        """Input `index` as reals, if it is quantized; else as it is."""
        number = self._defined(index)
        self.shape(index)
        tensor = self.scope.tensors[number]
        if not tensor.is_quantized or not self._holds_integers(number):
            return self.scope.value(number, nchw)
        if number in self.scope.weights and not self.is_integer:
            # Only the weights are quantized: the network is a float one.
            real = self.real_array(index)
            assert real is not None
            return self.literal(real.transpose(TO_NCHW) if nchw else real, f"{tensor.name}/real")
        return self.scope.real(number, nchw)

    def _holds_integers(self, number: int) -> bool:
        weight = self.scope.weights.get(number)
        dtype = (
            weight.dtype if weight else dtype_of(next(iter(self.scope.meanings[number].values.values())).type)
        )
        return not dtype.is_float

    def constant(self, index: int, change: Callable[[Array], Array], axis: int | None = None) -> Value:
        """Constant input `index`, rearranged by `change`, as reals; `axis` is where its scales lie then."""
        tensor = self.tensor(index)
        given = tensor.quantization
        array = self.known(index, "value")
        if given is None or array.dtype.kind == "f" or not self.is_integer:
            real = self.real_array(index)
            assert real is not None
            return self.literal(np.ascontiguousarray(change(real)), tensor.name)
        integers = self.literal(np.ascontiguousarray(change(array)), tensor.name)
        return self.scope.dequantized(integers, given, axis if axis is not None else given.axis, tensor.name)

    def reals(self, value: Value, index: int) -> Value:
        """The reals behind a value that holds integers of input `index`, moved."""
        tensor = self.tensor(index)
        if not tensor.is_quantized or dtype_of(value.type).is_float:
            return value
        assert tensor.quantization is not None
        return self.scope.dequantized(value, tensor.quantization, 0, tensor.name)

    def as_input(self, value: Value, index: int = 0) -> Value:
        """Reals under the quantization of input `index`: for ops that move elements and leave their bytes alone."""
        tensor = self.tensor(index)
        if not tensor.is_quantized or tensor.quantization is None or not dtype_of(value.type).is_float:
            return value
        return self.quantized(value, tensor.quantization, tensor.dtype)

    # Results

    def emit(self, op_class: type[_OpT], /, *operands: Any, **properties: Any) -> _OpT:
        """Append an op; its results get names when the rule returns."""
        op = op_class.make(*operands, **properties)
        self.scope.graph.block.add_op(op)
        self.emitted.append(op)
        return op

    def literal(self, array: Array, name: str) -> Value:
        """A constant that the rule made itself."""
        return self.scope.literal(array, name)

    def number(self, value: float, like: Value) -> Value:
        """A scalar constant of the type of another value."""
        return self.literal(np.array(value, dtype_of(like.type).numpy), f"{self.first}/constant")

    def quantized(self, value: Value, given: Quantization, dtype: DType) -> Value:
        """Reals as integers."""
        if not given.per_tensor or dtype.name not in ACTIVATIONS:
            raise self.refuse(f"its result '{self.first}' is quantized per channel or to {dtype.name}")
        scale, zero = self.scope.parameters(given, dtype, self.first)
        return self.emit(top.Quantize, value, scale, zero, to=dtype.name).y

    def named(self, results: Sequence[Value | None]) -> None:
        """Give every emitted op the names of the outputs that its results are."""
        wanted = {
            id(value): self.scope.tensors[index].name
            for value, index in zip(results, self.op.outputs, strict=False)
            if value is not None
        }
        for op in self.emitted:
            names = []
            for value in op.results:
                name = wanted.pop(id(value), None)
                kind = op.name.removeprefix("top.")
                names.append(self.scope.unique(name if name is not None else f"{self.first}/{kind}"))
            op.location = location(names)  # type: ignore[assignment]
