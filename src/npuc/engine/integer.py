"""The integer engine in graph mode: an Npu program, op by op on whole tensors, through the native core.

What it computes is the NPU's exact result. Ops that stayed float run in ONNX Runtime, one by one, as they will on the
CPU beside the NPU. Any tensor can be fetched by name, as integers or as the reals they stand for.

Tensors of rank 4 are kept with channels innermost in memory (the kernels want it so) under their logical N x C x H x W
shape: NumPy's strides hold the difference, and only an op that needs another order pays for a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine.floating import ALL_TENSORS
from npuc.engine.handlers import find_handler, is_recordable, reads_in_place
from npuc.engine.inputs import checked_inputs, expected_inputs
from npuc.engine.program import ProgramStep, RecordedProgram
from npuc.engine.single import single_op
from npuc.errors import VerificationError
from npuc.ir import Graph, Value, dtype_of, npu, shape_of, top, value_name
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import element_of, is_narrow_float, quant_of
from npuc.origins import unknown_tensor


class IntegerEngine:
    """Runs one integer program; safe to call from several threads, each of which gets memory of its own.

    `fetch` names tensors whose values are returned too; quantized ones and short floats come as float32, or as they are
    with `raw`.
    Without `record` every step is prepared anew in every run, which is slower and gives the same.
    """

    def __init__(
        self,
        graph: Graph,
        fetch: Sequence[str] | str = (),
        threads: int = 1,
        raw: bool = False,
        record: bool = True,
    ) -> None:
        self.graph = graph
        self.raw = raw
        self._expected = expected_inputs(graph)
        self._values = {value: index for index, value in enumerate(_all_values(graph))}
        names = graph.tensor_names() if fetch == ALL_TENSORS else list(fetch)
        self._fetched = {name: self._find(name) for name in names}
        self._constants: dict[int, Array] = {}
        ops: list[TensorOp] = []
        for op in graph.ops:
            if isinstance(op, top.WeightOp):
                self._constants[self._values[op.output]] = _in_memory_order(
                    op.output, graph.weights.array(op.ref)
                )
            else:
                assert isinstance(op, TensorOp)
                ops.append(op)
        dying = self._lifetimes(ops)
        self._ops = ops
        self._steps = [
            ProgramStep(
                name=f"{op.name} '{value_name(op.results[0])}'" if op.results else op.name,
                function=prepare(op, graph, threads),
                recordable=record and is_recordable(op),
                in_place=reads_in_place(op),
                operands=tuple(self._values[value] for value in op.operands),
                results=tuple(self._values[value] for value in op.results),
                places=tuple(map(_place, op.results)),
                dying=tuple(last),
            )
            for op, last in zip(ops, dying, strict=True)
        ]
        self._idle = [self._laid_out()]

    def _laid_out(self) -> RecordedProgram:
        inputs = {
            self._values[port.value]: (shape_of(port.value), np.dtype(dtype_of(port.type).numpy))
            for port in self.graph.inputs
        }
        return RecordedProgram(self._steps, self._constants, inputs)

    def _find(self, name: str) -> Value:
        value = self.graph.find(name)
        if value is None:
            known = [*(port.name for port in self.graph.inputs), *self.graph.tensor_names()]
            raise unknown_tensor(name, known, self.graph.origins)
        return value

    def _lifetimes(self, ops: Sequence[TensorOp]) -> list[list[int]]:
        """For each op, the values that nothing after it needs."""
        kept = {self._values[port.value] for port in self.graph.outputs}
        kept |= {self._values[value] for value in self._fetched.values()} | self._constants.keys()
        last: dict[int, int] = {}
        for index, op in enumerate(ops):
            last.update(dict.fromkeys((self._values[value] for value in (*op.operands, *op.results)), index))
        dying: list[list[int]] = [[] for _ in ops]
        for value, index in last.items():
            if value not in kept:
                dying[index].append(value)
        return dying

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """The outputs, and what was asked for, of one set of inputs: by name, or the array of the only input."""
        given = self._given(inputs)
        with self._program() as program:
            program.run(given)
            out = {port.name: self._shown(port.value, program) for port in self.graph.outputs}
            out.update({name: self._shown(value, program) for name, value in self._fetched.items()})
        return out

    def profile(self, inputs: Mapping[str, Array] | Array) -> list[tuple[str, float]]:
        """The steps of one run in order, each with the seconds that it took."""
        given = self._given(inputs)
        with self._program() as program:
            return program.timed(given)

    def trace(self, inputs: Mapping[str, Array] | Array) -> Iterator[tuple[TensorOp, list[Array]]]:
        """One run, op by op: each op when it is done, with its results as they are, integers where they are quantized."""
        return self._traced({**self._constants, **self._given(inputs)})

    def _traced(self, held: dict[int, Array]) -> Iterator[tuple[TensorOp, list[Array]]]:
        for op, step in zip(self._ops, self._steps, strict=True):
            arrays = step.function([held[value] for value in step.operands])
            held.update(zip(step.results, arrays, strict=True))
            yield op, arrays
            for value in step.dying:
                held.pop(value, None)

    @contextmanager
    def _program(self) -> Iterator[RecordedProgram]:
        """A program that no other thread is running."""
        try:
            program = self._idle.pop()
        except IndexError:
            program = self._laid_out()
        try:
            yield program
        finally:
            program.slots.clear()
            self._idle.append(program)

    def _given(self, inputs: Mapping[str, Array] | Array) -> dict[int, Array]:
        checked = checked_inputs(inputs, self._expected)
        return {
            self._values[port.value]: np.asarray(checked[port.name], order="C") for port in self.graph.inputs
        }

    def _shown(self, value: Value, program: RecordedProgram) -> Array:
        index = self._values[value]
        array = program.value(index)
        kind = quant_of(value)
        if kind is not None and not self.raw:
            reals = ((array.astype(np.int64) - kind.zero_point) * float(np.float32(kind.scale))).astype(
                np.float32
            )
            return np.asarray(reals, order="C")
        if is_narrow_float(element_of(value)) and not self.raw and not self._is_output(value):
            return np.asarray(array.astype(np.float32), order="C")
        # What has a fixed place is overwritten by the next run, and an input belongs to the user.
        shared = index in program.arrays or index < len(self.graph.inputs)
        return np.array(array, order="C") if shared else np.asarray(array, order="C")

    def _is_output(self, value: Value) -> bool:
        return any(port.value is value for port in self.graph.outputs)


def _in_memory_order(value: Value, array: Array) -> Array:
    """Constants of quantized tensors are kept as the kernels want them."""
    if quant_of(value) is None or array.ndim != 4:
        return array
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def _place(value: Value) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    lowered = quant_of(value) is not None or is_narrow_float(element_of(value))
    if not lowered and not npu.computes_in_f32(value.owner):
        return None
    shape = shape_of(value)
    inner = (shape[0], shape[2], shape[3], shape[1]) if len(shape) == 4 else shape
    return inner, np.dtype(dtype_of(value.type).numpy)


def _all_values(graph: Graph) -> list[Value]:
    return [*graph.block.args, *(value for op in graph.ops for value in op.results)]


def prepare(op: TensorOp, graph: Graph, threads: int) -> Callable[[list[Array]], list[Array]]:
    """A function of the operands' arrays that runs one op of a program."""
    try:
        handler = find_handler(op)
        if handler is not None:
            function = handler(op, graph, threads)
        else:
            assert isinstance(op, TopOp), f"{op.name} has no kernel"
            function = single_op(op, graph, threads)
    except _SENSELESS as error:
        raise _senseless(op, error) from error

    def run(arrays: list[Array]) -> list[Array]:
        try:
            return function(arrays)
        except _SENSELESS as error:
            raise _senseless(op, error) from error

    return run


_SENSELESS = (ValueError, IndexError, OverflowError, ZeroDivisionError)
"""What kernels raise for numbers that no valid program has: the verifier knows ranges, not what they mean together."""


def _senseless(op: TensorOp, error: Exception) -> VerificationError:
    words = next(iter(str(error).splitlines()), type(error).__name__)[:200].rstrip(".")
    name = value_name(op.results[0]) if op.results else ""
    return VerificationError(f"{op.name} '{name}' cannot be computed: {words}")
