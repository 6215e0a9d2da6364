"""A network of layers as data, and the part of it between asked tensors.

Every tensor has one name and one maker: a format that lets layers write in place gives each version a name first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from npuc.errors import DynamicShapeError, InvalidModelError, ResourceLimitError, UsageError
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import check_inputs, check_rank, possible_shape
from npuc.frontend.support import check_names

Shape = tuple[int, ...]


@dataclass(frozen=True)
class NetworkLayer:
    """One layer: what it is called, what kind it is, and the tensors that it takes and makes."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    data: Any = None
    """Its parameters, as its format has them."""

    @property
    def label(self) -> str:
        """How messages speak of it."""
        return f"the layer '{self.name}' ({self.kind})"


@dataclass(frozen=True)
class LayeredNetwork:
    """Layers in order, with the inputs (their shapes, None where the file does not say) and the outputs."""

    layers: tuple[NetworkLayer, ...]
    inputs: Mapping[str, Shape | None]
    outputs: tuple[str, ...]
    aliases: Mapping[str, str]
    """Other names that a user may call tensors by."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The element types of inputs that take no float32 numbers."""

    @cached_property
    def names(self) -> dict[str, str]:
        """Every name that a user may call a tensor by, and the name that the tensor has."""
        outputs = [name for layer in self.layers for name in layer.outputs]
        own = {name: name for name in (*self.inputs, *outputs)}
        return own | {name: tensor for name, tensor in self.aliases.items() if name not in own}


@dataclass(frozen=True)
class Part:
    """What an import takes of a network."""

    layers: tuple[NetworkLayer, ...]
    inputs: dict[str, Shape]
    constants: dict[str, str]
    outputs: tuple[tuple[str, str], ...]
    """The user's name and the tensor."""


def cut(network: LayeredNetwork, options: ImportOptions) -> Part:
    """The layers between the asked inputs and outputs; every asked name exists."""
    check_names(options.outputs, network.names, "--outputs")
    check_names(options.constants, network.inputs, "--constant")
    real = network.names
    outputs = tuple((name, real[name]) for name in options.outputs or network.outputs)
    if not outputs:
        raise InvalidModelError("the network has no outputs")
    begins = [real[name] for name in options.inputs]
    begins = begins or [name for name in network.inputs if name not in options.constants]
    layers = _needed(network, {*begins, *options.constants}, [tensor for _, tensor in outputs])
    used = {name for layer in layers for name in layer.inputs} | {tensor for _, tensor in outputs}
    if not options.inputs:
        begins = [name for name in begins if name in used] or begins
    shapes = {real.get(name, name): shape for name, shape in options.input_shapes.items()}
    check_inputs(begins, shapes, options.constants)
    for name, shape in shapes.items():
        check_rank(name, network.inputs.get(name), shape)
    inputs = {name: known_shape(name, shapes.get(name) or network.inputs.get(name)) for name in begins}
    return Part(layers, inputs, dict(options.constants), outputs)


def known_shape(name: str, shape: Shape | None) -> Shape:
    """The shape of an input, which has to be known and possible."""
    if shape is None:
        raise DynamicShapeError(
            f"the shape of the input '{name}' is not known", fix=f"Add --input-shape '{name}=1,3,224,224'"
        )
    if 0 in shape:
        raise ResourceLimitError(f"the input '{name}' has the impossible shape {list(shape)}")
    return possible_shape(name, shape)


def _needed(network: LayeredNetwork, given: set[str], outputs: list[str]) -> tuple[NetworkLayer, ...]:
    makers = {name: index for index, layer in enumerate(network.layers) for name in layer.outputs}
    keep: set[int] = set()
    visited: set[str] = set()
    stack = list(outputs)
    while stack:
        name = stack.pop()
        if name in given or name in visited:
            continue
        visited.add(name)
        if name in makers:
            if makers[name] not in keep:
                keep.add(makers[name])
                stack.extend(network.layers[makers[name]].inputs)
        elif name in network.inputs:
            raise UsageError(
                f"the outputs still need the input '{name}'", fix="Add it to --inputs, or cut after it"
            )
        else:
            raise InvalidModelError(f"nothing makes the tensor '{name}'")
    return tuple(layer for index, layer in enumerate(network.layers) if index in keep)
