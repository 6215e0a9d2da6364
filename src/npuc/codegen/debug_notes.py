"""What the compiler notes for a debugger, while it still knows the network: see `npuc.program.debug_info`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npuc.ir import Graph, Value, layer_name, npu, top
from npuc.partition import Part
from npuc.program.debug_info import DebugInfo, Place, TracedTensor
from npuc.program.model import Tensor as FileTensor
from npuc.schedule.assemble import Written
from npuc.schedule.layers import Tensor
from npuc.schedule.network import Network, tensor_of


@dataclass(frozen=True)
class Subgraph:
    """A part of a network and what became of it."""

    part: Part
    network: Network | None = None
    """If it runs on the NPU."""
    first_layer: int = 0
    written: Sequence[Written] = ()
    called: Mapping[Value, str] = field(default_factory=dict)
    """If it runs on the CPU, what values are called in its model."""


def debug_notes(graph: Graph, subgraphs: Sequence[Subgraph], places: Mapping[Value, FileTensor]) -> DebugInfo:
    """Every tensor of the program that exists at some time, and where; what is fused away does not."""
    names = graph.distinct_names()
    numbers: dict[Value, int] = {}
    traced: list[TracedTensor] = []

    def add(
        value: Value, subgraph: int, layer: str, kind: str, reads: Sequence[Value], **source: Any
    ) -> None:
        tensor = tensor_of(value)
        plain = places[value].order if value in places else tuple(range(len(tensor.shape)))
        numbers[value] = len(traced)
        traced.append(
            TracedTensor(
                name=names[value],
                layer=layer,
                kind=kind,
                shape=tuple(max(-1, size) for size in tensor.shape),
                order=source.pop("order", plain),
                dtype=tensor.dtype,
                scale=tensor.scale,
                zero_point=tensor.zero_point,
                subgraph=subgraph,
                inputs=tuple(dict.fromkeys(numbers[read] for read in reads if read in numbers)),
                **source,
            )
        )

    def _name(value: Value) -> str | None:
        return places[value].name if value in places else None

    for port in graph.inputs:
        add(port.value, -1, port.name, "input", (), memory=places[port.value].name)
    for index, subgraph in enumerate(subgraphs):
        places_of = _places(subgraph)
        tensors_of = {} if subgraph.network is None else subgraph.network.tensors
        values_of = {tensor: value for value, tensor in tensors_of.items()}
        for op in subgraph.part.ops:
            for value in op.results:
                label = layer_name(op) or op.name
                if subgraph.network is None and value not in places and value not in subgraph.called:
                    continue  # inside of what an accelerator runs
                if subgraph.network is None:
                    inside = (
                        {"memory": places[value].name}
                        if value in places
                        else {"onnx": subgraph.called[value]}
                    )
                    add(value, index, label, op.name, op.operands, **inside)
                    continue
                tensor = subgraph.network.tensors.get(value)
                if tensor is not None and tensor in subgraph.network.joined:
                    # Its parts are stored where it is in DRAM.
                    parts = [values_of[part] for part in subgraph.network.joined[tensor]]
                    add(value, index, label, op.name, parts, order=tensor.order, memory=_name(value))
                elif tensor in places_of:
                    axes = subgraph.network.turned.get(value, range(len(tensor.order)))
                    order = tuple(axes[axis] for axis in tensor.order)
                    number, reads, where = places_of[tensor]
                    add(
                        value,
                        index,
                        label,
                        op.name,
                        reads,
                        number=number,
                        places=where,
                        order=order,
                        memory=_name(value),
                    )
                elif (
                    isinstance(op, top.Reshape | top.Permute | npu.Reinterpret) and op.operands[0] in numbers
                ):
                    # Whatever the bytes are taken for on the way, this is what the values mean.
                    turned = tuple(op.order) if isinstance(op, top.Permute) else ()
                    viewed = op.operands[0]
                    add(value, index, label, op.name, [viewed], view_of=numbers[viewed], permute=turned)
    return DebugInfo(tensors=tuple(traced))


def _places(subgraph: Subgraph) -> dict[Tensor, tuple[int, Sequence[Value], tuple[Place, ...]]]:
    """For each result of a layer on the NPU: the layer's number, what it reads, and where it is written."""
    if subgraph.network is None:
        return {}
    layers = subgraph.network.layers
    gathered: dict[Tensor, tuple[int, Sequence[Value], list[Place]]] = {}
    for written in subgraph.written:
        tensor = layers[written.layer].outputs[written.output]
        byte = written.row * tensor.row_size
        size = min(written.size, tensor.size - byte)
        place = Place(written.core, written.segment, written.first, written.last, written.address, size, byte)
        reads = layers[written.layer].source.operands
        gathered.setdefault(tensor, (subgraph.first_layer + written.layer, reads, []))[2].append(place)
    return {tensor: (number, reads, tuple(where)) for tensor, (number, reads, where) in gathered.items()}
