"""Show what a network is made of, or draw it.

The table has a line a layer: its shape, its parameters and its multiply-accumulates (MACs).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.console import Printer, count, shorten
from npuc.cli.import_ import print_summary


def command(
    model: options.Model,
    graph_file: Annotated[
        Path | None,
        typer.Option(
            "--graph", metavar="FILE", help="Draw the network as .svg or .png (with graphviz) or .dot."
        ),
    ] = None,
    input_shape: options.InputShapes = None,
    weights: options.Weights = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run the command."""
    from npuc.files import existing_model
    from npuc.flow import load_model
    from npuc.profile.picture import write_picture
    from npuc.profile.summary import summarize

    printer = Printer(quiet, as_json)
    existing_model(model)
    graph = load_model(model, options.imported_as(model, input_shape, weights))
    summary = summarize(graph)
    picture = write_picture(graph, graph_file) if graph_file is not None else None
    printer.table(
        ["layer", "op", "output", "parameters", "MACs"],
        [
            [
                shorten(layer.name),
                layer.kind,
                shorten(", ".join(layer.outputs), 60),
                layer.parameters or "",
                count(layer.macs) if layer.macs else "",
            ]
            for layer in summary.layers
        ],
        right=["parameters", "MACs"],
    )
    printer.say()
    printer.say(str(model))
    print_summary(printer, summary)
    kinds = ", ".join(f"{kind} {number}" for kind, number in summary.kinds.items())
    printer.say(f"  {'ops':8} {kinds or 'none'}")
    result = summary.as_json()
    if picture is not None:
        written, reason = picture
        printer.say(f"  {'graph':8} {written}")
        if reason:
            printer.note(reason)
        result["graph"] = str(written)
    printer.result(result)
