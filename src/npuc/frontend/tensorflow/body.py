"""Walking a graph from what is wanted to what it needs: one node at a time, functions and loops as they come.

A `Body` is the graph itself, a function that is being called, or one turn of a loop, which sees the body around it. The
walk has a stack of its own, so that a deep graph costs no recursion; calls and loops recurse, to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from npuc.errors import InvalidModelError, ResourceLimitError
from npuc.frontend.tensorflow.graph import MAX_NAME, TensorflowNode
from npuc.frontend.tensorflow.meaning import DEAD, Dead, Meaning

_T = TypeVar("_T")
MAX_STEPS = 60_000
"""Nodes that are walked, each as often as a loop or a call repeats it."""
MAX_LOOKS = 1 << 19
MAX_DEPTH = 48
_ARGUMENTS = 8
"""Inputs of a node, arguments of a call or variables of a loop that cost as much as a node."""
_SEVERAL = {
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "TopKV2": ("values", "indices"),
    "Switch": ("output_false", "output_true"),
    "Merge": ("output", "value_index"),
    "TensorArrayV3": ("handle", "flow"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": ("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections"),
    "Unique": ("y", "idx"),
}
_SEVERAL["FusedBatchNormV2"] = _SEVERAL["FusedBatchNorm"]
_SEVERAL["FusedBatchNormV3"] = (*_SEVERAL["FusedBatchNorm"], "reserve_space_3")
"""The outputs of ops that have several by different names: a function refers to them by those."""

Evaluate = Callable[["Body", TensorflowNode], Sequence[Meaning]]


@dataclass
class Budget:
    """How much has been walked, of all bodies together, and where the walk ends."""

    stops: frozenset[str] = frozenset()
    """Names of nodes that a user begins at."""
    steps: int = 0
    looks: int = 0
    tables: dict[tuple[str, int], Any] = field(default_factory=dict)

    def spend(self, node: TensorflowNode, steps: int = 1) -> None:
        """One more; a call costs as much as a few nodes."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise ResourceLimitError(
                f"the graph comes to more than {MAX_STEPS} nodes when its loops and calls are written out, "
                f"the last of them {node.label}",
                fix="Cut the network before the loop with --outputs",
            )

    def once(
        self,
        what: str,
        nodes: Mapping[str, TensorflowNode],
        make: Callable[[Mapping[str, TensorflowNode]], _T],
    ) -> _T:
        """What is made of the nodes of a function, made once however often it is called; the model holds the nodes."""
        key = what, id(nodes)
        if key not in self.tables:
            self.tables[key] = make(nodes)
        table: _T = self.tables[key]
        return table

    def look(self, node: TensorflowNode) -> None:
        """Look at a node without walking it."""
        self.looks += 1
        if self.looks > MAX_LOOKS:
            raise ResourceLimitError(
                f"the loops of the graph hang together in too many ways, the last of them at {node.label}",
                fix="Cut the network before the loop with --outputs",
            )


