"""`GraphDef`: nodes, their attributes, and the functions that they may call.

Attributes are decoded when a rule asks for them, so that the weights of a frozen graph stay in the file until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from npuc.errors import InvalidModelError, ResourceLimitError
from npuc.frontend.tensorflow.tensors import Shape, element_type, read_shape, read_strings, read_tensor
from npuc.frontend.tensorflow.wire import WireMessage, as_float, bad, signed
from npuc.ir import DType, Weight

MAX_NODES = 1 << 16
MAX_ARGUMENTS = 1 << 13
MAX_NAME = 1 << 11
"""Letters of the name of a node, and of what stands before it for the calls around it."""


@dataclass(frozen=True)
class TensorflowNode:
    """A `NodeDef`. Inputs are `name`, `name:1` or, in functions, `name:output:1`; `^name` only orders."""

    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, WireMessage] = field(repr=False)

    @property
    def label(self) -> str:
        """How messages speak of it."""
        return f"the node '{self.name}' ({self.op})"

    @property
    def data_inputs(self) -> tuple[str, ...]:
        """The inputs that carry data."""
        return tuple(name for name in self.inputs if not name.startswith("^"))

    def integer(self, name: str, default: int = 0) -> int:
        """An integer."""
        message = self.attributes.get(name)
        return default if message is None else signed(message.number(3))

    def real(self, name: str, default: float) -> float:
        """A number."""
        message = self.attributes.get(name)
        return default if message is None else as_float(message.number(4))

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        message = self.attributes.get(name)
        return default if message is None else bool(message.number(5))

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        message = self.attributes.get(name)
        part = None if message is None else message.part(2)
        return default if part is None else part.text

    def type_code(self, name: str, default: int = 0) -> int:
        """A `DataType` number."""
        message = self.attributes.get(name)
        return default if message is None else message.number(6, default)

    def dtype(self, name: str) -> DType:
        """An element type."""
        if name not in self.attributes:
            raise InvalidModelError(f"{self.label} has no attribute '{name}'")
        return element_type(self.type_code(name), self.label)

    def shape(self, name: str) -> Shape:
        """A shape, None if it is unknown."""
        message = self.attributes.get(name)
        return None if message is None else read_shape(message.part(7))

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A list of integers."""
        listed = self._list(name)
        return default if listed is None else tuple(signed(n) for n in listed.varints(3))

    def count(self, name: str) -> int:
        """How many element types a list of them has."""
        listed = self._list(name)
        return 0 if listed is None else sum(1 for _ in listed.varints(6))

    def _list(self, name: str) -> WireMessage | None:
        message = self.attributes.get(name)
        return None if message is None else message.part(1)

    def tensor(self, name: str = "value") -> Weight:
        """A constant of numbers."""
        return read_tensor(self._tensor(name), f"the constant '{self.name}'")

    def strings(self, name: str = "value") -> list[str]:
        """A constant of strings."""
        return read_strings(self._tensor(name))

    def _tensor(self, name: str) -> WireMessage:
        message = self.attributes.get(name)
        part = None if message is None else message.part(8)
        if part is None:
            raise InvalidModelError(f"{self.label} has no tensor '{name}'")
        return part

    def function(self, name: str) -> str:
        """The name of a function."""
        message = self.attributes.get(name)
        called = None if message is None else message.part(10)
        named = None if called is None else called.part(1)
        if named is None:
            raise InvalidModelError(f"{self.label} has no function '{name}'")
        return named.text

    def functions(self, name: str) -> list[str]:
        """The names of a list of functions."""
        listed = self._list(name)
        named = [] if listed is None else [called.part(1) for called in listed.parts(9)]
        if not named or None in named:
            raise InvalidModelError(f"{self.label} has no functions '{name}'")
        return [message.text for message in named if message is not None]


@dataclass(frozen=True)
class GraphFunction:
    """A `FunctionDef`: its nodes, the names of its arguments, and what its results are."""

    name: str
    nodes: Mapping[str, TensorflowNode]
    arguments: tuple[str, ...]
    results: tuple[tuple[str, str], ...]
    """Names, and the tensors that they are."""


@dataclass(frozen=True)
class GraphDef:
    """All nodes by name, in the order of the file, and the functions."""

    nodes: Mapping[str, TensorflowNode]
    functions: Functions


