"""A Caffe model on disk: the text that says what the layers are, and the binary file with their weights.

Either may be missing. Weights alone say what the layers are, too; a text alone gets random weights. Caffe's layers write
in place, so every version of a blob gets a name of its own here: the last one that of the blob, an earlier one that of the
layer that made it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from npuc.errors import InvalidModelError, NpucError
from npuc.files import existing_file
from npuc.frontend.caffe.blobs import Blobs
from npuc.frontend.caffe.layers import SOURCES, RawLayer, blobs_of, layers_of
from npuc.frontend.caffe.message import CaffeMessage
from npuc.frontend.caffe.text import parse_file
from npuc.frontend.caffe.wire import decode
from npuc.frontend.layered.network import LayeredNetwork, NetworkLayer, Shape
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.frontend.support import Names
from npuc.ir import DType, MappedFile, dtype_of


@dataclass(frozen=True)
class Maker:
    """The layer that makes a tensor, as which of its tops, and the blob that it is."""

    layer: str
    place: int
    blob: str


@dataclass(frozen=True)
class CaffeSource:
    """A model that has been read."""

    net: CaffeMessage
    network: LayeredNetwork
    blobs: Blobs
    makers: dict[str, Maker]
    """What other programs know tensors by."""
    notes: tuple[str, ...]
    without_weights: str
    """What to tell the user of a network that needs weights and has none."""


def read(path: Path, options: ImportOptions) -> CaffeSource:
    """Read a `.prototxt` or a `.caffemodel`, with the other one if it is named or lies beside it."""
    net, binary, notes = _parts(path, options)
    stored = None if binary is None else blobs_of(binary[0])
    blobs = Blobs(stored, None if binary is None else binary[1])
    network, makers = _network(net)
    without = f"the weights are random: there is no {path.stem}.caffemodel beside {path.name}, and --weights was not given"
    return CaffeSource(net, network, blobs, makers, tuple(notes), without)


def declared_inputs(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The inputs of a network; they are all float32."""
    net, _, _ = _parts(path, options)
    network, _ = _network(net)
    used = {name for layer in network.layers for name in layer.inputs}
    return {name: dtype_of("f32") for name in network.inputs if name in used or name in network.outputs}


def _parts(
    path: Path, options: ImportOptions
) -> tuple[CaffeMessage, tuple[CaffeMessage, Path] | None, list[str]]:
    """What says the layers, what has the weights and where, and what the user should know."""
    if _is_text(path):
        weights = options.weights or path.with_suffix(".caffemodel")
        if options.weights is not None or weights.is_file():
            return parse_file(path), (_decoded(existing_file(weights)), weights), []
        return parse_file(path), None, []
    binary = _decoded(path)
    beside = path.with_suffix(".prototxt")
    if beside.is_file() and _is_text(beside):
        return parse_file(beside), (binary, path), [f"the layers are those of {beside.name}"]
    if not layers_of(binary):
        raise InvalidModelError("there are no layers in it", fix="Give the .prototxt that says what they are")
    return binary, (binary, path), []


def _decoded(path: Path) -> CaffeMessage:
    try:
        return decode(memoryview(MappedFile(path).buffer))
    except NpucError as error:
        error.where = str(path)
        raise


def _is_text(path: Path) -> bool:
    return describe_content(path).kind == "caffe"


def _shapes(net: CaffeMessage, layers: list[RawLayer]) -> dict[str, Shape | None]:
    names = net.strings("input")
    shapes = [shape.ints("dim") for shape in net.messages("input_shape")]
    dims = net.ints("input_dim")
    if dims and not shapes:
        if len(dims) != 4 * len(names):
            raise InvalidModelError(f"{len(names)} inputs, but {len(dims)} numbers of input_dim")
        shapes = [dims[4 * i : 4 * i + 4] for i in range(len(names))]
    inputs: dict[str, Shape | None] = {
        name: shapes[min(i, len(shapes) - 1)] if shapes else None for i, name in enumerate(names)
    }
    for layer in layers:
        if layer.kind not in SOURCES:
            continue
        given = [shape.ints("dim") for shape in layer.message.message("input_param").messages("shape")]
        given += [shape.ints("dim") for shape in layer.message.message("dummy_data_param").messages("shape")]
        memory = layer.message.message("memory_data_param")
        if memory.has("batch_size"):
            given = [tuple(memory.int(key) for key in ("batch_size", "channels", "height", "width"))]
        for i, top in enumerate(layer.tops):
            inputs[top] = given[min(i, len(given) - 1)] if given else None
    return inputs


def _network(net: CaffeMessage) -> tuple[LayeredNetwork, dict[str, Maker]]:
    everything = layers_of(net)
    inputs = _shapes(net, everything)
    layers = [layer for layer in everything if layer.kind not in SOURCES]
    aliases = {layer.name: layer.tops[0] for layer in layers if layer.tops and layer.kind == "Dropout"}
    # A dropout in place changes nothing; without it, the blob that it stands on keeps its one version.
    layers = [layer for layer in layers if not (layer.kind == "Dropout" and layer.tops == layer.bottoms)]
    left = Counter(top for layer in layers for top in layer.tops)
    names = Names()
    for blob in (*inputs, *left):
        names.unique(blob)
    # An input that a layer overwrites keeps its name; the versions after it are known by their layers.
    current = {name: name for name in inputs}
    makers: dict[str, Maker] = {}
    network_layers: list[NetworkLayer] = []
    for layer in layers:
        takes = []
        for blob in layer.bottoms:
            if blob not in current:
                raise InvalidModelError(
                    f"the layer '{layer.name}' takes '{blob}', which nothing before it makes"
                )
            takes.append(current[blob])
        gives = []
        for place, blob in enumerate(layer.tops):
            left[blob] -= 1
            last = left[blob] == 0 and blob not in inputs
            name = (
                blob
                if last
                else names.unique(layer.name if layer.name not in left else f"{blob}/{layer.kind}")
            )
            current[blob] = name
            makers[name] = Maker(layer.name, place, blob)
            gives.append(name)
        if gives:
            aliases.setdefault(layer.name, gives[0])
        network_layers.append(NetworkLayer(layer.name, layer.kind, tuple(takes), tuple(gives), layer))
    used = {name for layer in network_layers for name in layer.inputs}
    outputs = tuple(name for layer in network_layers for name in layer.outputs if name not in used)
    return LayeredNetwork(tuple(network_layers), inputs, outputs, aliases), makers
