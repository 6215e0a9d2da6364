"""Compare an integer network with its float original, layer by layer.

The worst layers come first. Accumulated errors are those of the whole integer network; --isolated adds those of each
layer by itself, on exact inputs.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.console import Printer, progress, shorten
from npuc.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npuc.calib.samples import Batch
    from npuc.evaluate.layers import LayerError
    from npuc.ir import Graph


class Sort(StrEnum):
    """What comes first."""

    sqnr = "sqnr"
    cosine = "cosine"
    max_error = "max-error"
    isolated = "isolated"
    saturation = "saturation"
    order = "order"


def command(
    original: Annotated[Path, typer.Argument(metavar="FLOAT.mlir", help="The float network.")],
    integer: Annotated[Path, typer.Argument(metavar="INT.mlir", help="The integer network made of it.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", "-i", metavar="[NAME=]FILE", help="An .npz, .npy or picture file; repeatable."
        ),
    ] = None,
    data: given.Data = None,
    random: Annotated[bool, typer.Option("--random", help="Compare on random data.")] = False,
    preprocess: given.Preprocess = None,
    max_count: given.MaxCount = None,
    seed: given.Seed = None,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Also the error of each layer by itself.")
    ] = False,
    sort: Annotated[Sort, typer.Option(help="What comes first: the worst by this, or by order.")] = Sort.sqnr,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Print only so many rows; 0 is all.")] = 20,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write a picture of it.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads to use.")] = 1,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run the command."""
    from npuc.evaluate.layer_plot import plot as draw
    from npuc.evaluate.layers import compare_layers, worst_first
    from npuc.files import writable, write_atomically
    from npuc.flow import load_model
    from npuc.quant.report import is_integer

    printer = Printer(quiet, as_json)
    if sort is Sort.isolated and not isolated:
        raise UsageError("--sort isolated needs --isolated")
    if plot is not None:
        writable(plot)
    exact, ours = load_model(original), load_model(integer)
    for path, graph, wanted in ((original, exact, False), (integer, ours, True)):
        if is_integer(graph) != wanted:
            raise UsageError(
                f"{path} is {'a float' if wanted else 'an integer'} network",
                fix="The float network comes first, the integer one second",
            )
    batches, total = _batches(exact, inputs, data, random, preprocess, max_count, seed, printer)
    with progress(printer, "comparing", total) as step:
        found = compare_layers(exact, ours, batches, isolated=isolated, threads=threads, step=step)
    key = sort.value.replace("-", "_")
    rows = worst_first(found, key)  # type: ignore[arg-type]
    _print(printer, rows[:limit] if limit else rows, isolated)
    if limit and len(rows) > limit:
        printer.say(f"{limit} of {len(rows)} layers; --limit 0 shows all")
    if plot is not None:
        with write_atomically(plot) as out:
            out.write(draw(found, f"{integer.name} against {original.name}").encode())
        printer.say(f"picture written to {plot}")
    printer.result({"layers": [entry.as_json() for entry in rows]})


def _batches(
    graph: Graph,
    inputs: list[str] | None,
    data: Path | None,
    random: bool,
    preprocess: str | None,
    max_count: int | None,
    seed: int | None,
    printer: Printer,
) -> tuple[Iterable[Batch], int]:
    if sum((bool(inputs), data is not None, random)) != 1:
        raise UsageError(
            "the data to compare on is missing, or given twice",
            fix="Give one of --input FILE, --data PATH and --random",
        )
    if inputs:
        from npuc.calib.samples import load_samples, parse_assignments

        samples = load_samples(graph, parse_assignments(inputs, [port.name for port in graph.inputs]))
        for note in samples.notes:
            printer.note(note)
        return samples, samples.runs
    from npuc.calib.feeding import Feeder

    source = given.source(graph, data, random, preprocess, None, max_count, seed)
    return Feeder(graph, source, warn=printer.note).batches(), source.total or 0


def _print(printer: Printer, rows: list[LayerError], isolated: bool) -> None:
    extra = ["isolated dB"] if isolated else []
    printer.table(
        ["layer", "op", "type", "cosine", "SQNR dB", *extra, "max error", "saturated", "range use"],
        [
            [
                shorten(e.name),
                e.kind,
                e.type,
                f"{e.accumulated.cosine:.6f}",
                f"{e.accumulated.sqnr:.1f}",
                *(["-" if e.isolated is None else f"{e.isolated.sqnr:.1f}"] if isolated else []),
                f"{e.accumulated.max_error:.4g}",
                "-" if e.type == "f32" else f"{e.saturation:.2%}",
                "-" if e.type == "f32" else f"{e.range_use:.0%}",
            ]
            for e in rows
        ],
        right=["cosine", "SQNR dB", *extra, "max error", "saturated", "range use"],
    )
