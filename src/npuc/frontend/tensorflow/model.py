"""What a TensorFlow file offers, whatever its kind: a graph, its inputs and outputs under the user's names, variables.

A `.pb` is a `GraphDef`, frozen or with a checkpoint beside it: its placeholders are the inputs, and what nothing reads are
the outputs. A SavedModel is a folder whose `saved_model.pb` has a graph with signatures. Which variable of a checkpoint belongs
to which node is told by the graph that restores them, which is read here and never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from npuc.errors import FileMissingError, InvalidModelError, NpucError, UsageError
from npuc.files import existing_file
from npuc.frontend.tensorflow.bundle import Bundle
from npuc.frontend.tensorflow.graph import MAX_NODES, GraphDef, TensorflowNode, entries, read_graph
from npuc.frontend.tensorflow.wire import WireMessage, bad
from npuc.ir import Weight
from npuc.ir.weights import MappedFile

_UNREAD = ("NoOp", "Assert", "Print", "PrintV2", "Const", "Placeholder", "SaveV2", "MergeV2Checkpoints")
"""Nodes that nothing reads, and that are no outputs for it."""
_INIT = "__saved_model_init_op"


@dataclass(frozen=True)
class Port:
    """An input or output: the user's name, and the tensor."""

    name: str
    tensor: str


@dataclass
class TensorflowModel:
    """A graph, and what it takes and gives."""

    path: Path
    graph: GraphDef
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    notes: list[str] = field(default_factory=list)
    restore: str = ""
    """The node that restores the variables; empty where there are none."""
    prefix: Path | None = None
    """The checkpoint, by its files' names without their ends."""
    is_saved_model: bool = False

    @cached_property
    def _bundle(self) -> Bundle:
        if self.prefix is None:
            raise InvalidModelError(
                "the graph has variables, but a .pb file by itself has no values for them",
                where=str(self.path),
                fix="Name the checkpoint with --weights, give the SavedModel folder, or freeze the graph first",
            )
        return Bundle(self.prefix)

    @cached_property
    def _keys(self) -> dict[str, str]:
        """Variable node -> key of the checkpoint, from the graph that would restore them."""
        keys: dict[str, str] = {}
        nodes = self.graph.nodes
        pending = [self.restore.partition(":")[0].lstrip("^")]
        visited: set[str] = set()
        calls = 0
        while pending:
            name = pending.pop()
            node = nodes.get(name)
            if node is None or name in visited:
                continue
            visited.add(name)
            if node.op in ("StatefulPartitionedCall", "PartitionedCall"):
                function = self.graph.functions.get(node.function("f"))
                if function is not None:
                    calls += len(function.nodes)
                    if calls > MAX_NODES:
                        raise bad("what restores its variables calls functions again and again")
                    given = dict(zip(function.arguments, node.data_inputs, strict=False))
                    keys.update(_assigned(function.nodes.values(), function.nodes, given))
            keys.update(_assigned([node], nodes, {}))
            pending += [item.lstrip("^").partition(":")[0] for item in node.inputs if item.startswith("^")]
        return keys

    @cached_property
    def tensors(self) -> dict[str, str]:
        """The tensors behind the user's names."""
        return {port.name: port.tensor for port in (*self.outputs, *self.inputs)}

    @cached_property
    def titles(self) -> dict[str, str]:
        """The user's names of the nodes that inputs come from."""
        return {port.tensor.partition(":")[0]: port.name for port in reversed(self.inputs)}

    def variable(self, node: TensorflowNode) -> Weight:
        """The value of a variable."""
        names = [self._keys.get(node.name), node.text("shared_name"), node.name]
        for key in filter(None, names):
            if key in self._bundle:
                return self._bundle.read(key)
        raise InvalidModelError(
            f"the variable '{node.name}' has no value in the checkpoint", where=str(self.path)
        )


def _source(nodes: Mapping[str, TensorflowNode], tensor: str) -> tuple[TensorflowNode | None, int]:
    """The node behind a tensor, through identities, and which of its outputs it is."""
    for _ in range(64):
        name, _, rest = tensor.partition(":")
        node = nodes.get(name)
        if node is None or node.op != "Identity" or not node.data_inputs:
            digits = rest.rpartition(":")[2]
            return node, int(digits) if digits.isdigit() else 0
        tensor = node.data_inputs[0]
    return None, 0


