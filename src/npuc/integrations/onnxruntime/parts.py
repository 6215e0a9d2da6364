"""Which nodes of an ONNX model an NPU subgraph stands for, and that subgraph as a network of its own.

Passes fuse and rewrite nodes, but a tensor that two devices exchange keeps its name: a result has the name of the tensor of the
original network whose value it equals. So the nodes of a subgraph are those between its inputs and its outputs, found by walking
back through the model. What cannot be found that way (a tensor that only the compiler knows, a result that someone else needs
and the subgraph does not give) makes the subgraph one for ONNX Runtime's other providers, with the reason in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import onnx
import onnx.numpy_helper

from npuc.ir import Graph, Value, dtype_of, npu, result_names, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import quant_of
from npuc.ir.subgraph import subgraph_of
from npuc.partition import Part, Partition

_FLOAT = onnx.TensorProto.FLOAT
_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


class NotSeparable(Exception):
    """A subgraph does not correspond to nodes of the model; the text says why."""


@dataclass(frozen=True)
class ModelNodes:
    """The nodes of an ONNX model, and who makes and reads each tensor."""

    proto: onnx.ModelProto

    @cached_property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        """In the order of the file."""
        return list(self.proto.graph.node)

    @cached_property
    def producer(self) -> dict[str, int]:
        """Tensor to the number of the node that makes it."""
        return {name: number for number, node in enumerate(self.nodes) for name in node.output if name}

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """Tensor to the numbers of the nodes that read it, also inside of control flow."""
        readers: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            for name in dict.fromkeys(_read_by(node)):
                readers.setdefault(name, []).append(number)
        return readers

    @cached_property
    def constants(self) -> frozenset[str]:
        """Initializers."""
        return frozenset(tensor.name for tensor in self.proto.graph.initializer)

    @cached_property
    def outputs(self) -> frozenset[str]:
        """Outputs of the model."""
        return frozenset(value.name for value in self.proto.graph.output)

    @cached_property
    def element_types(self) -> dict[str, int]:
        """ONNX's number of the element type of each tensor that the model describes."""
        graph = self.proto.graph
        return {
            value.name: value.type.tensor_type.elem_type
            for value in (*graph.input, *graph.value_info, *graph.output)
        }

    @cached_property
    def scalars(self) -> frozenset[str]:
        """Tensors without axes, which programs have as tensors of one axis."""
        graph = self.proto.graph
        return frozenset(
            value.name
            for value in (*graph.input, *graph.value_info, *graph.output)
            if value.type.tensor_type.HasField("shape") and not value.type.tensor_type.shape.dim
        )

    def reals(self, name: str) -> tuple[str, ...]:
        """The float tensors of the model that hold a tensor: itself, or what nodes dequantize it to.

        ONNX Runtime gives every reader a `DequantizeLinear` of its own, so there may be several.
        """
        kind = self.element_types.get(name)
        if kind is None:
            raise NotSeparable(f"it begins or ends at '{name}', which is no tensor of the model")
        if name in self.scalars:
            raise NotSeparable(f"it exchanges the scalar '{name}' with other nodes")
        if kind == _FLOAT:
            return (name,)
        dequantized = tuple(
            node.output[0]
            for number in self.readers.get(name, ())
            if (node := self.nodes[number]).op_type == _DEQUANTIZE and node.input[0] == name
        )
        if not dequantized:
            raise NotSeparable(f"it exchanges the integers of '{name}' with other nodes")
        return dequantized

    def quantization(self, name: str) -> tuple[float, int] | None:
        """Scale and zero point of integers that a `QuantizeLinear` with constant parameters makes, one for all channels."""
        number = self.producer.get(name)
        node = None if number is None else self.nodes[number]
        if node is None or node.op_type != _QUANTIZE:
            return None
        held = {tensor.name: tensor for tensor in self.proto.graph.initializer if tensor.name in node.input}
        arrays = [onnx.numpy_helper.to_array(held[name]) for name in node.input[1:] if name in held]
        if len(arrays) != len(node.input) - 1 or any(array.size != 1 for array in arrays):
            return None
        return float(arrays[0].reshape(())), int(arrays[1].reshape(())) if len(arrays) > 1 else 0

    def behind(self, ends: Iterable[str], stops: frozenset[str], foreign: frozenset[str]) -> set[int]:
        """The nodes that make `ends` of `stops` and of constants."""
        members: set[int] = set()
        waiting = list(ends)
        while waiting:
            name = waiting.pop()
            if not name or name in stops or name in self.constants:
                continue
            number = self.producer.get(name)
            if number is None or name in foreign:
                raise NotSeparable(f"it also depends on '{name}', which is not one of its inputs")
            if number not in members:
                members.add(number)
                waiting += _read_by(self.nodes[number])
        return members

    def needed_elsewhere(self, members: set[int]) -> list[str]:
        """The tensors that nodes make for others, in order."""
        return [
            name
            for number in sorted(members)
            for name in self.nodes[number].output
            if name and (name in self.outputs or not members.issuperset(self.readers.get(name, ())))
        ]

    def is_acyclic(self, groups: Sequence[set[int]]) -> bool:
        """Whether the model has an order in which every group runs as one node."""
        group_of = {number: -1 - index for index, group in enumerate(groups) for number in group}
        blocks = [group_of.get(number, number) for number in range(len(self.nodes))]
        after: dict[int, set[int]] = {block: set() for block in blocks}
        for number, node in enumerate(self.nodes):
            for name in _read_by(node):
                made_by = self.producer.get(name)
                if made_by is not None and blocks[made_by] != blocks[number]:
                    after[blocks[made_by]].add(blocks[number])
        waits = dict.fromkeys(after, 0)
        for blocks_after in after.values():
            for block in blocks_after:
                waits[block] += 1
        ready = [block for block, count in waits.items() if count == 0]
        done = 0
        while ready:
            done += 1
            for block in after[ready.pop()]:
                waits[block] -= 1
                if waits[block] == 0:
                    ready.append(block)
        return done == len(after)


