"""What dynamo hands over, as a network: arguments sorted, weights and numbers bound, names of the user's own.

Parameters and buffers are arguments of dynamo's graphs, and so are sizes that vary and, with `dynamic=True`, the Python floats of
modules. A network that is quantized has its weights as constants; what is left as its inputs are the tensors that change from
call to call ("live").
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

_PART = re.compile(r"\['([^']*)'\]|\.(\w+)|\[(\d+)\]")
_CONTAINERS = ("_modules", "_parameters", "_buffers")


class ArgumentKind(Enum):
    """What an argument of a graph is to the network."""

    WEIGHT = "weight"
    NUMBER = "number"
    FLOAT = "float"
    """A Python float that comes as a tensor of rank 0."""
    LIVE = "live"


@dataclass(frozen=True)
class Argument:
    """An argument of dynamo's graph."""

    position: int
    kind: ArgumentKind
    name: str
    """As the user calls it: a name of the state_dict, or of an argument of `forward`."""


def arguments_of(module: torch.fx.GraphModule, examples: Sequence[Any]) -> list[Argument]:
    """The arguments of a graph in order; names are unique."""
    arguments: list[Argument] = []
    taken: set[str] = set()
    for position, (node, example) in enumerate(zip(_placeholders(module), examples, strict=True)):
        kind = _kind(node, example)
        name = readable_name(_source(node)) or str(node.target)
        if kind is not ArgumentKind.WEIGHT:
            name = name.replace(".", "_")
        while name in taken:
            name += "_"
        taken.add(name)
        arguments.append(Argument(position, kind, name))
    return arguments


def readable_name(source: str) -> str:
    """The name that a user has for where dynamo found a value; empty if it cannot be read.

    >>> readable_name("L['self']._modules['stem']._modules['0']._parameters['weight']")
    'stem.0.weight'
    >>> readable_name("L['x']"), readable_name("L['args'][0]"), readable_name("L['kwargs']['mask']")
    ('x', 'args_0', 'mask')
    """
    if not source.startswith(("L", "G")):
        return ""
    parts = ["".join(match) for match in _PART.findall(source[1:])]
    if "".join(match.group() for match in _PART.finditer(source[1:])) != source[1:] or not parts:
        return ""
    if _is_of_module(source):
        return ".".join(part for part in parts[1:] if part not in _CONTAINERS)
    if parts[0] == "kwargs" and len(parts) > 1:
        parts = parts[1:]
    return "_".join(part for part in parts if part not in _CONTAINERS)


def _is_of_module(source: str) -> bool:
    """Whether a value belongs to the model rather than to a call: an attribute of `self`, or a global."""
    return source.startswith(("L['self'].", "L['fn'].", "L['mod'].", "G['"))


