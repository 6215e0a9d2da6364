"""X_inputmeta.yml: where the samples of a network are, and how they become its inputs.

    input_meta:
      databases:
      - path: dataset.txt
        type: TEXT
        ports:
        - lid: data_0
          category: image
          layout: nchw
          shape: [1, 3, 224, 224]
          preprocess: {reverse_channel: false, mean: [128, 128, 128], scale: 0.0078125, preproc_node_params: {...}}

A pixel becomes (pixel - mean) * scale. Images are resized to the shape; arrays (`.npy`, `.tensor`) are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from npuc.calib.several import open_places
from npuc.calib.sources import DataOptions, Source
from npuc.compat.acuity.layers import input_lids, lid_of, names_of
from npuc.compat.running import warn
from npuc.errors import FileFormatError, UsageError
from npuc.files import existing_file, read_short, write_atomically
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, shape_of
from npuc.ir.passes import run_pipeline
from npuc.plain_yaml import load_yaml
from npuc.transform import CANONICAL

_MAX_FILE = 4 << 20
_NHWC = ("tensorflow", "tflite", "keras")
"""Frameworks whose images have their channels last."""
_FORMATS = {1: "gray", 3: "rgb", 4: "rgba"}
_SOURCES = {
    "IMAGE_RGB": "rgb", "IMAGE_BGR": "bgr", "IMAGE_GRAY": "gray", "IMAGE_I420": "i420", "IMAGE_NV12": "nv12",
    "IMAGE_NV21": "nv21", "IMAGE_YUYV422": "yuyv", "IMAGE_UYVY422": "uyvy", "TENSOR": "",
}  # fmt: skip
"""What a program with preprocessing inside takes, by the names of `preproc_type`."""
_KINDS = ("TEXT", "NPY")


@dataclass(frozen=True)
class InputPort:
    """One input, as the file has it."""

    lid: str
    shape: tuple[int, ...]
    category: str = "image"
    layout: str = "nchw"
    reverse_channel: bool = False
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    node: Mapping[str, Any] = field(default_factory=dict)
    """`preproc_node_params`."""


@dataclass(frozen=True)
class Database:
    """A file of samples, and the inputs that they are for."""

    path: str
    ports: tuple[InputPort, ...]
    kind: str = "TEXT"


@dataclass(frozen=True)
class InputMeta:
    """The whole file."""

    databases: tuple[Database, ...]
    path: Path

    @property
    def ports(self) -> list[InputPort]:
        """All inputs, in order."""
        return [port for database in self.databases for port in database.ports]

    @property
    def batch(self) -> int:
        """The first side of the first input."""
        return self.ports[0].shape[0] if self.ports and self.ports[0].shape else 1


def default_meta(
    graph: Graph,
    platform: str,
    files: Sequence[str],
    values: Sequence[Sequence[float]],
    separated: bool,
    path: Path,
) -> InputMeta:
    """What `pegasus generate inputmeta` writes; `values` are means and a scale for each input."""
    names = names_of(graph)
    ports = []
    layout = "nhwc" if platform in _NHWC else "nchw"
    for index, port in enumerate(graph.inputs):
        shape = shape_of(port.value)
        channels = _channels(shape, layout)
        numbers = list(values[index] if index < len(values) else values[0] if len(values) == 1 else ())
        means = (*numbers[:-1], 0.0, 0.0, 0.0)[: max(channels, 1)] if numbers else (0.0,) * max(channels, 1)
        ports.append(
            InputPort(
                lid_of(names.vendor_name(port.name)),
                shape,
                "image" if channels else "undefined",
                layout,
                platform == "caffe" and channels == 3,
                tuple(means),
                (numbers[-1] if numbers else 1.0,),
                {
                    "add_preproc_node": False,
                    "preproc_type": {1: "IMAGE_GRAY", 3: "IMAGE_RGB"}.get(channels, "TENSOR"),
                },
            )
        )
    if separated and len(ports) > 1:
        places = list(files) if len(files) == len(ports) else list(files) * len(ports)
        databases = [Database(place, (port,)) for place, port in zip(places, ports, strict=False)]
    else:
        databases = [Database(files[0], tuple(ports))]
    return InputMeta(tuple(databases), path)


def _channels(shape: Sequence[int], layout: str) -> int:
    """How many channels images for an input have; 0 if it takes none."""
    if len(shape) != 4:
        return 0
    channels = shape[1] if layout == "nchw" else shape[3]
    return channels if channels in _FORMATS else 0


def write_meta(meta: InputMeta) -> None:
    """Write the file."""
    content = {
        "input_meta": {
            "databases": [
                {
                    "path": database.path,
                    "type": database.kind,
                    "ports": [_plain_port(port) for port in database.ports],
                }
                for database in meta.databases
            ]
        }
    }
    head = '# "category": image or undefined; "type": TEXT or NPY; a pixel becomes (pixel - mean) * scale\n'
    with write_atomically(meta.path) as out:
        out.write((head + yaml.safe_dump(content, sort_keys=False)).encode())


def _plain_port(port: InputPort) -> dict[str, Any]:
    height, width = (
        (port.shape[2:4] if port.layout == "nchw" else port.shape[1:3]) if len(port.shape) == 4 else (0, 0)
    )
    node = {
        **port.node,
        "preproc_image_size": [width, height],
        "preproc_crop": {"enable_preproc_crop": False, "crop_rect": [0, 0, width, height]},
        "preproc_perm": list(range(len(port.shape))),
    }
    return {
        "lid": port.lid,
        "category": port.category,
        "dtype": "float32",
        "sparse": False,
        "tensor_name": None,
        "layout": port.layout,
        "shape": list(port.shape),
        "fitting": "scale",
        "preprocess": {
            "reverse_channel": port.reverse_channel,
            "mean": [_short(value) for value in port.mean],
            "scale": _short(port.scale[0])
            if len(port.scale) == 1
            else [_short(value) for value in port.scale],
            "preproc_node_params": node,
        },
        "redirect_to_output": False,
    }


def _short(value: float) -> float | int:
    return int(value) if value == int(value) else float(value)


def read_yaml(path: Path, what: str) -> Any:
    """A YAML file of the user's; one line says what is wrong with it."""
    text = read_short(path, _MAX_FILE, what, FileFormatError)
    try:
        return load_yaml(text.decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"is no YAML: {' '.join(str(error).split())[:200]}",
            where=str(path),
            fix="No tabs, and blanks behind colons",
        ) from error


