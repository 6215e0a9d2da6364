"""An integer network on a GPU: the integers of graph mode, to the last bit, computed by torch.

    TorchIntegerEngine(graph, device="cuda").run({"input": x})["logits"]     # as IntegerEngine(graph) gives it

Sums of products are computed in float64, which is exact (`algebra`), so that the device does not change a bit of what is
quantized. Layers that stayed float differ by the order of sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from npuc.arrays import Array
from npuc.engine.compute_device import check_device
from npuc.engine.floating import ALL_TENSORS
from npuc.engine.inputs import checked_inputs, expected_inputs
from npuc.export.torch.module import QuantizedModule
from npuc.ir import Graph, Value
from npuc.ir.dtypes import dtype_of, element_of, is_narrow_float, quant_of
from npuc.origins import unknown_tensor


class TorchIntegerEngine:
    """Runs an integer network on `cpu`, `cuda` or `cuda:N`, arrays in and arrays out, like `IntegerEngine`."""

    def __init__(
        self, graph: Graph, fetch: Sequence[str] | str = (), device: str = "cuda", raw: bool = False
    ) -> None:
        check_device(device)
        self.graph = graph
        self.raw = raw
        self._device = device
        self._module = QuantizedModule(graph, torch.device(device)).eval()
        self._expected = expected_inputs(graph)
        self._shown = {port.name: port.value for port in graph.outputs}
        for name in graph.tensor_names() if fetch == ALL_TENSORS else fetch:
            value = graph.find(name)
            if value is None:
                raise unknown_tensor(name, graph.tensor_names(), graph.origins)
            self._shown[name] = value

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """The outputs, and what was asked for; quantized tensors as the reals that they stand for unless `raw`."""
        given = checked_inputs(inputs, self._expected)
        tensors = [
            torch.from_numpy(np.array(given[port.name], order="C")).to(self._device)
            for port in self.graph.inputs
        ]
        with torch.no_grad():
            results = self._module.values(tensors, list(self._shown.values()))
        return {
            name: self._array(value, result.cpu().numpy())
            for (name, value), result in zip(self._shown.items(), results, strict=True)
        }

    def _array(self, value: Value, array: Array) -> Array:
        kind = quant_of(value)
        if kind is not None:
            if self.raw:
                return array.astype(dtype_of(value.type).numpy)
            return ((array.astype(np.int64) - kind.zero_point) * float(np.float32(kind.scale))).astype(
                np.float32
            )
        return array.astype(np.float32) if is_narrow_float(element_of(value)) and not self.raw else array
