"""A quantized network inside of a TorchScript file, for tools that compile what `torch.jit.load` gives.

A traced module keeps its buffers. One of them holds a ZIP archive with the network as npuc writes it, and with whatever texts the
writer wants to find again; torch passes over it.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.errors import FileFormatError
from npuc.ir import Graph
from npuc.ir.text import load_graph, save_graph

BUFFER = "npuc_network"
_NETWORK, _WEIGHTS, _TEXTS = "network.mlir", "network.safetensors", "texts.json"


def packed(graph: Graph, texts: Mapping[str, str]) -> Any:
    """The archive, as an array of bytes."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(out, "w") as archive:
        for path in save_graph(graph, Path(folder) / _NETWORK, _WEIGHTS):
            archive.write(path, path.name)
        archive.writestr(zipfile.ZipInfo(_TEXTS), json.dumps(dict(texts)))
    return np.frombuffer(out.getvalue(), np.uint8).copy()


def carried_network(module: Any) -> tuple[Graph, dict[str, str]] | None:
    """The network and the texts that a module carries; None if it carries none."""
    buffer = dict(module.named_buffers()).get(BUFFER)
    if buffer is None:
        return None
    try:
        with (
            zipfile.ZipFile(io.BytesIO(buffer.cpu().numpy().tobytes())) as archive,
            tempfile.TemporaryDirectory() as folder,
        ):
            for name in (_NETWORK, _WEIGHTS):
                (Path(folder) / name).write_bytes(archive.read(name))
            texts = json.loads(archive.read(_TEXTS))
            return load_graph(Path(folder) / _NETWORK), texts
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise FileFormatError(f"the network that the module carries cannot be read: {error}") from error
