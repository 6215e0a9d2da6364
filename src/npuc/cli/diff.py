"""Compare two forms of a network layer by layer: float, integer, compiled (.npu), or a dump of one.

The first is the reference; the worst layers come first. Accumulated errors are those of the whole second network;
--isolated adds those of each layer of an integer network by itself, on exact inputs. With a dump, its data is used.
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
    from collections.abc import Callable, Iterable

    from npuc.calib.samples import Batch
    from npuc.debug.difference import Compared
    from npuc.debug.layers import Layers
    from npuc.debug.opening import Opened
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
    first: Annotated[
        Path, typer.Argument(metavar="REFERENCE", help="A model of any kind, or the folder of a dump.")
    ],
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="What is held against it, of any kind.")],
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
    input_shape: options.InputShapes = None,
    threads: options.OneThread = 1,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run the command."""
    from npuc.debug.opening import open_layers
    from npuc.evaluate.layer_plot import plot as draw
    from npuc.evaluate.layers import worst_first
    from npuc.files import write_atomically
    from npuc.flow import load_model
    from npuc.frontend.sniff import describe_content

    printer = Printer(quiet, as_json)
    if sort is Sort.isolated and not isolated:
        raise UsageError("--sort isolated needs --isolated")
    if plot is not None:
        options.result(plot, ".svg", "--plot")

    def load(path: Path) -> Graph:
        # Of the two, one may be a program, which has its shapes.
        own = describe_content(path).kind == "mlir"
        return load_model(path, None if own else options.imported_as(path, input_shape))

    reference, ours = open_layers(first, load), open_layers(second, load)
    if isolated and (reference.kind, ours.kind) != ("float", "integer"):
        raise UsageError(
            f"--isolated is for a float network and the integer one made of it, and {first} is {_KINDS[reference.kind]}, "
            f"{second} is {_KINDS[ours.kind]}"
        )
    is_given = bool(inputs) or data is not None or random
    if "dump" in (reference.kind, ours.kind):
        if is_given:
            raise UsageError(
                "a dump is compared on its own data", fix="Leave out --input, --data and --random"
            )
        found = _with_dump(printer, reference, ours, threads)
    else:
        assert reference.graph is not None and ours.graph is not None
        reader = _reader(reference.graph, ours.graph)
        batches, total = _batches(reader, inputs, data, random, preprocess, max_count, seed, printer)
        with progress(printer, "comparing", total) as step:
            found = _models(printer, reference, ours, batches, isolated, threads, step)
    key = sort.value.replace("-", "_")
    rows = worst_first(found, key)  # type: ignore[arg-type]
    _print(printer, rows[:limit] if limit else rows, isolated)
    if limit and len(rows) > limit:
        printer.say(f"{limit} of {len(rows)} layers; --limit 0 shows all")
    if plot is not None:
        with write_atomically(plot) as out:
            out.write(draw(found, f"{second.name} against {first.name}").encode())
        printer.say(f"picture written to {plot}")
    printer.result({"layers": [entry.as_json() for entry in rows]})


_KINDS = {
    "float": "a float one",
    "integer": "an integer one",
    "compiled": "a compiled one",
    "dump": "a dump",
}


def _models(
    printer: Printer,
    reference: Opened,
    ours: Opened,
    batches: Iterable[Batch],
    isolated: bool,
    threads: int,
    step: Callable[[], None],
) -> list[LayerError]:
    from npuc.debug.difference import Pair, compare_runs
    from npuc.evaluate.layers import batch_rows, compare_layers

    assert reference.graph is not None and ours.graph is not None
    if (reference.kind, ours.kind) == ("float", "integer"):
        return compare_layers(
            reference.graph, ours.graph, batches, isolated=isolated, threads=threads, step=step
        )
    a, b = reference.layers(threads), ours.layers(threads)
    pairs = (Pair(batch.inputs, a, b, batch.keep) for batch in batches)
    return _told(printer, compare_runs(pairs, batch_rows(reference.graph), step))


def _with_dump(printer: Printer, reference: Opened, ours: Opened, threads: int) -> list[LayerError]:
    """At least one of the two is a dump: its runs are compared on its data."""
    from npuc.debug.difference import Pair, compare_runs
    from npuc.debug.opening import DumpedRun

    both = (reference, ours)
    dumps = [one.dump for one in both if one.dump is not None]
    running = {one.path: one.layers(threads) for one in both if one.dump is None}
    graph = reference.graph or ours.graph

    def seen(one: Opened, run: int) -> Layers:
        return running[one.path] if one.dump is None else DumpedRun(one.dump, run)

    pairs = (
        Pair(
            dumps[0].inputs_for(graph, run) if graph is not None else {},
            seen(reference, run),
            seen(ours, run),
        )
        for run in range(min(dump.index.runs for dump in dumps))
    )
    return _told(printer, compare_runs(pairs))


def _told(printer: Printer, found: Compared) -> list[LayerError]:
    """Say which tensors only one of the two has."""
    for which, names in (("first", found.only_reference), ("second", found.only_ours)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            printer.note(f"only the {which} has {', '.join(map(shorten, names[:3]))}{more}")
    if found.reshaped:
        others = len(found.reshaped) - 1
        some = f"{shorten(found.reshaped[0])}{f' and {others} more' * bool(others)}"
        printer.note(f"not compared, because the shapes differ: {some}")
    return found.layers


def _reader(reference: Graph, ours: Graph) -> Graph:
    """The one of the two that says how pictures become inputs: an original cannot, and what was made of it may."""

    def takes(graph: Graph) -> list[tuple[str, str]]:
        return [(port.name, str(port.type)) for port in graph.inputs]

    silent = not any(port.preprocess for port in reference.inputs)
    return ours if silent and takes(reference) == takes(ours) else reference


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
