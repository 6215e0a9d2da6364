"""What a graph of torch's computes, as a key of the cache: its nodes as text, its weights as bytes.

A graph that calls something whose code npuc cannot know (a function of the user's, a module with a state, a graph in a graph)
has no key: it is converted every time.
"""

from __future__ import annotations

import builtins
from typing import Any

import torch

from npuc.integrations.conversion_cache import ConversionKey, plain
from npuc.integrations.torch.tensors import array_of

_LIBRARIES = ("torch", "_operator", "operator", "math", "builtins")
_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format)


def add_graph(key: ConversionKey, graph: torch.fx.GraphModule, examples: tuple[torch.Tensor, ...]) -> None:
    """Add a graph with its constants, at the shapes of these inputs; `TypeError` if it has no key."""
    key.add(f"torch {torch.__version__} {torch.get_default_dtype()}")
    for example in examples:
        key.add(f"{example.dtype} {tuple(example.shape)}")
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            value: Any = graph
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"{node.target} is a {type(value).__name__}")
            key.add(f"{node.name} = {node.target} {value.dtype}")
            key.add_array(array_of(value))
        else:
            key.add(f"{node.name} = {node.op} {_callee(node)} {_text(node.args)} {_text(node.kwargs)}")


def _callee(node: torch.fx.Node) -> str:
    if node.op != "call_function":
        if node.op == "call_module":
            raise TypeError(f"{node.target} is a module")
        return str(node.target)
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        if str(node.target).partition(".")[0] not in ("aten", "prims"):
            raise TypeError(f"{node.target} is no operator of torch's own")
        return f"torch.ops.{node.target}"
    module = str(getattr(node.target, "__module__", None) or "")
    name = str(getattr(node.target, "__qualname__", None) or getattr(node.target, "__name__", ""))
    is_known = module.partition(".")[0] in _LIBRARIES or getattr(builtins, name, None) is node.target
    if not name or "<" in name or not (is_known or _is_of_torch(node.target, name)):
        raise TypeError(f"{node.target} is no function of torch's own")
    return f"{module}.{name}"


def _is_of_torch(function: Any, name: str) -> bool:
    """Whether a function of C, which has no module, is one of torch's."""
    plain_name = name.rpartition(".")[2]
    return any(
        getattr(place, plain_name, None) is function for place in (torch, torch.nn.functional, torch.Tensor)
    )


def _text(value: Any) -> str:
    def words(part: Any) -> Any:
        if isinstance(part, torch.fx.Node):
            return f"%{part.name}"
        if isinstance(part, _WORDS):
            return f"torch {part}"
        if isinstance(part, tuple | list):
            return type(part)(map(words, part)) if type(part) in (tuple, list) else tuple(map(words, part))
        if isinstance(part, dict):
            return {name: words(each) for name, each in part.items()}
        if isinstance(part, slice):
            return slice(words(part.start), words(part.stop), words(part.step))
        return part

    return plain(words(value))