def read_meta(path: str) -> InputMeta:
    """Read the file; `FileFormatError` names the field."""
    file = existing_file(path)
    content = read_yaml(file, "an inputmeta file")
    stated = content.get("input_meta") if isinstance(content, Mapping) else None
    databases = stated.get("databases") if isinstance(stated, Mapping) else None
    if not isinstance(databases, list) or not databases:
        raise _wrong(file, "input_meta.databases", "is missing")
    return InputMeta(tuple(_database(file, entry, k) for k, entry in enumerate(databases)), file)


def _wrong(file: Path, place: str, words: str, fix: str = "") -> FileFormatError:
    return FileFormatError(
        f"{place} {words}", where=str(file), fix=fix or "'pegasus generate inputmeta' writes such a file"
    )


def _database(file: Path, entry: Any, number: int) -> Database:
    where = f"databases[{number}]"
    if not isinstance(entry, Mapping) or not isinstance(entry.get("path"), str):
        raise _wrong(file, f"{where}.path", "is missing")
    if "type" in entry and not isinstance(entry["type"], str):
        raise _wrong(file, f"{where}.type", "is missing")
    kind = str(entry.get("type", "TEXT")).upper()
    if kind not in _KINDS:
        raise _wrong(file, f"{where}.type", f"{kind} is not read", f"It can be {' or '.join(_KINDS)}")
    ports = entry.get("ports")
    if not isinstance(ports, list) or not ports:
        raise _wrong(file, f"{where}.ports", "is missing")
    return Database(
        entry["path"], tuple(_port(file, port, f"{where}.ports[{k}]") for k, port in enumerate(ports)), kind
    )