def readers_of(nodes: Mapping[str, TensorflowNode]) -> dict[str, list[TensorflowNode]]:
    """The nodes that read something of each node, in the order of the file."""
    readers: dict[str, list[TensorflowNode]] = {}
    for node in nodes.values():
        for name in dict.fromkeys(item.partition(":")[0] for item in node.data_inputs):
            readers.setdefault(name, []).append(node)
    return readers


def _text(message: WireMessage | None, what: str) -> str:
    if message is None:
        raise bad(f"{what} has no name")
    return message.text


def entries(message: WireMessage, number: int) -> dict[str, WireMessage]:
    """A map from names to messages, as protobuf keeps one."""
    return _map(message.parts(number))


def _map(parts: Iterable[WireMessage]) -> dict[str, WireMessage]:
    entries = {}
    for entry in parts:
        key, value = None, None
        for at, item in entry.fields():
            if isinstance(item, WireMessage):
                key, value = (item, value) if at == 1 else (key, item) if at == 2 else (key, value)
        if key is not None:
            entries[key.text] = value if value is not None else _nothing(entry)
    return entries


def _nothing(message: WireMessage) -> WireMessage:
    return WireMessage(message.file, message.end, message.end, message.meter)


def _node(message: WireMessage) -> TensorflowNode:
    name = op = None
    inputs = []
    attributes = []
    for number, value in message.fields():
        if not isinstance(value, WireMessage):
            continue
        if number == 1:
            name = value
        elif number == 2:
            op = value
        elif number == 3:
            inputs.append(value.text)
        elif number == 5:
            attributes.append(value)
    title = _text(name, "a node")
    if len(title) > MAX_NAME:
        raise ResourceLimitError(f"the name of the node '{title[:60]}...' has {len(title)} letters")
    return TensorflowNode(title, _text(op, "a node"), tuple(inputs), _map(attributes))


def _nodes(message: WireMessage, number: int) -> dict[str, TensorflowNode]:
    parts = list(islice(message.parts(number), MAX_NODES + 1))
    if len(parts) > MAX_NODES:
        raise ResourceLimitError(f"the graph has more than {MAX_NODES} nodes")
    nodes: dict[str, TensorflowNode] = {}
    for part in parts:
        node = _node(part)
        if node.name in nodes:
            raise InvalidModelError(f"two nodes are called '{node.name}'")
        nodes[node.name] = node
    return nodes


class Functions:
    """The functions of a file by name; one is decoded when it is asked for, for a file has many that nothing calls."""

    def __init__(self, parts: Iterable[WireMessage] = ()) -> None:
        self._parts: dict[str, tuple[WireMessage, WireMessage]] = {}
        self._found: dict[str, GraphFunction] = {}
        for part in parts:
            signature = part.part(1)
            if signature is None:
                raise bad("a function has no signature")
            self._parts[_text(signature.part(1), "a function")] = part, signature

    def get(self, name: str) -> GraphFunction | None:
        """A function, or None."""
        if name not in self._found and name in self._parts:
            self._found[name] = _function(name, *self._parts[name])
        return self._found.get(name)


def _function(name: str, message: WireMessage, signature: WireMessage) -> GraphFunction:
    parts = list(islice(signature.parts(2), MAX_ARGUMENTS + 1))
    if len(parts) > MAX_ARGUMENTS:
        raise ResourceLimitError(f"the function '{name[:60]}' has more than {MAX_ARGUMENTS} arguments")
    arguments = tuple(_text(part.part(1), "an argument") for part in parts)
    returned = {key: value.text for key, value in entries(message, 4).items()}
    outputs = [_text(arg.part(1), "a result") for arg in signature.parts(3)]
    if any(output not in returned for output in outputs):
        raise InvalidModelError(f"the function '{name}' does not say what its results are")
    results = tuple((output, returned[output]) for output in outputs)
    return GraphFunction(name, _nodes(message, 3), arguments, results)


def read_graph(message: WireMessage) -> GraphDef:
    """Decode a `GraphDef`."""
    library = message.part(2)
    return GraphDef(_nodes(message, 1), Functions(library.parts(1) if library is not None else ()))
