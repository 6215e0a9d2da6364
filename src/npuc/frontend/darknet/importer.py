"""Darknet to Top IR."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from npuc.errors import UnsupportedOpError
from npuc.frontend.darknet.advice import advice
from npuc.frontend.darknet.reader import INPUT, DarknetSource, read
from npuc.frontend.darknet.registry import RULES, DarknetContext
from npuc.frontend.layered.build import build
from npuc.frontend.options import ImportOptions
from npuc.frontend.support import guarded
from npuc.ir import Graph, Value
from npuc.words import counted

DOMAIN = "npuc.darknet"
"""The domain of layers that have no form in npuc."""


def import_darknet(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Import a `.cfg` with its `.weights`; the result is verified, not yet canonical."""
    path, options = Path(path), options or ImportOptions()
    return guarded(path, lambda: imported(read(path, options), options))


def imported(source: DarknetSource, options: ImportOptions) -> Graph:
    """Import a model that has been read."""
    context = partial(DarknetContext, weights=source.weights, net=source.net)
    if options.inputs or options.outputs:
        # The weights have no marks: which are whose is known only after a walk over all layers.
        shapes = {name: shape for name, shape in options.input_shapes.items() if name == INPUT}
        build(source.network, ImportOptions(input_shapes=shapes), RULES, context, DOMAIN, _kept)
    graph = build(source.network, options, RULES, context, DOMAIN, _kept)
    if source.weights.path is None and source.weights.taken:
        graph.notes.append(source.without_weights)
    heads = advice(source, graph)
    if heads:
        graph.notes.append(heads)
    left = source.weights.left
    if left:
        unknown = [layer.name for layer in source.network.layers if layer.kind not in RULES]
        if unknown:
            raise UnsupportedOpError(
                f"the layer '{unknown[0]}' has no form in npuc, and {left} numbers of the weights are left over: it cannot "
                "be told which belong to it",
                fix="Register a rule for it (docs/import-darknet.md)",
            )
        graph.notes.append(
            f"{counted(left, 'number')} at the end of {source.weights.path} for no layer of the .cfg"
        )
    return graph


def _kept(ctx: DarknetContext) -> tuple[list[Value], dict[str, Any]]:
    """A layer without a rule keeps its section."""
    return [], {"type": ctx.layer.kind, **{f"cfg_{key}": value for key, value in ctx.section.values.items()}}