def _port(file: Path, entry: Any, where: str) -> InputPort:
    if not isinstance(entry, Mapping):
        raise _wrong(file, where, "is no mapping")
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(side) is int and side > 0 for side in shape):
        raise _wrong(file, f"{where}.shape", "is no list of sides above 0")
    preprocess = entry.get("preprocess") or {}
    if not isinstance(preprocess, Mapping):
        raise _wrong(file, f"{where}.preprocess", "is no mapping")
    node = preprocess.get("preproc_node_params") or {}
    if not isinstance(node, Mapping):
        raise _wrong(file, f"{where}.preprocess.preproc_node_params", "is no mapping")
    layout = str(entry.get("layout", "nchw")).lower()
    if layout not in ("nchw", "nhwc"):
        raise _wrong(file, f"{where}.layout", f"'{layout}' is neither nchw nor nhwc")
    category = str(entry.get("category", "image"))
    if category not in ("image", "undefined", "frequency"):
        raise _wrong(file, f"{where}.category", f"'{category}' is neither image nor undefined")
    if str(entry.get("fitting", "scale")) != "scale":
        raise _wrong(
            file, f"{where}.fitting", f"'{entry['fitting']}' is not read", "Images are resized: scale"
        )
    return InputPort(
        str(entry.get("lid", "")),
        tuple(shape),
        category,
        layout,
        preprocess.get("reverse_channel") is True,
        _numbers(file, f"{where}.preprocess.mean", preprocess.get("mean", [])),
        _numbers(file, f"{where}.preprocess.scale", preprocess.get("scale", 1.0)),
        node,
    )


def _numbers(file: Path, where: str, value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(number) in (int, float) for number in values):
        raise _wrong(file, where, f"{value!r} is no number, or list of them")
    return tuple(float(number) for number in values)


@dataclass(frozen=True)
class PreparedInputs:
    """A network with the preprocessing of a file, and its samples."""

    graph: Graph
    meta: InputMeta

    def source(self, count: int | None = None) -> Source:
        """The first samples in the order of the lists, which begin again where there are fewer."""
        source = open_places(self.graph, _places(self.graph, self.meta), DataOptions())
        items = list(source.items)
        if count is None:
            count = len(items)
        taken = [items[index % len(items)] for index in range(count)] if items else []
        return Source(taken, len(taken), source.reader, source.what)


def prepared(graph: Graph, meta: InputMeta, *, fuse: bool = False) -> PreparedInputs:
    """The network with the preprocessing that a file states; with `fuse`, inside of it where the file says so."""
    by_name = ports_by_input(graph, meta)
    stated = []
    fused = False
    for port in graph.inputs:
        own = by_name.get(port.name)
        preprocess = None if own is None else _preprocess(own, shape_of(port.value), meta.path, fuse)
        fused |= fuse and preprocess is not None and own is not None and _is_inside(own)
        stated.append((port.name, port.type, preprocess.to_dict() if preprocess else None))
    changed = graph.copy()
    changed.set_inputs(stated)
    if fused:
        changed = run_pipeline(changed, f"fuse-preprocess,{CANONICAL}")
    return PreparedInputs(changed, meta)


def ports_by_input(graph: Graph, meta: InputMeta) -> dict[str, InputPort]:
    """The entries of a file by the names of inputs: by their identifiers, or in order where they have none."""
    lids = input_lids(graph)
    names = [port.name for port in graph.inputs]
    by_name: dict[str, InputPort] = {}
    for index, port in enumerate(meta.ports):
        name = lids.get(port.lid) or (port.lid if port.lid in names else None)
        if name is None and not port.lid and index < len(names):
            name = names[index]
        if name is None:
            raise UsageError(
                f"lid '{port.lid}' is no input of the network",
                where=str(meta.path),
                fix=f"Its inputs are {', '.join(lids)}",
            )
        by_name[name] = port
    missing = [lid for lid, name in lids.items() if name not in by_name]
    if missing:
        raise UsageError(f"there is no port for the input {missing[0]}", where=str(meta.path))
    return by_name