@dataclass
class Body:
    """Nodes, and what those that were walked mean."""

    nodes: Mapping[str, TensorflowNode]
    evaluate: Evaluate
    budget: Budget
    prefix: str = ""
    suffix: str = ""
    arguments: Mapping[str, Meaning] = field(default_factory=dict)
    given: Mapping[str, Meaning] = field(default_factory=dict)
    """Nodes of a loop that mean something already, by name."""
    parent: Body | None = None
    members: frozenset[str] = frozenset()
    """The nodes that belong to this turn of a loop; the others are the parent's."""
    depth: int = 0
    outputs: dict[str, Sequence[Meaning]] = field(default_factory=dict)
    loops: dict[str, Mapping[str, Meaning]] = field(default_factory=dict)
    """What the variables of loops that have run mean in the end, by frame."""

    def name(self, node: TensorflowNode) -> str:
        """The name of a node in the whole network."""
        return f"{self.prefix}{node.name}{self.suffix}"

    def split(self, tensor: str) -> tuple[str, int]:
        """The node and the output that a reference means."""
        name, _, rest = tensor.partition(":")
        if not rest:
            return name, 0
        output, _, index = rest.rpartition(":")
        if not index.isdigit() or len(index) > 6:
            return name, 0
        node = self.nodes.get(name)
        order = _SEVERAL.get(node.op, ()) if node is not None else ()
        return name, int(index) + (order.index(output) if output in order else 0)

    def meaning(self, tensor: str) -> Meaning:
        """What a tensor means, walked if need be."""
        self.walk([tensor])
        meaning = self._known(tensor)
        assert meaning is not None
        return meaning

    def _known(self, tensor: str) -> Meaning | None:
        name, index = self.split(tensor)
        if ":" not in tensor and name in self.arguments:
            return self.arguments[name]
        if name in self.given:
            return self.given[name]
        if self.parent is not None and name not in self.members:
            return self.parent.meaning(tensor)
        outputs = self.outputs.get(name)
        if outputs is None:
            return None
        if index < len(outputs):
            return outputs[index]
        if outputs and isinstance(outputs[0], Dead):
            return DEAD
        raise InvalidModelError(f"{self.nodes[name].label} has no output {index}")

    def walk(self, tensors: Iterable[str]) -> None:
        """Evaluate what these tensors need."""
        stack = list(tensors)
        open_: set[str] = set()
        while stack:
            tensor = stack[-1]
            if self._known(tensor) is not None:
                stack.pop()
                continue
            name, _ = self.split(tensor)
            node = self.nodes.get(name)
            if node is None:
                raise InvalidModelError(f"nothing makes the tensor '{tensor}'")
            missing = [item for item in self.needs(node) if self._known(item) is None]
            if missing:
                if name in open_:
                    raise InvalidModelError(f"{node.label} depends on itself")
                open_.add(name)
                stack += missing
                continue
            self.budget.spend(node, 1 + len(node.inputs) // _ARGUMENTS)
            self.outputs[name] = self.evaluate(self, node)
            open_.discard(name)
            stack.pop()

    def inputs(self, node: TensorflowNode) -> list[Meaning]:
        """What the inputs of a node mean, which were walked before it."""
        meanings = [self._known(item) for item in self.needs(node)]
        return [
            self.meaning(item) if known is None else known
            for item, known in zip(self.needs(node), meanings, strict=True)
        ]

    def needs(self, node: TensorflowNode) -> Sequence[str]:
        """The tensors that have to be known before a node is evaluated; loops see to their own."""
        if node.op in ("Exit", "RefExit") or self.name(node) in self.budget.stops:
            return ()
        return node.data_inputs

    def inner(
        self,
        nodes: Mapping[str, TensorflowNode],
        prefix: str,
        arguments: Mapping[str, Meaning],
        caller: TensorflowNode,
    ) -> Body:
        """The body of a function that is called."""
        if self.depth >= MAX_DEPTH:
            raise InvalidModelError(f"{caller.label}: functions call each other more than {MAX_DEPTH} deep")
        if len(prefix) > MAX_NAME:
            raise ResourceLimitError(f"{caller.label}: the names of its calls come to {len(prefix)} letters")
        self.budget.spend(caller, 5 + len(arguments) // _ARGUMENTS)
        return Body(
            nodes,
            self.evaluate,
            self.budget,
            prefix,
            self.suffix,
            arguments=arguments,
            depth=self.depth + 1,
        )

    def turn(
        self, members: frozenset[str], given: Mapping[str, Meaning], suffix: str, caller: TensorflowNode
    ) -> Body:
        """One turn of a loop."""
        if self.depth >= MAX_DEPTH:
            raise InvalidModelError(f"{caller.label}: loops are nested more than {MAX_DEPTH} deep")
        self.budget.spend(caller, len(given) // _ARGUMENTS)
        return Body(
            self.nodes,
            self.evaluate,
            self.budget,
            self.prefix,
            suffix,
            given=given,
            parent=self,
            members=members,
            depth=self.depth + 1,
        )
