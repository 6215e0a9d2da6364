"""What tensors mean while a model is imported, and what a rule sees of it.

A tensor means a constant or a value, in one or both layouts (`npuc.frontend.layout`). One that the model
quantizes is held as its integers; `real` gives the reals that they stand for, with the model's own scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError, UnsupportedOpError
from npuc.frontend.builder import LayerBuilder
from npuc.frontend.layout import LayoutBuilder, LayoutTensor, axis_in, to_second
from npuc.frontend.tflite.reader import TfliteOperator, TfliteQuantization, TfliteSubgraph, TfliteTensor
from npuc.frontend.tflite.view import FlatbufferView
from npuc.ir import DType, Graph, Value, Weight, dtype_of, top
from npuc.registries import renamed

ACTIVATIONS = ("i8", "ui8", "i16")
"""Element types whose integers stand for reals in activations."""
DEPENDS_ON_DATA = "the number of its results depends on data"
"""Why an operator stays ONNX."""


class TfliteScope(LayoutBuilder):
    """Tensors and what they mean; `graph` is where ops are appended."""

    LAYOUTS = ("nhwc", "nchw")

    def __init__(self, graph: Graph, subgraph: TfliteSubgraph, weights: dict[int, Weight]) -> None:
        super().__init__(graph)
        self.tensors = subgraph.tensors
        self.weights = weights
        """The constants: those of the file, and those that were computed from them."""
        self.meanings: dict[int, LayoutTensor] = {}
        self._reals: dict[tuple[int, bool], Value] = {}
        """The reals behind quantized tensors, by layout."""

    def define(self, index: int, value: Value, nchw: bool = False) -> None:
        """Give a tensor its value."""
        self.meanings[index] = LayoutTensor(value, nchw, name=self.tensors[index].name)
        for nchw in (False, True):
            self._reals.pop((index, nchw), None)

    def is_defined(self, index: int) -> bool:
        """True if a tensor has a value or is constant."""
        return index in self.meanings or index in self.weights

    def meaning(self, index: int) -> LayoutTensor:
        """What a tensor that is defined means."""
        if index not in self.meanings:
            self.meanings[index] = LayoutTensor(weight=self.weights[index], name=self.tensors[index].name)
        return self.meanings[index]

    def value(self, index: int, nchw: bool = False) -> Value:
        """A tensor in a layout."""
        return self.value_of(self.meaning(index), nchw)

    def real(self, index: int, nchw: bool = False) -> Value:
        """The reals behind a quantized activation or constant."""
        tensor = self.tensors[index]
        if (index, nchw) not in self._reals:
            assert tensor.quantization is not None
            axis = tensor.quantization.axis
            if nchw and not tensor.quantization.per_tensor:
                axis = axis_in(axis, nchw)
            real = self.dequantized(self.value(index, nchw), tensor.quantization, axis, tensor.name)
            self._reals[index, nchw] = real
        return self._reals[index, nchw]

    def dequantized(self, value: Value, given: TfliteQuantization, axis: int, name: str) -> Value:
        """Integers as reals."""
        scale, zero = self.parameters(given, dtype_of(value.type), name)
        return self.append(top.Dequantize.make(value, scale, zero, axis=axis), f"{name}/real").y

    def parameters(self, given: TfliteQuantization, dtype: DType, name: str) -> tuple[Value, Value]:
        """Scale and zero point as constants, for integers of a type."""
        least, most = dtype.limits
        if ((given.zero_point < least) | (given.zero_point > most)).any():
            raise InvalidModelError(f"the tensor '{name}' has a zero point that {dtype.name} does not hold")
        shape = () if given.per_tensor else (given.scale.size,)
        scale = self.shared(given.scale.reshape(shape), f"{name}/scale")
        return scale, self.shared(given.zero_point.astype(dtype.numpy).reshape(shape), f"{name}/zero_point")


class TfliteContext(LayerBuilder):
    """What a rule sees: its operator, its operands, and how to emit ops."""

    scope: TfliteScope

    def __init__(self, op: TfliteOperator, scope: TfliteScope) -> None:
        super().__init__(scope, scope.tensors[op.outputs[0]].name if op.outputs else "")
        self.op = op
        self.label = f"the operator {op.name} that makes '{self.first}'"

    # The operator

    def options(self, kind: str) -> FlatbufferView | None:
        """Its options, if it has those of a kind."""
        return self.op.options(kind)

    def needed(self, kind: str) -> FlatbufferView:
        """Its options, which it cannot do without."""
        options = self.options(kind)
        if options is None:
            raise InvalidModelError(f"{self.label} has no {kind}")
        return options

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

    def tensor(self, index: int) -> TfliteTensor:
        """Input `index` as the file declares it."""
        return self.scope.tensors[self.number_of(index)]

    def output(self, index: int = 0) -> TfliteTensor:
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
        meaning = self.scope.meaning(self._defined(index))
        if not meaning.is_static:
            raise self.refuse(f"the shape of its input '{self.tensor(index).name}' depends on data")
        return meaning.shape

    def rank(self, index: int) -> int:
        """The number of axes of input `index`."""
        return len(self.shape(index))

    def dtype(self, index: int) -> DType:
        """The element type of input `index` as it is held."""
        return self.scope.meaning(self._defined(index)).dtype

    def turned(self, *indices: int) -> bool:
        """True if one of these inputs (all, without any) is held with its channels second."""
        chosen = indices or range(len(self.op.inputs))
        meanings = (self.scope.meanings.get(self.number_of(i)) for i in chosen if self.has(i))
        return any(meaning is not None and self.scope.is_turned(meaning) for meaning in meanings)

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
        if not tensor.is_quantized or self.scope.meaning(number).dtype.is_float:
            return self.scope.value(number, nchw)
        if number in self.scope.weights and not self.is_integer:
            # Only the weights are quantized: the network is a float one.
            real = self.real_array(index)
            assert real is not None
            laid = real.transpose(to_second(real.ndim)) if nchw else real
            return self.scope.store(laid, f"{tensor.name}/real")
        return self.scope.real(number, nchw)

    def constant(self, index: int, change: Callable[[Array], Array], axis: int | None = None) -> Value:
        """Constant input `index`, rearranged by `change`, as reals; `axis` is where its scales lie then."""
        tensor = self.tensor(index)
        given = tensor.quantization
        array = self.known(index, "value")
        if given is None or array.dtype.kind == "f" or not self.is_integer:
            real = self.real_array(index)
            assert real is not None
            return self.scope.store(np.ascontiguousarray(change(real)), tensor.name)
        integers = self.scope.store(np.ascontiguousarray(change(array)), tensor.name)
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

    def number(self, value: float, like: Value) -> Value:
        """A scalar constant of the type of another value."""
        return self.literal(np.array(value, dtype_of(like.type).numpy), "constant")

    def quantized(self, value: Value, given: TfliteQuantization, dtype: DType) -> Value:
        """Reals as integers."""
        if not given.per_tensor or dtype.name not in ACTIVATIONS:
            raise self.refuse(f"its result '{self.first}' is quantized per channel or to {dtype.name}")
        scale, zero = self.scope.parameters(given, dtype, self.first)
        return self.emit(top.Quantize, value, scale, zero, to=dtype.name).y

    def named(self, results: Sequence[Value | None]) -> None:
        """Give every emitted op the names of the outputs that its results are."""
        self.finish(
            {
                value: self.scope.tensors[index].name
                for value, index in zip(results, self.op.outputs, strict=False)
                if value is not None
            }
        )


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Context": TfliteContext})
