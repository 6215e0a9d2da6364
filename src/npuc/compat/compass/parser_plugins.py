"""Parser plugins (`AIPUBuilder.Parser.plugin_loader`, `.plugin_op`): their classes, registered and checked.

`npuc.compat.compass.parser_layers` imports operators with them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, unique
from typing import Any, TypeVar

from npuc.errors import PluginError
from npuc.registries import Registry

_ClassT = TypeVar("_ClassT", bound=type)
PLUGINS: Registry[tuple[str, str], Any] = Registry("a plugin of Compass")
"""Classes by the kind of plugin and the name: the type of operator of a parser plugin, else the name of the class."""


@unique
class PluginType(Enum):
    """Kinds of plugins of the parser and the builder."""

    Parser = 0x200
    Builder = 0x314
    Checker = 0x315


class ParserOp:
    """What a parser plugin derives from."""

    op_type: str | None = None
    alias_op_type: str | None = None
    priority = 0
    start_nodes: Any = None
    end_nodes: Any = None
    pattern_nodes: Any = None
    pattern_edges: Any = None
    input_nodes: Any = None
    input_shapes: Any = None

    def __init__(self, framework: str, op_info: Any) -> None:
        self.params: OrderedDict[str, Any] = OrderedDict()
        self.constants: OrderedDict[str, Any] = OrderedDict()
        self.removed_inputs: list[tuple[int, int]] = []

    def infer_shape(self, input_tensors: Any, *args: Any) -> Any:
        """The results for inputs; the plugin's own."""
        raise NotImplementedError(f"{type(self).__name__} has no infer_shape")

    def remove_inputs_at(self, tensor_index: int, node_index: int = 0) -> None:
        """Leave out an input after the shapes are inferred."""
        if not isinstance(tensor_index, int) or not isinstance(node_index, int):
            raise PluginError("remove_inputs_at takes integers")
        self.removed_inputs.append((node_index, tensor_index))


def version_of(version: object) -> float:
    """A version as a number: `1.2.3` is 1.23.

    >>> version_of("2.0"), version_of("1.2.3")
    (2.0, 1.23)
    """
    first, *rest = str(version).strip().split(".")
    try:
        return float(f"{first}.{''.join(rest) or 0}")
    except ValueError:
        raise PluginError(f"'{version}' is no version of a plugin") from None


def register_plugin(
    type: PluginType = PluginType.Parser,
    version: str | float = 0,
) -> Callable[[_ClassT], _ClassT]:
    """Class decorator: register a plugin; of two for the same operator, the higher version wins, and of equal ones the later."""
    if not isinstance(type, PluginType):
        raise PluginError(f"{type!r} is no PluginType of the parser or the builder")

    number = version_of(version)

    def register(cls: _ClassT) -> _ClassT:
        name = cls.__name__
        if type is PluginType.Parser:
            _check(cls)
            name = str(getattr(cls, "op_type", None))
        known = PLUGINS.get((type.name, name))
        if known is None or known.compass_version <= number:
            cls.compass_version = number  # type: ignore[attr-defined]
            PLUGINS.add([(type.name, name)], cls, replace=True, module=cls.__module__)
        return cls

    return register


def _check(cls: type) -> None:
    """A parser plugin states an operator, and at most one kind of subgraph, wholly."""
    if not issubclass(cls, ParserOp):
        raise PluginError(f"{cls.__name__} is a parser plugin, and has to be a subclass of ParserOp")
    if not cls.op_type:
        raise PluginError(f"{cls.__name__} states no op_type")
    pairs = [(cls.start_nodes, cls.end_nodes), (cls.pattern_nodes, cls.pattern_edges)]
    if any((first is None) != (second is None) for first, second in pairs):
        raise PluginError(f"{cls.__name__} states half of a subgraph")
    nodes, shapes = cls.input_nodes, cls.input_shapes
    if nodes is not None and not (
        isinstance(nodes, list | tuple) and isinstance(shapes, list | tuple) and len(nodes) == len(shapes)
    ):
        raise PluginError(f"{cls.__name__}: input_nodes and input_shapes are lists of one length")
    if all(first is not None for first, _ in pairs):
        raise PluginError(f"{cls.__name__} states two kinds of subgraphs")


__all__ = ["ParserOp", "PluginType", "register_plugin"]
