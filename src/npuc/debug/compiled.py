"""The tensors of a compiled model: each put together from the parts that instructions write, wherever those are.

The file itself tells where they are (`npuc.program.debug_info`). A tensor that a network has and the compiled model does
not, because it is fused away, is not seen. CPU subgraphs run with every tensor as a further output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.debug.chip import simulator_of
from npuc.debug.layers import LayerTensor, Visit, as_stored
from npuc.ir.dtypes import dtype_of
from npuc.program.debug_info import TracedTensor, read_debug_info
from npuc.program.model import CompiledModel, CpuSubgraph, NpuSubgraph
from npuc.sim import memory
from npuc.sim.watch import View, Watched, run_watched


@dataclass(frozen=True)
class Snapshot:
    """A tensor of logical shape as the machine has it."""

    array: Array
    computed: Array | None = None
    """Which elements were computed, if not all."""


class CompiledLayers:
    """A compiled model in instruction mode."""

    def __init__(self, compiled: CompiledModel, threads: int = 1) -> None:
        self.compiled = compiled
        self.info = read_debug_info(compiled)
        self.simulator = simulator_of(compiled, threads)
        self.by_subgraph: dict[int, list[int]] = {}
        for number, tensor in enumerate(self.info.tensors):
            self.by_subgraph.setdefault(tensor.subgraph, []).append(number)
        self.bases = {tensor.view_of for tensor in self.info.tensors if tensor.view_of is not None}

    def trace(self, inputs: Mapping[str, Array], visit: Visit) -> None:
        """Run it once; tensors come in the order of the network within each subgraph."""
        self.simulator.write_inputs(inputs)
        kept: dict[int, Snapshot] = {}
        if self._see(self.by_subgraph.get(-1, []), {}, kept, visit):
            return
        for index, subgraph in enumerate(self.compiled.subgraphs):
            numbers = self.by_subgraph.get(index, [])
            if isinstance(subgraph, NpuSubgraph):
                stopped = self._on_npu(index, numbers, kept, visit)
            elif isinstance(subgraph, CpuSubgraph):
                outputs = self._on_cpu(index, subgraph, numbers)
                stopped = self._see(numbers, outputs, kept, visit)
            else:
                self.simulator.step(index)
                stopped = self._see(numbers, {}, kept, visit)
            if stopped:
                return

    def _see(
        self, numbers: Sequence[int], outputs: Mapping[str, Array], kept: dict[int, Snapshot], visit: Visit
    ) -> bool:
        """Show tensors that are in DRAM or came out of a CPU subgraph."""
        for number in numbers:
            tensor = self.info.tensors[number]
            if tensor.onnx is not None:
                array = outputs[tensor.onnx]
            else:
                array = memory.read(self.simulator.segments, self.compiled.tensor(tensor.memory or ""))
            if number in self.bases:
                kept[number] = Snapshot(array)
            if visit(shown(tensor, Snapshot(array))):
                return True
        return False

    def _on_npu(self, index: int, numbers: Sequence[int], kept: dict[int, Snapshot], visit: Visit) -> bool:
        tensors = self.info.tensors
        joined = [number for number in numbers if is_joined(tensors[number])]
        numbers = [number for number in numbers if number not in joined]
        watched = [number for number in numbers if tensors[number].places]
        held = {number: Watched(tensors[number].size) for number in watched}
        done: set[int] = set()
        waiting = list(reversed(numbers))

        def finished(place: int) -> bool:
            """Show all that is complete, in the order of the network: an earlier layer may be complete later."""
            done.add(watched[place])
            while waiting:
                number = waiting[-1]
                base = tensors[number].view_of
                if base is None and number not in done:
                    return False
                waiting.pop()
                tensor = tensors[number]
                snapshot = (
                    snapshot_of(tensor, held.pop(number)) if base is None else viewed(tensor, kept[base])
                )
                if number in self.bases:
                    kept[number] = snapshot
                if visit(shown(tensor, snapshot)):
                    return True
            return False

        views = views_of(tensors, watched)
        if run_watched(self.simulator, index, list(held.values()), views, finished):
            return True
        return self._see(joined, {}, kept, visit)

    def _on_cpu(self, index: int, subgraph: CpuSubgraph, numbers: Sequence[int]) -> dict[str, Array]:
        fetched = [
            tensor.onnx for tensor in (self.info.tensors[n] for n in numbers) if tensor.onnx is not None
        ]
        tensors = {
            name: memory.read(self.simulator.segments, self.compiled.tensor(name)) for name in subgraph.inputs
        }
        values = self.simulator.host.run(index, tensors, fetched)
        for name in subgraph.outputs:
            memory.write(self.simulator.segments, self.compiled.tensor(name), values[name])
        return values


def is_joined(tensor: TracedTensor) -> bool:
    """Whether a tensor of an NPU subgraph is nowhere but in DRAM, where its parts are stored."""
    return not tensor.places and tensor.view_of is None


def views_of(tensors: Sequence[TracedTensor], watched: Sequence[int]) -> list[View]:
    """The places of some tensors, which are counted from 0."""
    return [
        View(
            at, tensors[number].number, place.core, place.segment, place.first, place.last, place.address, place.size,
            place.byte,
        )
        for at, number in enumerate(watched)
        for place in tensors[number].places
    ]  # fmt: skip


def snapshot_of(tensor: TracedTensor, held: Watched) -> Snapshot:
    """A tensor from its bytes in memory order."""
    kind = dtype_of(tensor.dtype).numpy
    shape = tuple(tensor.shape[axis] for axis in tensor.order)
    back = tuple(np.argsort(tensor.order)) if tensor.order else ()
    computed: Array | None = None
    if not held.written.all():
        elements = np.asarray(held.written.reshape(-1, kind.itemsize).all(axis=1))
        computed = elements.reshape(shape).transpose(back)
    return Snapshot(held.data.view(kind).reshape(shape).transpose(back), computed)


def viewed(tensor: TracedTensor, base: Snapshot) -> Snapshot:
    """A view of another tensor."""
    turned = [
        elements if elements is None or not tensor.permute else elements.transpose(tensor.permute)
        for elements in (base.array, base.computed)
    ]
    array, computed = (None if elements is None else elements.reshape(tensor.shape) for elements in turned)
    assert array is not None
    return Snapshot(np.ascontiguousarray(array).view(dtype_of(tensor.dtype).numpy), computed)


def unviewed(tensor: TracedTensor, array: Array, base: TracedTensor) -> Array:
    """The tensor that one is a view of."""
    if not tensor.permute:
        elements = array.reshape(base.shape)
    else:
        shape = tuple(base.shape[axis] for axis in tensor.permute)
        elements = array.reshape(shape).transpose(np.argsort(tensor.permute))
    return np.ascontiguousarray(elements).view(dtype_of(base.dtype).numpy)


def shown(tensor: TracedTensor, snapshot: Snapshot) -> LayerTensor:
    """A tensor as others see it."""
    return LayerTensor(
        tensor.name,
        tensor.layer,
        tensor.kind,
        tensor.dtype,
        tensor.scale,
        tensor.zero_point,
        as_stored(snapshot.array),
        None if snapshot.computed is None else np.ascontiguousarray(snapshot.computed),
    )
