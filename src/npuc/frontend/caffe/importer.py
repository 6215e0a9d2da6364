"""Caffe to Top IR."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from npuc.frontend.caffe.reader import CaffeSource, read
from npuc.frontend.caffe.registry import RULES, CaffeContext
from npuc.frontend.caffe.text import written
from npuc.frontend.layered.build import build
from npuc.frontend.options import ImportOptions
from npuc.frontend.support import guarded
from npuc.ir import Graph, Value

DOMAIN = "npuc.caffe"
"""The domain of layers that have no form in npuc."""


def import_caffe(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Import a `.prototxt` with its `.caffemodel`, or one of them alone; the result is verified, not yet canonical."""
    path, options = Path(path), options or ImportOptions()
    return guarded(path, lambda: imported(read(path, options), options))


def imported(source: CaffeSource, options: ImportOptions) -> Graph:
    """Import a model that has been read."""
    context = partial(CaffeContext, blobs=source.blobs)
    graph = build(source.network, options, RULES, context, DOMAIN, _kept)
    graph.notes.extend(source.notes)
    if source.blobs.file is None and source.blobs.arrays:
        graph.notes.append(source.without_weights)
    return graph


def _kept(ctx: CaffeContext) -> tuple[list[Value], dict[str, Any]]:
    """A layer without a rule keeps its parameters as text, and its blobs as operands."""
    count = ctx.blob_count or 0
    arrays = [ctx.blobs.read(ctx.layer.name, index) for index in range(count)]
    values = [ctx.literal(array, f"blob{index}") for index, array in enumerate(arrays)]
    leave_out = ("blobs", "bottom", "top", "name", "type", "param", "include", "exclude")
    return values, {"type": ctx.layer.kind, "parameters": written(ctx.raw.message, leave_out)}
