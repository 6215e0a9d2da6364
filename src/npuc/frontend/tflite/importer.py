"""TensorFlow Lite to Top IR: operator by operator, in order.

An operator whose inputs are constants is computed now; any other is translated by its rule. A quantized model becomes
quantize and dequantize ops around float ones, its integers kept, and is marked as one of TFLite's arithmetic.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from npuc.errors import (
    EngineError,
    InvalidModelError,
    ResourceLimitError,
    UnknownTensorError,
    UnsupportedOpError,
    UsageError,
)
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import (
    check_inputs,
    check_layout,
    check_rank,
    input_constant,
    open_batch_note,
    possible_shape,
)
from npuc.frontend.support import MAX_ELEMENTS, check_names, erase_dead, guarded
from npuc.frontend.tflite.reader import TfliteModel, TfliteOperator, TfliteTensor, read
from npuc.frontend.tflite.registry import find_rule
from npuc.frontend.tflite.scope import ACTIVATIONS, TfliteContext, TfliteScope
from npuc.ir import Graph, Value, Weight, dtype_of, is_static, shape_of, tensor_type
from npuc.ir.definition import ShapeError

_OF_VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
_FOLDED = 1 << 24
"""Bytes of constants that are computed at import; larger results stay ops."""


def import_tflite(source: Path | str | bytes | TfliteModel, options: ImportOptions | None = None) -> Graph:
    """Import a TensorFlow Lite model from a path, its bytes or its tables; the result is verified, not yet canonical."""
    where = str(source) if isinstance(source, Path | str) else None

    def run() -> Graph:
        model = source if isinstance(source, TfliteModel) else read(source)
        return _TfliteImporter(model, options or ImportOptions()).run()

    return guarded(where, run)


class _TfliteImporter:
    def __init__(self, model: TfliteModel, options: ImportOptions) -> None:
        self.model = model
        self.main = model.main
        self.tensors = model.main.tensors
        inputs, outputs = model.port_names
        self.ports = dict(zip(self.main.inputs, inputs, strict=True))
        self.by_name = {tensor.name: tensor.index for tensor in self.tensors}
        self.by_name |= dict(zip((*outputs, *inputs), (*self.main.outputs, *self.main.inputs), strict=True))
        check_names(options.outputs, self.by_name, "--outputs")
        check_names(options.inputs, self.by_name, "--inputs")
        check_names(options.constants, inputs, "--constant")
        self.options = options
        self.shapes = {self._index(name): shape for name, shape in options.input_shapes.items()}
        self.ends = [(name, self.by_name[name]) for name in options.outputs] or list(
            zip(outputs, self.main.outputs, strict=True)
        )
        self.fixed = {self.by_name[name]: text for name, text in options.constants.items()}
        self.begins = [self.by_name[name] for name in options.inputs] or [
            index for index in self.main.inputs if index not in self.fixed
        ]
        self.ports |= {self.by_name[name]: name for name in options.inputs}

    def _index(self, name: str) -> int:
        if name not in self.by_name:
            raise UnknownTensorError(
                f"--input-shape: there is no input '{name}'",
                fix=f"The inputs are: {', '.join(self.ports.values())}",
            )
        return self.by_name[name]

    def run(self) -> Graph:
        if not self.ends:
            raise InvalidModelError("the model has no outputs")
        names = [self.ports.get(index, self.tensors[index].name) for index in self.begins]
        shaped = [self.ports.get(index, self.tensors[index].name) for index in self.shapes]
        check_inputs(names, shaped, self.options.constants)
        operators = self._needed()
        weights = {
            t.index: t.weight for t in self.tensors if t.weight is not None and t.index not in self.begins
        }
        for index, text in self.fixed.items():
            tensor, name = self.tensors[index], self.ports[index]
            shape = self.shapes.get(index, tensor.shape)
            weights[index] = Weight.of(input_constant(name, text, shape, tensor.dtype))
        graph = Graph.empty(self._input_types(), preprocess=self._preprocess())
        graph.notes += [
            open_batch_note(name)
            for name, index in zip(names, self.begins, strict=True)
            if self.tensors[index].is_open and index not in self.shapes
        ]
        scope = TfliteScope(graph, self.main, weights)
        for index, port in zip(self.begins, graph.inputs, strict=True):
            scope.unique(port.name)
            scope.define(index, port.value)
        for op in operators:
            self._guarded(op, scope)
        outputs = []
        for name, index in self.ends:
            if not scope.is_defined(index):
                raise InvalidModelError(f"the output '{name}' is not made by any operator")
            outputs.append((name, scope.value(index)))
        graph.set_outputs(outputs)
        erase_dead(graph)
        if any(t.is_quantized and t.weight is None and t.dtype.name in ACTIVATIONS for t in self.tensors):
            graph.arithmetic = "tflite"
        return graph

    def _needed(self) -> list[TfliteOperator]:
        """The operators between the inputs and the outputs, in the order of the file."""
        makers: dict[int, int] = {}
        for position, op in enumerate(self.main.operators):
            for index in op.outputs:
                if index in makers:
                    raise InvalidModelError(f"the tensor '{self.tensors[index].name}' is made twice")
                makers[index] = position
        keep: set[int] = set()
        given = {*self.begins, *self.fixed}
        visited: set[int] = set()
        stack = [index for _, index in self.ends]
        while stack:
            index = stack.pop()
            if index in given or index in visited or index < 0:
                continue
            visited.add(index)
            if index in makers:
                if makers[index] not in keep:
                    keep.add(makers[index])
                    stack.extend(self.main.operators[makers[index]].inputs)
            elif index in self.main.inputs:
                raise UsageError(
                    f"the outputs still need the input '{self.ports[index]}'",
                    fix="Add it to --inputs, or cut after it",
                )
        return [op for position, op in enumerate(self.main.operators) if position in keep]

    def _input_types(self) -> list[tuple[str, Any]]:
        types = []
        for index in self.begins:
            tensor = self.tensors[index]
            shape = self.shapes.get(index, tensor.shape)
            possible_shape(tensor.name, shape)
            check_rank(tensor.name, tensor.shape or None, shape)
            check_layout(self.ports.get(index, tensor.name), tensor.shape or None, shape)
            types.append((self.ports.get(index, tensor.name), tensor_type(shape, tensor.dtype)))
        return types

    def _preprocess(self) -> dict[str, Any]:
        return {name: item.to_dict() for name, item in self.options.preprocess.items()}

    def _guarded(self, op: TfliteOperator, scope: TfliteScope) -> None:
        context = TfliteContext(op, scope)
        try:
            self._operator(context)
        except ShapeError as error:
            self._refuse_shape(op, str(error))
            raise InvalidModelError(f"{context.label}: {error}") from error
        except InvalidModelError as error:
            self._refuse_shape(op, error.message.removeprefix(f"{context.label}: "))
            raise
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError) as error:
            # What a rule trips over is something in the operator that no valid model has.
            words = next(iter(str(error).splitlines()), type(error).__name__)[:200]
            raise InvalidModelError(f"{context.label}: it is malformed ({words})") from error

    def _refuse_shape(self, op: TfliteOperator, words: str) -> None:
        """Where the user chose a shape, that is at fault rather than the model."""
        for index, shape in self.shapes.items():
            raise UsageError(
                f"--input-shape {','.join(map(str, shape))} does not fit the network: {op.name} would have {words}",
                fix=f"In the model the shape is {','.join(map(str, self.tensors[index].shape))}",
            )

    def _operator(self, context: TfliteContext) -> None:
        op = context.op
        translate = find_rule(op.name)
        if translate is None:
            if op.name in _OF_VARIABLES:
                raise self._refuse_state()
            raise UnsupportedOpError(
                f"{context.label} is not among those that npuc imports",
                fix=self._cut_before(context),
            )
        if self._folded(context, translate):
            return
        outcome = translate(context)
        several = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
        results: list[Value | None] = []
        for index, item in zip(op.outputs, several, strict=False):
            results.append(self._define(context, index, item))
        if len(several) < len(op.outputs):
            raise InvalidModelError(f"{context.label}: it has {len(several)} outputs, not {len(op.outputs)}")
        context.named(results)

    def _cut_before(self, context: TfliteContext) -> str:
        """The options that end the network at what an operator reads."""
        known = {*context.scope.weights, *self.begins, -1}
        read = [index for index in context.op.inputs if index not in known]
        if not read:
            return "Cut the network with --inputs behind it"
        return f"Cut the network before it, with --outputs '{','.join(self._name(index) for index in read)}'"

    def _refuse_state(self) -> UnsupportedOpError:
        """A network with variables, and how to cut it so that they become inputs and outputs."""
        reads = [op.outputs[0] for op in self.main.operators if op.name == "READ_VARIABLE" and op.outputs]
        writes = [
            op.inputs[1]
            for op in self.main.operators
            if op.name == "ASSIGN_VARIABLE" and len(op.inputs) > 1 and op.inputs[1] >= 0
        ]
        begins = ",".join(dict.fromkeys(self._name(index) for index in (*self.begins, *reads)))
        ends = ",".join(
            dict.fromkeys([name for name, _ in self.ends] + [self._name(index) for index in writes])
        )
        return UnsupportedOpError(
            "the network keeps a state in variables from run to run (VAR_HANDLE), and npuc's networks have none",
            fix=f"Make the state inputs and outputs of the network: --inputs '{begins}' --outputs '{ends}'",
        )

    def _name(self, index: int) -> str:
        return self.ports.get(index, self.tensors[index].name)

    def _define(self, context: TfliteContext, index: int, item: Any) -> Value | None:
        """Record an output: an array is a constant, reals of a quantized tensor are quantized."""
        tensor = self.tensors[index]
        if isinstance(item, np.ndarray | np.generic):
            array = np.asarray(item)
            _check_type(context, tensor, dtype_of(array.dtype).name)
            context.scope.weights[index] = Weight.of(array)
            return None
        ((nchw, value),) = item.values.items() if isinstance(item, LayoutTensor) else [(False, item)]
        if is_static(value) and prod(shape_of(value)) > MAX_ELEMENTS:
            raise ResourceLimitError(f"{context.label}: its result has the shape {list(shape_of(value))}")
        if tensor.is_quantized and dtype_of(value.type).name == "f32":
            assert tensor.quantization is not None
            value = context.quantized(value, tensor.quantization, tensor.dtype)
        _check_type(context, tensor, dtype_of(value.type).name)
        context.scope.define(index, value, nchw)
        return value

    def _folded(self, context: TfliteContext, translate: Any) -> bool:
        """Compute an operator whose inputs are all constant."""
        op, scope = context.op, context.scope
        given = [scope.weights.get(index) for index in op.inputs if index >= 0]
        if not given or any(weight is None for weight in given):
            return False
        if sum(weight.nbytes for weight in given if weight is not None) > _FOLDED:
            return False
        part = Graph.empty([])
        inner = TfliteContext(op, TfliteScope(part, self.main, scope.weights))
        outcome = translate(inner)
        several = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
        if len(several) < len(op.outputs):
            raise InvalidModelError(f"{context.label}: it has {len(several)} outputs, not {len(op.outputs)}")
        results = [self._define(inner, i, item) for i, item in zip(op.outputs, several, strict=False)]
        values = [value for value in results if value is not None]
        inner.named(results)
        size = sum(prod(shape_of(v)) * dtype_of(v.type).itemsize for v in values if is_static(v))
        if size > _FOLDED or not all(map(is_static, values)):
            return False
        if values:
            from npuc.engine import FloatEngine

            ports = [(str(i), inner.scope.value(i)) for i in op.outputs if i in inner.scope.meanings]
            part.set_outputs(ports)
            try:
                arrays = FloatEngine(part, threads=1).run({})
            except EngineError:  # an index beyond its axis, say: whoever runs the network will be told
                return False
            for name, array in arrays.items():
                scope.weights[int(name)] = Weight.of(np.asarray(array))
        return True


def _check_type(context: TfliteContext, tensor: TfliteTensor, dtype_name: str) -> None:
    if tensor.dtype.name != dtype_name:
        raise InvalidModelError(
            f"{context.label}: the tensor '{tensor.name}' is declared as {tensor.type_name}, but it would be {dtype_name}"
        )
