"""What the tensors of an exported program are called: after the modules that made them.

A module that is one op gives its path to the result (`layer1.0.conv1`); in a module of several ops each is the path and
the op (`layer1.0/add`). A program without module paths (TorchScript) has them from the parameters that an op uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from npuc.frontend.support import Names

_SILENT = ("getitem", "alias", "clone", "detach", "lift_fresh_copy", "full", "empty", "zeros")


def op_name(node: Any) -> str:
    """The short name of the op of a node: `conv2d` of `aten.conv2d.default`."""
    packet = getattr(node.target, "overloadpacket", None)
    name = getattr(packet, "__name__", None) or getattr(node.target, "__name__", str(node.target))
    return str(name).strip("_") or "op"


def _call(node: Any) -> tuple[str, str]:
    """The innermost module that a node belongs to: its path, and a key that tells its calls apart."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return "", ""
    key, entry = next(reversed(stack.items()))
    path = str(entry[0] if isinstance(entry, tuple) else entry)
    for prefix in ("L['self'].", "L__self__.", "L__self__"):
        path = path.removeprefix(prefix)
    return path, str(key)


def _owner(node: Any, owners: Mapping[Any, str]) -> str:
    """The module whose parameters a node uses."""
    modules = [owners[used].rpartition(".")[0] for used in node.all_input_nodes if used in owners]
    return modules[0] if modules else ""


def tensor_names(graph: Any, owners: Mapping[Any, str], inputs: Mapping[Any, str]) -> dict[Any, str]:
    """A name for every node; `owners` are the paths of parameters, `inputs` the names of inputs."""
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    places = {}
    for node in nodes:
        path, key = _call(node)
        if not path:
            path = key = _owner(node, owners)
        places[node] = (path, key)
    loud = Counter(place for node, place in places.items() if op_name(node) not in _SILENT)
    given = Names()
    names: dict[Any, str] = {}
    for node, name in inputs.items():
        names[node] = given.unique(name)
    for node in nodes:
        path, key = places[node]
        op = op_name(node)
        if op == "getitem" and node.args and node.args[0] in names:
            whole = names[node.args[0]]
            names[node] = whole if node.args[1] == 0 else given.unique(f"{whole}.{node.args[1]}")
            continue
        if not path:
            name = node.name
        elif loud[(path, key)] == 1 and op not in _SILENT:
            name = path
        else:
            name = f"{path}/{op}"
        names[node] = given.unique(name)
    return names
