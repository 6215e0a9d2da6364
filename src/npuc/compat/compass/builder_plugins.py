"""Builder plugins (`AIPUBuilder.core`): their classes can be derived from and registered; what they name cannot run here.

A builder plugin names an object file with machine code of the vendor's core. npuc compiles for its own instruction set: a network
with a layer that such a plugin claims is refused, with what takes its place, a kernel of npuc's (`npuc.plugins.api.kernel`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from npuc.compat.compass.parser_plugins import PLUGINS
from npuc.errors import PluginError


class DataLayout(Enum):
    """Orders of axes."""

    NCHW = "NCHW"
    NHWC = "NHWC"
    NCHWC16 = "NCHWC16"
    NCHWC32 = "NCHWC32"
    Flat = "Flat"


class OpTypeName(str):
    """The name of a type of layer."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """As the IR writes it."""
        return str(self)


class OpTypes:
    """Types of layers as attributes: `OpType.Softmax`."""

    def __getattr__(self, name: str) -> OpTypeName:
        if name.startswith("_"):
            raise AttributeError(name)
        return OpTypeName(name)


OpType = OpTypes()


def register_optype(name: str) -> OpTypeName:
    """The type of layer of a name."""
    if not isinstance(name, str) or not name:
        raise PluginError(f"{name!r} is no type of a layer")
    return OpTypeName(name)


class TensorShape(tuple[int, ...]):
    """The sides of a tensor."""

    def dim(self) -> int:
        """How many axes it has."""
        return len(self)


@dataclass
class Tensor:
    """A tensor of a layer."""

    name: str
    shape: TensorShape
    dtype: str = "float32"


@dataclass
class Node:
    """A layer as plugins see it."""

    name: str
    type: OpTypeName
    params: dict[str, Any] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


class BuilderParams(list[Any]):
    """Parameters of a kernel: integers and tensors, in their order."""


class BuilderOpPlugin:
    """What a builder plugin derives from; the methods are the plugin's own."""

    def get_graph_pattern(self) -> tuple[list[tuple[str, OpTypeName]], list[tuple[str, str]]]:
        """The layers and the edges that it claims."""
        raise NotImplementedError

    def get_score(self) -> int:
        """Of several plugins, the one with the highest score is taken."""
        return 0

    def set_target(self, target: str) -> bool:
        """Whether it knows a part."""
        return True

    def check_params(self, nodes: list[Node]) -> bool:
        """Whether it can do these layers."""
        return True

    def setup(self, sgnode: Node, nodes: list[Node]) -> bool:
        """Prepare the layer that stands for those that were claimed."""
        return True

    def generate_params(self, sgnode: Node, nodes: list[Node]) -> BuilderParams:
        """The parameters of the kernel."""
        return BuilderParams()

    def generate_descriptor(self, sgnode: Node, nodes: list[Node]) -> Any:
        """The descriptor of the kernel."""

    def generate_code_name(self, sgnode: Node, nodes: list[Node]) -> str:
        """The object file of the kernel."""
        raise NotImplementedError


def refuse_builder_plugins(types: set[str]) -> None:
    """An error if a layer belongs to a builder plugin."""
    for (kind, name), cls in PLUGINS.items():
        if kind != "Builder":
            continue
        try:
            claimed = [str(entry[1]) for entry in cls().get_graph_pattern()[0]]
        except Exception as error:
            raise PluginError(f"{name}.get_graph_pattern failed: {type(error).__name__}: {error}") from error
        if types & set(claimed):
            raise PluginError(
                f"the builder plugin {name} claims {', '.join(sorted(types & set(claimed)))}; its object file is machine code of "
                "the vendor's core",
                fix="Give npuc a kernel of your own: npuc.plugins.api.kernel (docs/plugins.md)",
            )


__all__ = [
    "BuilderOpPlugin",
    "BuilderParams",
    "DataLayout",
    "Node",
    "OpType",
    "Tensor",
    "TensorShape",
    "register_optype",
]