def _assigned(
    assignments: Iterable[TensorflowNode], nodes: Mapping[str, TensorflowNode], given: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Variables and the keys that nodes assign to them; `given` are the arguments of the function around."""
    texts: dict[str, list[str]] = {}
    for node in assignments:
        if node.op not in ("Assign", "AssignVariableOp") or len(node.data_inputs) < 2:
            continue
        target, value = node.data_inputs[:2]
        maker, index = _source(nodes, value)
        if maker is None or maker.op != "RestoreV2" or len(maker.data_inputs) < 2:
            continue
        names, _ = _source(nodes, maker.data_inputs[1])
        if names is not None and names.name not in texts:
            texts[names.name] = names.strings() if names.op == "Const" else []
        keys = [] if names is None else texts[names.name]
        if index < len(keys):
            variable = given.get(target.partition(":")[0], target)
            yield variable.partition(":")[0], keys[index]


def read_model(path: Path | str, signature: str = "", weights: Path | None = None) -> TensorflowModel:
    """Open a graph, or a SavedModel by its folder or its `saved_model.pb`.

    The variables of a graph that is not frozen are in a checkpoint: `weights`, or the one beside it.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "saved_model.pb"
        if not path.is_file():
            raise FileMissingError(
                "the folder has no saved_model.pb", where=str(path.parent), fix="Give a SavedModel folder"
            )
    path = existing_file(path)
    try:
        whole = WireMessage.whole(MappedFile(path))
        if is_saved_model(whole):
            if weights is not None:
                raise UsageError(
                    f"--weights '{weights}': a SavedModel has its variables inside", fix="Leave --weights out"
                )
            return _saved(path, whole, signature)
        return _bare(path, read_graph(whole), weights)
    except NpucError as error:
        error.where = error.where or str(path)
        raise


def is_saved_model(whole: WireMessage) -> bool:
    """A SavedModel begins with the number of its schema, a graph with a node."""
    for number, value in whole.fields():
        return (number == 1 and isinstance(value, int)) or (number == 2 and isinstance(value, WireMessage))
    return False


_VARIABLES = ("VariableV2", "Variable", "VarHandleOp")
_CHECKPOINT = ".index"
"""The end of the name of a checkpoint's table; a checkpoint is called by what is before it."""


def _checkpoint(path: Path, weights: Path | None) -> Path | None:
    """The checkpoint of a graph: what a user names, with or without the end of a file of it, or one of the graph's own name."""
    if weights is not None:
        name = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", weights.name)
        table = weights.with_name(f"{name}{_CHECKPOINT}")
        if not table.is_file():
            raise FileMissingError(
                "there is no such checkpoint",
                where=str(table),
                fix="Name it without .index and .data-00000-of-00001",
            )
        return weights.with_name(name)
    for name in (path.stem, f"{path.stem}.ckpt", "model.ckpt"):
        if path.with_name(f"{name}{_CHECKPOINT}").is_file():
            return path.with_name(name)
    return None


def _bare(path: Path, graph: GraphDef, weights: Path | None) -> TensorflowModel:
    """A graph by itself: its placeholders are the inputs, and what nothing reads the outputs."""
    if not graph.nodes:
        raise bad("it has no nodes")
    read = {name.lstrip("^").partition(":")[0] for node in graph.nodes.values() for name in node.inputs}
    inputs = [Port(node.name, node.name) for node in graph.nodes.values() if node.op == "Placeholder"]
    ends = [
        Port(node.name, node.name)
        for node in graph.nodes.values()
        if node.name not in read and node.op not in _UNREAD
    ]
    model = TensorflowModel(path, graph, tuple(inputs), tuple(ends))
    if weights is not None or any(node.op in _VARIABLES for node in graph.nodes.values()):
        model.prefix = _checkpoint(path, weights)
        if model.prefix is not None:
            model.restore = _restoring(graph)
            model.notes.append(f"variables were read from the checkpoint '{model.prefix.name}'")
    return model


def _restoring(graph: GraphDef) -> str:
    """The node that would restore the variables, if the graph has one of the usual name."""
    return next((name for name in graph.nodes if name.rpartition("/")[2] == "restore_all"), "")


def _saved(path: Path, whole: WireMessage, signature: str) -> TensorflowModel:
    graphs = list(whole.parts(2))
    chosen = next((g for g in graphs if "serve" in _tags(g)), graphs[0] if graphs else None)
    body = None if chosen is None else chosen.part(2)
    if chosen is None or body is None:
        raise bad("it holds no graph")
    signatures = {name: value for name, value in entries(chosen, 5).items() if name != _INIT}
    if not signatures:
        raise InvalidModelError(
            "the SavedModel has no signature, so nobody can tell its inputs and outputs",
            fix="Export it again with model.export(FOLDER), or save it as .keras",
        )
    name = signature or ("serving_default" if "serving_default" in signatures else sorted(signatures)[0])
    if name not in signatures:
        raise InvalidModelError(
            f"there is no signature '{name}'", fix=f"There are: {', '.join(sorted(signatures))}"
        )
    saver = chosen.part(3)
    restore = None if saver is None else saver.part(3)
    model = TensorflowModel(
        path,
        read_graph(body),
        _ports(signatures[name], 1),
        _ports(signatures[name], 2),
        restore="" if restore is None else restore.text,
        prefix=path.parent / "variables" / "variables",
        is_saved_model=True,
    )
    if len(signatures) > 1:
        others = ", ".join(f"'{other}'" for other in sorted(signatures) if other != name)
        model.notes.append(f"the signature '{name}' was imported; the file also has {others}")
    return model


def _tags(graph: WireMessage) -> list[str]:
    info = graph.part(1)
    return [] if info is None else [tag.text for tag in info.parts(4)]


def _ports(signature: WireMessage, number: int) -> tuple[Port, ...]:
    ports = []
    for name, info in sorted(entries(signature, number).items()):
        tensor = info.part(1)
        if tensor is None:
            raise InvalidModelError(f"the signature's '{name}' is no dense tensor")
        ports.append(Port(name, tensor.text))
    return tuple(ports)