def _is_inside(port: InputPort) -> bool:
    return port.node.get("add_preproc_node") is True


def _preprocess(port: InputPort, shape: tuple[int, ...], path: Path, fuse: bool) -> Preprocess | None:
    """The preprocessing of images for one input; None if it takes arrays only."""
    turned = tuple(
        port.shape[i] for i in ((0, 3, 1, 2) if port.layout == "nhwc" else (0, 2, 3, 1))[: len(port.shape)]
    )
    layout = port.layout
    if port.shape[1:] != shape[1:]:
        if len(shape) != 4 or len(port.shape) != 4 or turned[1:] != shape[1:]:
            raise UsageError(
                f"the shape of {port.lid} is {list(port.shape)}, and that of the network {list(shape)}",
                where=str(path),
            )
        layout = "nchw" if port.layout == "nhwc" else "nhwc"
    channels = _channels(shape, layout)
    if port.category != "image" or not channels:
        if any(port.mean) or any(value != 1 for value in port.scale):
            warn(
                f"{path}: mean and scale of {port.lid} are for images, and it takes arrays, which are used as they are"
            )
        return None
    for word, values in (("mean", port.mean), ("scale", port.scale)):
        if len(values) not in (0, 1, channels):
            raise UsageError(
                f"preprocess.{word} of {port.lid} has {len(values)} values, and the input {channels} channels",
                where=str(path),
                fix="Give one value, or one for each channel",
            )
    pixel_format = "bgr" if channels == 3 and port.reverse_channel else _FORMATS[channels]
    fields: dict[str, Any] = {
        "mean": list(port.mean),
        "scale": list(port.scale),
        "pixel_format": pixel_format,
        "layout": layout,
    }
    if fuse and _is_inside(port):
        fields |= _node_fields(port, shape, layout, path)
    return Preprocess.from_dict(fields)


def _node_fields(port: InputPort, shape: tuple[int, ...], layout: str, path: Path) -> dict[str, Any]:
    """What a program with its preprocessing inside takes."""
    kind = str(port.node.get("preproc_type", "IMAGE_RGB"))
    if kind not in _SOURCES:
        raise UsageError(
            f"preproc_type {kind} of {port.lid} is not supported",
            where=str(path),
            fix=f"There are: {', '.join(_SOURCES)}",
        )
    crop = port.node.get("preproc_crop")
    if isinstance(crop, Mapping) and crop.get("enable_preproc_crop") is True:
        raise UsageError(
            f"preproc_crop of {port.lid} is not supported: crop images before they reach the program",
            where=str(path),
        )
    perm = port.node.get("preproc_perm")
    if isinstance(perm, list) and perm != sorted(perm, key=str):
        raise UsageError(f"preproc_perm {perm} of {port.lid} is not supported", where=str(path))
    height, width = shape[2:] if layout == "nchw" else shape[1:3]
    size = port.node.get("preproc_image_size")
    fields: dict[str, Any] = {}
    if isinstance(size, list) and [width, height] != size:
        if len(size) != 2 or not all(type(side) is int for side in size):
            raise UsageError(
                f"preproc_image_size {size} of {port.lid} is no width and height", where=str(path)
            )
        fields["source_size"] = [size[1], size[0]]
    source = _SOURCES[kind]
    own = "bgr" if port.reverse_channel else "rgb"
    if source and source != own and not (source == "gray" and _channels(shape, layout) == 1):
        fields["source_format"] = source
    return fields


def _places(graph: Graph, meta: InputMeta) -> list[str]:
    """The data of a file as `open_places` takes it; paths are relative to the file, or to the working folder."""
    places = []
    by_port = {id(port): name for name, port in ports_by_input(graph, meta).items()}
    for database in meta.databases:
        beside = meta.path.parent / database.path
        path = existing_file(beside if beside.is_file() else database.path)
        if len(meta.databases) > 1:
            if len(database.ports) != 1:
                raise UsageError("several databases need one port each", where=str(meta.path))
            places.append(f"{by_port[id(database.ports[0])]}={path}")
        else:
            places.append(str(path))
    return places