def _placeholders(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _source(node: torch.fx.Node) -> str:
    source = getattr(node, "_dynamo_source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def _kind(node: torch.fx.Node, example: Any) -> ArgumentKind:
    if not isinstance(example, torch.Tensor):
        return ArgumentKind.NUMBER
    if getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False):
        return ArgumentKind.FLOAT
    marked = "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})
    if marked or isinstance(example, torch.nn.Parameter) or _is_of_module(_source(node)):
        return ArgumentKind.WEIGHT
    return ArgumentKind.LIVE


@dataclass(frozen=True)
class Results:
    """What a graph returns, and where each result comes from."""

    computed: tuple[int, ...]
    """For each result, its place among those that the network computes; -1 for an argument that is returned as it is."""
    arguments: tuple[int, ...]
    """For each result, the position of the argument that it is; -1 for one that is computed."""

    @property
    def count(self) -> int:
        """How many different tensors the network computes."""
        return max(self.computed, default=-1) + 1


def results_of(module: torch.fx.GraphModule) -> Results:
    """The results of a graph: each tensor is computed once, and arguments are handed through."""
    positions = {node: position for position, node in enumerate(_placeholders(module))}
    places: dict[Any, int] = {}
    computed, arguments = [], []
    for node in _returned(module):
        if node in positions:
            computed.append(-1)
            arguments.append(positions[node])
        else:
            computed.append(places.setdefault(node, len(places)))
            arguments.append(-1)
    return Results(tuple(computed), tuple(arguments))


def _returned(module: torch.fx.GraphModule) -> list[Any]:
    output = next(node for node in module.graph.nodes if node.op == "output")
    results = output.args[0]
    return list(results) if isinstance(results, tuple | list) else [results]


def bound(
    module: torch.fx.GraphModule, arguments: Sequence[Argument], values: Sequence[Any]
) -> torch.fx.GraphModule:
    """A copy of a graph that takes the live arguments alone, by their names; all others have the given values.

    It returns each computed tensor once.
    """
    graph = copy.deepcopy(module.graph)
    root = torch.nn.Module()
    for name, attribute in module.__dict__.get("_modules", {}).items():
        root.add_module(name, attribute)
    for node in graph.nodes:
        if node.op == "get_attr":
            _attach(root, str(node.target), _attribute(module, str(node.target)))
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    for argument, node, value in zip(arguments, nodes, values, strict=True):
        if argument.kind is ArgumentKind.LIVE:
            node.target = argument.name
        elif argument.kind is ArgumentKind.WEIGHT:
            with graph.inserting_before(node):
                path = _attach(root, argument.name, value.detach())
                node.replace_all_uses_with(graph.get_attr(path))
            graph.erase_node(node)
        else:
            _replace_number(graph, node, value)
    output = next(node for node in graph.nodes if node.op == "output")
    live = {node for node in graph.nodes if node.op == "placeholder"}
    attributes = {node for node in graph.nodes if node.op == "get_attr"}
    kept = [node for node in output.args[0] if node not in live and node not in attributes]
    output.args = (tuple(dict.fromkeys(kept)),)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(root, graph)


def _replace_number(graph: torch.fx.Graph, node: torch.fx.Node, value: Any) -> None:
    """Put a number in the place of an argument; a float that comes as a tensor is read with `.item()`."""
    number = value.item() if isinstance(value, torch.Tensor) else value
    for user in list(node.users):
        if isinstance(value, torch.Tensor) and user.op == "call_method" and user.target == "item":
            _replace_by(user, number)
            graph.erase_node(user)
    if isinstance(value, torch.Tensor) and node.users:
        with graph.inserting_before(node):
            tensor = graph.call_function(torch.tensor, (number,), {"dtype": value.dtype})
        node.replace_all_uses_with(tensor)
    else:
        _replace_by(node, number)
    graph.erase_node(node)


def _replace_by(node: torch.fx.Node, number: Any) -> None:
    for user in list(node.users):
        user.args = torch.fx.map_arg(user.args, lambda each: number if each is node else each)
        user.kwargs = torch.fx.map_arg(user.kwargs, lambda each: number if each is node else each)


def _attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _attach(root: torch.nn.Module, path: str, value: Any) -> str:
    """Put a tensor or module at a dotted path; returns the path, which differs where its parts are taken."""
    if not isinstance(value, torch.Tensor | torch.nn.Module):
        setattr(root, path, value)
        return path
    owner, parts = root, path.split(".")
    for part in parts[:-1]:
        if not hasattr(owner, part):
            owner.add_module(part, torch.nn.Module())
        if not isinstance(getattr(owner, part), torch.nn.Module):
            return _attach(root, path.replace(".", "_") + "_", value)
        owner = getattr(owner, part)
    if hasattr(owner, parts[-1]):
        if getattr(owner, parts[-1]) is value:
            return path
        return _attach(root, path + "_", value)
    if isinstance(value, torch.nn.Module):
        owner.add_module(parts[-1], value)
    else:
        owner.register_buffer(parts[-1], value)
    return path
