"""The integer engine in graph mode: an Npu program, op by op on whole tensors, through the native core.

What it computes is the NPU's exact result. Ops that stayed float run in ONNX Runtime, one by one, as they will on the
CPU beside the NPU. Any tensor can be fetched by name, as integers or as the reals they stand for.

Tensors of rank 4 are kept with channels innermost in memory (the kernels want it so) under their logical N x C x H x W
shape: NumPy's strides hold the difference, and only an op that needs another order pays for a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npuc.engine.floating import ALL_TENSORS
from npuc.engine.handlers import find_handler
from npuc.engine.single import single_op
from npuc.errors import InputDataError, UnknownTensorError
from npuc.ir import Graph, Value, dtype_of, shape_of, top
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import quant_of

Array = np.ndarray[Any, Any]
Step = Callable[[list[Array]], list[Array]]


class IntegerEngine:
    """Runs one integer program.

    `fetch` names tensors whose values are returned too; quantized ones come as reals, or as integers with `raw`.
    """

    def __init__(
        self, graph: Graph, fetch: Sequence[str] | str = (), threads: int = 1, raw: bool = False
    ) -> None:
        self.graph = graph
        self.raw = raw
        self._values = {value: index for index, value in enumerate(_all_values(graph))}
        self._constants: dict[int, Array] = {}
        self._steps: list[tuple[Step, list[int], list[int]]] = []
        names = graph.tensor_names() if fetch == ALL_TENSORS else list(fetch)
        self._fetched = {name: self._find(name) for name in names}
        for op in graph.ops:
            if isinstance(op, top.WeightOp):
                self._constants[self._values[op.output]] = graph.weights.array(op.ref)
                continue
            assert isinstance(op, TensorOp)
            operands = [self._values[value] for value in op.operands]
            self._steps.append(
                (_step(op, graph, threads), operands, [self._values[value] for value in op.results])
            )
        self._last_use = self._lifetimes()

    def _find(self, name: str) -> Value:
        value = self.graph.find(name)
        if value is None:
            raise UnknownTensorError(f"there is no tensor '{name}' in the program")
        return value

    def _lifetimes(self) -> list[list[int]]:
        """For each step, the values that nothing after it needs."""
        kept = {self._values[port.value] for port in self.graph.outputs}
        kept |= {self._values[value] for value in self._fetched.values()} | self._constants.keys()
        last: dict[int, int] = {}
        for index, (_, operands, results) in enumerate(self._steps):
            last.update(dict.fromkeys((*operands, *results), index))
        dying: list[list[int]] = [[] for _ in self._steps]
        for value, index in last.items():
            if value not in kept:
                dying[index].append(value)
        return dying

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs, and what was asked for, of one set of inputs."""
        slots: dict[int, Array] = dict(self._constants)
        for port in self.graph.inputs:
            if port.name not in inputs:
                raise InputDataError(f"the input '{port.name}' is missing")
            array = np.asarray(inputs[port.name])
            if array.shape != shape_of(port.value):
                raise InputDataError(
                    f"the input '{port.name}' has shape {list(array.shape)}, not {list(shape_of(port.value))}"
                )
            slots[self._values[port.value]] = array.astype(dtype_of(port.type).numpy, copy=False)
        for (step, operands, results), dying in zip(self._steps, self._last_use, strict=True):
            made = step([slots[index] for index in operands])
            slots.update(zip(results, made, strict=True))
            for index in dying:
                slots.pop(index, None)
        out = {port.name: self._shown(port.value, slots) for port in self.graph.outputs}
        out.update({name: self._shown(value, slots) for name, value in self._fetched.items()})
        return out

    def _shown(self, value: Value, slots: dict[int, Array]) -> Array:
        array = np.ascontiguousarray(slots[self._values[value]])
        kind = quant_of(value)
        if kind is None or self.raw:
            return array
        return ((array.astype(np.int64) - kind.zero_point) * kind.scale).astype(np.float32)


def _all_values(graph: Graph) -> list[Value]:
    return [*graph.block.args, *(value for op in graph.ops for value in op.results)]


def _step(op: TensorOp, graph: Graph, threads: int) -> Step:
    handler = find_handler(op)
    if handler is not None:
        return handler(op, graph, threads)
    assert isinstance(op, TopOp), f"{op.name} has no kernel"
    return single_op(op, graph, threads)
