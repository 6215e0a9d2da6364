"""An exported model as a `.tflite` file."""

from __future__ import annotations

from pathlib import Path

from npuc.export.tflite.model import Model, serialize
from npuc.export.tflite.program import Options, to_tflite
from npuc.files import write_atomically
from npuc.ir import Graph


def export_tflite(graph: Graph, path: Path | str, options: Options | None = None) -> Model:
    """Write a program as `path`; returns what was written."""
    model = to_tflite(graph, options)
    data = serialize(model)
    with write_atomically(path) as out:
        out.write(data)
    return model
