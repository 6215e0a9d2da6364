"""X.json and X.data: what `pegasus import` writes and every other command reads.

X.data has the weights, X.json the view of the network that users look layers up in. The network itself is in X.npuc.mlir beside
the weights: X.json names it and has its digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuc.compat.acuity.layers import TOOL, tensor_names, view_of
from npuc.errors import FileFormatError, FileMissingError, UsageError
from npuc.files import existing_file, read_short, writable, write_atomically
from npuc.flow import load_model, save_graph
from npuc.ir import Graph

_MAX_JSON = 256 << 20
_VERSION = "6.0.0+npuc"
"""What `AcuityVersion` says."""


@dataclass(frozen=True)
class AcuityModel:
    """A network and what X.json says about it."""

    graph: Graph
    path: Path
    data: Path | None
    name: str
    platform: str
    """The framework that it came from."""
    imported: Mapping[str, Any]
    """How it was imported: the arguments of `pegasus import`, to do it again with another batch size."""

    @property
    def stem(self) -> Path:
        """X, in the folder of X.json; files beside it begin with it."""
        return self.path.with_name(self.path.name.removesuffix(".json").removesuffix(".quantize"))


def with_suffix(path: str, suffix: str) -> Path:
    """A path of the user's with the suffix that the toolkit gives files of that kind, unless it has it."""
    return Path(path if path.endswith(suffix) else f"{path}{suffix}")


def save_model(
    graph: Graph, path: Path, data: Path, name: str, platform: str, imported: Mapping[str, Any]
) -> None:
    """Write X.json, X.data and the network."""
    for file in (path, data):
        writable(file)
    graph.name = name
    graph.set_names_for(TOOL, tensor_names(graph))
    text = data.with_name(f"{data.name.removesuffix('.data')}.npuc.mlir")
    save_graph(graph, text, data.name)
    write_view(
        path, graph, name, platform, {"mlir": text.name, "sha256": _digest(text), "import": dict(imported)}
    )


def write_view(
    path: Path,
    graph: Graph,
    name: str,
    platform: str,
    own: Mapping[str, Any],
    converters: Mapping[str, str] | None = None,
) -> None:
    """Write X.json."""
    content = {
        "MetaData": {"Name": name, "AcuityVersion": _VERSION, "Platform": platform, "Org_Platform": platform},
        "Layers": view_of(graph, converters),
        "npuc": dict(own),
    }
    with write_atomically(path) as out:
        out.write(json.dumps(content, indent=4).encode())


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """The content of X.json."""
    data = read_short(path, _MAX_JSON, "a model", FileFormatError)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"is no JSON ({error})", where=str(path), fix="Run 'pegasus import' again"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("Layers"), dict):
        raise FileFormatError(
            "is no model of pegasus: it has no Layers", where=str(path), fix="'pegasus import' writes one"
        )
    return content


def model_path(model: str) -> Path:
    """X.json by its name, with or without the suffix."""
    plain = Path(model)
    return existing_file(plain if plain.suffix == ".json" or plain.is_file() else with_suffix(model, ".json"))


def open_model(model: str, data: str | None = None) -> AcuityModel:
    """The network of X.json; `data` is X.data."""
    path = model_path(model)
    content = read_json(path)
    own = content.get("npuc")
    if not isinstance(own, dict) or not isinstance(own.get("mlir"), str):
        raise FileFormatError(
            "was not written by npuc, which cannot read the weights of the vendor's own .data files",
            where=str(path),
            fix="Import the original model again: pegasus import",
        )
    weights = (
        existing_file(with_suffix(data, ".data") if not Path(data).is_file() else data) if data else None
    )
    text = _network_file(path, weights, own["mlir"])
    if own.get("sha256") != _digest(text):
        raise FileFormatError(
            f"belongs to another version of {text.name}", where=str(path), fix="Run 'pegasus import' again"
        )
    graph = load_model(text)
    expected = f"{text.name.removesuffix('.npuc.mlir')}.data"
    if weights is not None and weights.name != expected:
        raise UsageError(f"--model-data {data} is not of {path}", fix=f"It is {expected}, beside {text.name}")
    meta = content.get("MetaData")
    meta = meta if isinstance(meta, dict) else {}
    imported = own.get("import")
    return AcuityModel(
        graph,
        path,
        weights,
        str(meta.get("Name") or graph.name or path.stem),
        str(meta.get("Platform", "")),
        imported if isinstance(imported, dict) else {},
    )


def _network_file(path: Path, data: Path | None, name: str) -> Path:
    if Path(name).name != name or not name.endswith(".npuc.mlir"):
        raise FileFormatError("names a network outside of its folder", where=str(path))
    places = [folder / name for folder in ([data.parent] if data else []) + [path.parent]]
    for place in places:
        if place.is_file():
            return place
    raise FileMissingError(
        f"the network of {path} is missing",
        where=str(places[0]),
        fix="Keep it beside the .data file, or import again",
    )
