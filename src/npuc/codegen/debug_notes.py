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
    found: list[TracedTensor] = []

    def add(
        value: Value, subgraph: int, layer: str, kind: str, reads: Sequence[Value], **source: Any
    ) -> None:
        one = tensor_of(value)
        plain = places[value].order if value in places else tuple(range(len(one.shape)))
        numbers[value] = len(found)
        found.append(
            TracedTensor(
                name=names[value],
                layer=layer,
                kind=kind,
                shape=tuple(max(-1, size) for size in one.shape),
                order=source.pop("order", plain),
                dtype=one.dtype,
                scale=one.scale,
                zero_point=one.zero_point,
                subgraph=subgraph,
                inputs=tuple(dict.fromkeys(numbers[read] for read in reads if read in numbers)),
                **source,
            )
        )

    def _name(value: Value) -> str | None:
        return places[value].name if value in places else None

    for port in graph.inputs:
        add(port.value, -1, port.name, "input", (), memory=places[port.value].name)
    for index, made in enumerate(subgraphs):
        places_of = _places(made)
        for op in made.part.ops:
            for value in op.results:
                label = layer_name(op) or op.name
                if made.network is None and value not in places and value not in made.called:
                    continue  # inside of what an accelerator runs
                if made.network is None:
                    inside = (
                        {"memory": places[value].name} if value in places else {"onnx": made.called[value]}
                    )
                    add(value, index, label, op.name, op.operands, **inside)
                    continue
                tensor = made.network.tensors.get(value)
                if tensor in places_of:
                    order = tensor.order
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
    return DebugInfo(tensors=tuple(found))


def _places(made: Subgraph) -> dict[Tensor, tuple[int, Sequence[Value], tuple[Place, ...]]]:
    """For each result of a layer on the NPU: the layer's number, what it reads, and where it is written."""
    if made.network is None:
        return {}
    layers = made.network.layers
    gathered: dict[Tensor, tuple[int, Sequence[Value], list[Place]]] = {}
    for one in made.written:
        tensor = layers[one.layer].outputs[one.output]
        byte = one.row * tensor.row_size
        size = min(one.size, tensor.size - byte)
        place = Place(one.core, one.segment, one.first, one.last, one.address, size, byte)
        reads = layers[one.layer].source.operands
        gathered.setdefault(tensor, (made.first_layer + one.layer, reads, []))[2].append(place)
    return {tensor: (number, reads, tuple(where)) for tensor, (number, reads, where) in gathered.items()}