def _read_by(node: onnx.NodeProto) -> list[str]:
    """What a node reads, with what the graphs inside of it may read of their surroundings."""
    names = list(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
            names += [name for member in inner.node for name in _read_by(member)]
            names += [value.name for value in inner.output]
    return [name for name in names if name]


@dataclass(frozen=True)
class SeparatePart:
    """An NPU subgraph as a network, and the nodes of the model that it replaces."""

    network: Graph
    nodes: tuple[int, ...]
    inputs: tuple[tuple[str, int], ...]
    """Tensors of the model, and the input of the network that each is."""
    outputs: tuple[tuple[str, int], ...]


@dataclass
class _Ports:
    """Inputs or outputs of a network, in the making."""

    ports: list[tuple[str, Value]] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)

    def add(self, value: Value, names: Sequence[str]) -> None:
        if all(value is not other for _, other in self.ports):
            self.ports.append((names[0], value))
            self.places += [(name, len(self.ports) - 1) for name in names]


@dataclass(frozen=True)
class Separation:
    """Subgraphs of an integer network against the model that it was made of."""

    model: ModelNodes
    graph: Graph
    partition: Partition

    @cached_property
    def _aliases(self) -> dict[Value, list[str]]:
        """Outputs of the model that have another name than the value."""
        aliases: dict[Value, list[str]] = {}
        for port in self.graph.outputs:
            aliases.setdefault(port.value, []).append(port.name)
        return aliases

    @cached_property
    def _makers(self) -> dict[str, Part]:
        return {
            name: part
            for part in self.partition.parts
            if part.device != "convert"
            for op in part.ops
            for name in result_names(op)
        }

    def separate(self, part: Part) -> SeparatePart:
        """The nodes of an NPU subgraph; `NotSeparable` if it has none of its own."""
        inputs, outputs = _Ports(), _Ports()
        before: list[TensorOp] = []
        behind: list[TensorOp] = []
        for value in part.inputs:
            owner: Any = value.owner
            if isinstance(owner, npu.Quantize):
                before += [owner] if owner not in before else []
                inputs.add(owner.x, self.model.reals(_base(owner.x)))
            else:
                inputs.add(value, [self._plain(value)])
        for value in part.outputs:
            conversions = [use.operation for use in value.uses if isinstance(use.operation, npu.Dequantize)]
            if conversions:
                behind.append(conversions[0])
                names = list(self.model.reals(value_name(value)))
                for conversion in conversions:
                    names += [name for name in self._aliases.get(conversion.y, ()) if name not in names]
                outputs.add(conversions[0].y, names)
            if value in self._aliases or any(
                use.operation not in part.ops and use.operation not in conversions
                for use in value.uses
                if use.operation is not self.graph.terminator
            ):
                names = [self._plain(value)]
                outputs.add(
                    value, [*names, *(name for name in self._aliases.get(value, ()) if name not in names)]
                )
        if not inputs.ports:
            raise NotSeparable("it has no inputs")
        own = {name for op in part.ops for name in result_names(op)}
        foreign = frozenset(name for name, maker in self._makers.items() if maker is not part) - own
        ends = [name for name, _ in outputs.places]
        while True:
            stops = frozenset(name for name, _ in inputs.places)
            members = self.model.behind(ends, stops, foreign)
            needed = self.model.needed_elsewhere(members)
            missing = set(needed) - set(ends)
            if not missing:
                break
            if not self._move_inputs(inputs, missing):
                raise NotSeparable(
                    f"'{min(missing)}' is needed by other nodes, and the NPU does not give it as such"
                )
        used = {name for number in members for name in _read_by(self.model.nodes[number])}
        network, _ = subgraph_of(
            self.graph,
            [*before, *part.ops, *behind],
            _distinct(inputs.ports),
            _distinct(outputs.ports),
        )
        network.verify()
        return SeparatePart(
            network,
            tuple(sorted(members)),
            tuple((name, place) for name, place in inputs.places if name in used),
            tuple((name, place) for name, place in outputs.places if name in needed),
        )

    def _move_inputs(self, inputs: _Ports, missing: set[str]) -> bool:
        """Begin behind the quantization of an input whose integers others need, too; whether that changed anything.

        Integers that were dequantized quantize to themselves, so the program gets the same ones.
        """
        places: list[tuple[str, int]] = []
        for name, place in inputs.places:
            quantized = [
                node.output[0]
                for number in self.model.readers.get(name, ())
                if (node := self.model.nodes[number]).op_type == _QUANTIZE and node.output[0] in missing
            ]
            moved = [real for integers in quantized for real in self.model.reals(integers)]
            others = set(self.model.readers.get(name, ())) - {
                self.model.producer[integers] for integers in quantized
            }
            places += [(name, place)] if others or not moved else []
            places += [(real, place) for real in moved]
        changed = places != inputs.places
        inputs.places = places
        return changed

    def _plain(self, value: Value) -> str:
        """The name of a tensor that the model and the network have with the same elements."""
        name = value_name(value)
        kind = self.model.element_types.get(name)
        if kind is None:
            raise NotSeparable(f"it begins or ends at '{name}', which is no tensor of the model")
        if name in self.model.scalars:
            raise NotSeparable(f"it exchanges the scalar '{name}' with other nodes")
        quantized = quant_of(value)
        alike = quantized is None or self.model.quantization(name) == (quantized.scale, quantized.zero_point)
        if kind != dtype_of(value.type).onnx or not alike:
            raise NotSeparable(f"the NPU has other elements in '{name}' than the model")
        return name


