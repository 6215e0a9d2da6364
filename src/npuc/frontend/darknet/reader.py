"""A Darknet network: the layers of a `.cfg` and how they are connected.

A layer takes the one before it, unless its section says otherwise, and has no name: tensors are called by the number and
the kind of their layer, as `16_yolo`. The heads ([yolo], [region], [detection]) are cut off unless `--outputs` asks for
them: what goes into a head is an output of the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npuc.errors import InvalidModelError
from npuc.files import existing_file
from npuc.frontend.darknet.cfg import Section, parse_file
from npuc.frontend.darknet.weights import DarknetWeights
from npuc.frontend.layered.network import LayeredNetwork, NetworkLayer, Shape
from npuc.frontend.options import ImportOptions
from npuc.ir import DType, dtype_of

INPUT = "data"
HEADS = frozenset({"yolo", "region", "detection", "gaussian_yolo"})
_IGNORED = frozenset({"cost"})
_LONG = {
    "conv": "convolutional",
    "deconv": "deconvolutional",
    "conn": "connected",
    "max": "maxpool",
    "avg": "avgpool",
    "soft": "softmax",
    "lrn": "normalization",
    "drop": "dropout",
}


@dataclass(frozen=True)
class DarknetSource:
    """A model that has been read."""

    net: Section
    sections: tuple[Section, ...]
    network: LayeredNetwork
    weights: DarknetWeights
    without_weights: str
    """What to tell the user of a network that needs weights and has none."""


def read(path: Path, options: ImportOptions) -> DarknetSource:
    """Read a `.cfg`, with the weights that are named or lie beside it."""
    net, sections = parse_file(path)
    file = options.weights or path.with_suffix(".weights")
    given = options.weights is not None or file.is_file()
    weights = DarknetWeights(existing_file(file) if given else None)
    without = (
        f"the weights are random: there is no {file.name} beside {path.name}, and --weights was not given"
    )
    return DarknetSource(net, tuple(sections), _network(net, sections), weights, without)


def declared_inputs(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The input of a network, which is float32."""
    return {INPUT: dtype_of("f32")}


def tensor_name(index: int, kind: str) -> str:
    """The name of the tensor that a layer makes."""
    return f"{index}_{kind}"


def _shape(net: Section) -> Shape:
    if net.has("inputs") and not net.has("height"):
        return (1, net.int("inputs", 0, 1))
    names = ("channels", "height", "width")
    if not all(net.has(name) for name in names[1:]):
        raise InvalidModelError("the section [net] has no height and width")
    return (1, *(net.int(name, 3, 1, 1 << 16) for name in names))


def _sources(section: Section, index: int) -> list[int]:
    """The layers that a layer takes; -1 is the input of the network."""
    before = [index - 1]
    key = {"route": "layers", "shortcut": "from", "sam": "from", "scale_channels": "from"}.get(section.kind)
    if key is None:
        return before
    given = section.ints(key)
    if not given:
        raise InvalidModelError(f"{section.label} has no '{key}'")
    layers = [number + index if number < 0 else number for number in given]
    if any(not 0 <= number < index for number in layers):
        raise InvalidModelError(f"{section.label}: {key}={section.values[key][:60]} is not a layer before it")
    return layers if section.kind == "route" else [*before, *layers]


def _network(net: Section, sections: list[Section]) -> LayeredNetwork:
    names: list[str] = []
    layers: list[NetworkLayer] = []
    heads: list[str] = []
    for index, section in enumerate(sections):
        kind = _LONG.get(section.kind, section.kind)
        sources = [INPUT if number < 0 else names[number] for number in _sources(section, index)]
        if kind in _IGNORED:
            names.append(sources[0])
            continue
        name = tensor_name(index, kind)
        names.append(name)
        layers.append(NetworkLayer(name, kind, tuple(sources), (name,), section))
        if kind in HEADS:
            heads.append(sources[0])
    if not layers:
        raise InvalidModelError("there are no layers in it")
    used = {name for layer in layers for name in layer.inputs}
    last = [layer.outputs[0] for layer in layers if layer.kind not in HEADS and layer.outputs[0] not in used]
    outputs = tuple(dict.fromkeys([*heads, *last]))
    return LayeredNetwork(tuple(layers), {INPUT: _shape(net)}, outputs, {})
