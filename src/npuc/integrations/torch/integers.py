"""A quantized network in the place of a torch module: `forward` takes and gives tensors, and computes the NPU's exact integers.

call = import_call(module, (image,), {}, single_row=True)
observed = ObservedModule(module, call)         # calibrate: torch computes, and what it is given is kept
...
IntegerModule(quantized.graph, call.signature)  # what the NPU will compute, in graph mode
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.engine import IntegerEngine
from npuc.errors import InputDataError, UsageError
from npuc.integrations.signature import CallSignature
from npuc.integrations.structure import described, rebuilt
from npuc.integrations.torch.calls import ImportedCall, is_tensor
from npuc.integrations.torch.tensors import TensorForm, array_of
from npuc.ir import Graph, shape_of
from npuc.runtime.inputs import chunks_of, rows_for

KEPT_BYTES = 1 << 30
"""Of the inputs that an observed module keeps."""


class ObservedModule(torch.nn.Module):  # type: ignore[misc]
    """A module that keeps the tensors that it is called with, as calibration data for its network."""

    def __init__(self, module: torch.nn.Module, call: ImportedCall) -> None:
        super().__init__()
        self.module = module
        self._call = call
        self.samples: list[dict[str, Array]] = []
        """One a row, or one a call if rows depend on each other."""
        self.dropped = 0
        """Samples that were not kept, for want of memory."""
        self._bytes = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        form, tensors = described((args, kwargs), is_tensor)
        if form != self._call.signature.arguments:
            raise InputDataError("the module is called with other arguments than it was imported with")
        arrays = dict(zip(self._call.signature.inputs, map(array_of, tensors), strict=True))
        rows = len(next(iter(arrays.values()))) if self._call.signature.rows_vary else 1
        for row in range(rows):
            kept = (
                {name: array[row : row + 1].copy() for name, array in arrays.items()}
                if self._call.signature.rows_vary
                else {name: array.copy() for name, array in arrays.items()}
            )
            size = sum(array.nbytes for array in kept.values())
            if self._bytes + size > KEPT_BYTES:
                self.dropped += 1
                continue
            self._bytes += size
            self.samples.append(kept)
        return self.module(*args, **kwargs)


class IntegerModule(torch.nn.Module):  # type: ignore[misc]
    """An integer network that is called as the module was that it was made of; a batch may have any number of rows, if those
    of the module do not depend on each other."""

    def __init__(self, graph: Graph, signature: CallSignature, threads: int = 1) -> None:
        super().__init__()
        self.graph, self.signature = graph, signature
        self._engine = IntegerEngine(graph, threads=threads)
        self._shapes = {port.name: shape_of(port.value) for port in graph.inputs}
        self.calls = 0
        """How often it was called."""
        self.last_inputs: dict[str, Array] = {}

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network; arguments and results are those of the original module."""
        form, tensors = described((args, kwargs), is_tensor)
        signature = self.signature
        if form != signature.arguments:
            raise InputDataError(
                "the module was quantized for other arguments",
                fix=f"It takes {rebuilt(signature.arguments, signature.inputs)} (args, kwargs)",
            )
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise UsageError(
                "gradients are wanted of a quantized module, and it has none",
                fix="Call it inside torch.no_grad(), or train the original",
            )
        arrays = dict(zip(signature.inputs, map(array_of, tensors), strict=True))
        self._check(arrays)
        rows = len(next(iter(arrays.values()))) if signature.rows_vary else None
        outputs = self._engine.run(arrays) if rows is None else self._rows(arrays, rows)
        self.calls += 1
        self.last_inputs = arrays
        place = tensors[0].device if tensors else torch.device("cpu")
        results = [
            TensorForm(getattr(torch, dtype), shape, place, False).tensor(outputs[name], rows)
            for name, shape, dtype in zip(signature.outputs, signature.shapes, signature.dtypes, strict=True)
        ]
        return rebuilt(signature.results, results)

    def _check(self, arrays: dict[str, Array]) -> None:
        vary = self.signature.rows_vary
        for name, array in arrays.items():
            shape = self._shapes[name]
            if array.shape != shape and not (vary and array.ndim and array.shape[1:] == shape[1:]):
                rest = " or any other number of rows" if vary else ""
                raise InputDataError(
                    f"input '{name}' takes shape {list(shape)}{rest}, and was given {list(array.shape)}"
                )

    def _rows(self, arrays: dict[str, Array], rows: int) -> dict[str, Array]:
        """A batch in runs of the network's own size."""
        batch = next(iter(self._shapes.values()))[0]
        parts: dict[str, list[Array]] = {}
        for chunk in chunks_of(rows, batch):
            results = self._engine.run(
                {name: rows_for(array, chunk, batch) for name, array in arrays.items()}
            )
            for name, result in results.items():
                parts.setdefault(name, []).append(np.array(result[: chunk.count]))
        return {name: np.concatenate(each) for name, each in parts.items()}