def _base(value: Value) -> str:
    """The name of a real tensor; that of the integers which it was made of, if it was."""
    owner = value.owner
    return value_name(owner.x if isinstance(owner, npu.Dequantize) else value)


def _distinct(ports: Sequence[tuple[str, Value]]) -> list[tuple[str, Value]]:
    """Each name once: an output may be an input as well, of another value."""
    taken: set[str] = set()
    named = []
    for name, value in ports:
        while name in taken:
            name += "'"
        taken.add(name)
        named.append((name, value))
    return named


def separated(
    model: ModelNodes, graph: Graph, partition: Partition
) -> tuple[dict[int, SeparatePart], Mapping[int, str]]:
    """The NPU subgraphs that stand for nodes of the model, by their numbers, and why others do not."""
    separation = Separation(model, graph, partition)
    parts: dict[int, SeparatePart] = {}
    reasons: dict[int, str] = {}
    claimed: set[int] = set()
    for number, part in enumerate(partition.parts):
        if part.device != "npu":
            continue
        try:
            separate = separation.separate(part)
        except NotSeparable as reason:
            reasons[number] = str(reason)
            continue
        members = set(separate.nodes)
        groups = [*(set(other.nodes) for other in parts.values()), members]
        if not members or not separate.outputs:
            reasons[number] = "the model does not use what it makes"
        elif claimed & members:
            shared = model.nodes[min(claimed & members)].output[0]
            reasons[number] = f"it shares the node that makes '{shared}' with another subgraph"
        elif not model.is_acyclic(groups):
            reasons[number] = "other nodes would have to run in its middle"
        else:
            parts[number] = separate
            claimed |= members
    return parts, reasons
