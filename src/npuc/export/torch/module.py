"""A quantized network as a `torch.nn.Module`: constants are buffers, and quantized ops the exact arithmetic.

Float ops are those of the torch engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.engine.torch.registry import HANDLERS
from npuc.errors import ExportError
from npuc.export.exact.onnx import pad_code
from npuc.export.exact.registry import Exact, exact_results
from npuc.export.torch.algebra import TorchAlgebra
from npuc.ir import Graph, Value, layer_name, npu, top
from npuc.ir.dtypes import quant_of

_LEVER = "Write the network as ONNX ('npuc export onnx'), which has a form for it"


class QuantizedModule(torch.nn.Module):  # type: ignore[misc]
    """The network: tensors in, in the order of its inputs, and a tensor or a tuple of tensors out, all on one device."""

    def __init__(self, graph: Graph, device: Any = "cpu") -> None:
        super().__init__()
        self.graph = graph
        self._device = device
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._algebra = TorchAlgebra(self._hold)
        self._check()

    def _hold(self, array: Array) -> Any:
        """The buffer of a constant; equal ones are one."""
        array = np.asarray(array, order="C")
        key = (array.dtype.str, array.shape, array.tobytes())
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"c{len(self._names)}"
            self.register_buffer(name, torch.from_numpy(array.copy()).to(self._device))
        return getattr(self, name)

    def _check(self) -> None:
        """Refuse what has no form in torch, before anything is computed."""
        for op in self.graph.ops:
            if not isinstance(op, npu.NpuOp | top.WeightOp) and type(op) not in HANDLERS:
                raise ExportError(f"{op.name} '{layer_name(op)}' has no form in torch", fix=_LEVER)

    def forward(self, *inputs: Any) -> Any:
        """All ops in order."""
        outputs = tuple(self.values(inputs, [port.value for port in self.graph.outputs]))
        return outputs[0] if len(outputs) == 1 else outputs

    def values(self, inputs: Sequence[Any], requested: Sequence[Value]) -> list[Any]:
        """The tensors of some values of the network; integers where they are quantized."""
        held: dict[Value, Any] = dict(zip(self.graph.block.args, inputs, strict=True))

        def load(value: Value) -> Any:
            if value not in held:
                array = self.graph.constant(value)
                assert array is not None
                held[value] = self._hold(array if array.dtype.isbuiltin == 1 else array.astype(np.int8))
            return held[value]

        exact = Exact(self.graph, self._algebra, load)
        for op in self.graph.ops:
            if isinstance(op, top.WeightOp):
                continue
            held.update(zip(op.results, self._results(op, exact, load), strict=True))
        return [load(value) for value in requested]

    def _results(self, op: Any, exact: Exact, load: Any) -> Sequence[Any]:
        if isinstance(op, npu.NpuOp):
            return exact_results(op, exact, "integer form in torch")
        return self._top(op, load)

    def _top(self, op: Any, load: Any) -> Sequence[Any]:
        """An op that stayed float, or one that moves or compares integers, which float64 holds."""
        names = [key for key, _ in op.get_irdl_definition().operands]
        kinds = [quant_of(value) for value in op.operands]

        def operand(value: Any) -> Any:
            if value is None:
                return None
            if isinstance(value, Sequence):
                return [operand(item) for item in value]
            tensor = load(value)
            return tensor if quant_of(value) is None else tensor.to(torch.float64)

        stated = _Bordered(op, kinds[0]) if isinstance(op, top.Pad) and kinds and kinds[0] is not None else op
        try:
            outcome = HANDLERS[type(op)](stated, *(operand(getattr(op, name)) for name in names))
        except NotImplementedError as error:
            raise ExportError(
                f"{op.name} '{layer_name(op)}' has no form in torch: {error}", fix=_LEVER
            ) from error
        results = list(outcome) if isinstance(outcome, tuple) else [outcome]
        return [
            result
            if (kind := quant_of(value)) is None
            else self._algebra.cast(result, kind.dtype.carrier.name)
            for value, result in zip(op.results, results, strict=True)
        ]


class _Bordered:
    """A pad whose value is the integer that stands for it."""

    def __init__(self, op: Any, kind: Any) -> None:
        self._op = op
        self.value = pad_code(op.value, kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)
