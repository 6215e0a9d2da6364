"""A graph as a `torch.nn.Module`: its weights are parameters, its ops are steps in order.

`run` executes any part of the steps with other weights and with a function applied to every result, which is what
reconstruction and training need; `forward` is the whole network.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import EngineError
from npuc.extras import require_torch
from npuc.ir import Graph, Value, describe, dtype_of, top

torch = require_torch("this needs PyTorch, which is not installed")
for _family in ("elementwise", "movement", "recurrent", "rows", "windows"):
    importlib.import_module(f"npuc.engine.torch.{_family}")

from npuc.engine.torch.registry import HANDLERS, Handler  # noqa: E402
from npuc.program.model import named_inputs  # noqa: E402


@dataclass(frozen=True)
class TorchStep:
    """One op: its function, and where its operands come from. An operand may be absent (None) or several (a list)."""

    op: Any
    handler: Handler
    operands: tuple[Any, ...]
    results: tuple[Value, ...]

    @property
    def needs(self) -> list[Value]:
        """The values that it takes."""
        values: list[Value] = []
        for operand in self.operands:
            values += operand if isinstance(operand, list) else [] if operand is None else [operand]
        return values


After = Callable[[Value, Any], Any]
"""Gets a value and its tensor, and returns the tensor to go on with."""


class TopModule(torch.nn.Module):  # type: ignore[name-defined,misc]
    """The whole network; takes and gives mappings from names to tensors."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.steps: list[TorchStep] = []
        self.refs: dict[Value, str] = {}
        """Which weight a value is."""
        self._keys: dict[str, str] = {}
        for op in graph.ops:
            if isinstance(op, top.WeightOp):
                self.refs[op.output] = op.ref
                if op.ref not in self._keys:
                    self._hold(op.ref, graph.weights.array(op.ref))
                continue
            handler = HANDLERS.get(type(op))
            if handler is None:
                raise EngineError(
                    f"{describe(op)} has no form in torch", fix="Leave it out of the part to run"
                )
            names = [key for key, _ in op.get_irdl_definition().operands]  # type: ignore[attr-defined]
            given = tuple(_operand(getattr(op, key)) for key in names)
            self.steps.append(TorchStep(op, handler, given, tuple(op.results)))

    def _hold(self, ref: str, array: Array) -> None:
        tensor = torch.from_numpy(np.array(array)) if array.dtype.kind != "V" else None
        if tensor is None:
            raise EngineError(f"weight '{ref}' has the type {dtype_of(array.dtype).name}, which torch lacks")
        key = f"w{len(self._keys)}"
        self._keys[ref] = key
        if tensor.is_floating_point():
            self.register_parameter(key, torch.nn.Parameter(tensor, requires_grad=False))
        else:
            self.register_buffer(key, tensor)

    def weight(self, ref: str) -> Any:
        """The tensor of a weight."""
        return getattr(self, self._keys[ref])

    @property
    def device(self) -> Any:
        """Where it is."""
        return next(iter(self.state_dict().values())).device if self._keys else torch.device("cpu")

    def forward(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name."""
        values = {port.value: inputs[port.name] for port in self.graph.inputs}
        outputs = [port.value for port in self.graph.outputs]
        known = self.run(self.steps, values, outputs)
        return {port.name: known[port.value] for port in self.graph.outputs}

    def run(
        self,
        steps: Sequence[TorchStep],
        values: Mapping[Value, Any],
        fetched: Iterable[Value],
        *,
        weights: Mapping[str, Any] | None = None,
        after: After | None = None,
    ) -> dict[Value, Any]:
        """Execute steps on known values; only what is wanted, or still needed, is kept."""
        keep = set(fetched)
        last = {value: index for index, step in enumerate(steps) for value in step.needs}
        known = dict(values)
        weights = weights or {}

        def tensor(value: Value | None) -> Any:
            if value is None:
                return None
            if value in known:
                return known[value]
            ref = self.refs[value]
            return weights[ref] if ref in weights else self.weight(ref)

        for index, step in enumerate(steps):
            operands = [
                [tensor(item) for item in operand] if isinstance(operand, list) else tensor(operand)
                for operand in step.operands
            ]
            try:
                outcome = step.handler(step.op, *operands)
            except NotImplementedError as error:
                raise EngineError(f"{describe(step.op)} has no form in torch: {error}") from error
            for value, result in zip(
                step.results, outcome if len(step.results) > 1 else (_only(outcome),), strict=True
            ):
                known[value] = result if after is None else after(value, result)
            for value in step.needs:
                if last[value] == index and value not in keep and value not in self.refs:
                    known.pop(value, None)
        return {value: tensor(value) for value in keep}


def _only(outcome: Any) -> Any:
    return outcome[0] if isinstance(outcome, tuple) else outcome


def _operand(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) else value


class TorchEngine:
    """Runs a float network with torch, arrays in and arrays out, like the float engine."""

    def __init__(self, graph: Graph, *, fetch: Sequence[str] = (), device: str = "cpu") -> None:
        self._graph = graph
        self._module = TopModule(graph).to(device)
        self._device = device
        self._fetched: dict[str, Value] = {}
        for name in fetch:
            value = graph.find(name)
            if value is None:
                raise EngineError(f"there is no tensor '{name}' in the network")
            self._fetched[name] = value

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """The outputs, and what was asked for; inputs by name, or the array of the only one."""
        inputs = named_inputs(inputs, [port.name for port in self._graph.inputs])
        values = {
            port.value: torch.from_numpy(np.ascontiguousarray(inputs[port.name])).to(self._device)
            for port in self._graph.inputs
        }
        fetched = {port.name: port.value for port in self._graph.outputs} | self._fetched
        with torch.no_grad():
            tensors = self._module.run(self._module.steps, values, fetched.values())
        return {name: tensors[value].cpu().numpy() for name, value in fetched.items()}


__all__ = ["After", "TopModule", "TorchEngine", "TorchStep"]
