"""Compare two forms of a network layer by layer: float, integer, compiled (.npu), or a dump of one.

The first is the reference. The outputs are listed first, then the layers with the largest errors. An error is that of the
whole second network up to this layer; --isolated also gives the error of each layer of an integer network alone, on exact
inputs. If one of the two is a dump, the inputs stored in it are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, progress, shorten
from npuc.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from npuc.calib.samples import Batch
    from npuc.compare.layers import LayerError
    from npuc.debug.difference import Compared
    from npuc.debug.layers import Layers
    from npuc.debug.opening import Opened
    from npuc.ir import Graph


class LayerOrder(StrEnum):
    """What comes first."""

    sqnr = "sqnr"
    cosine = "cosine"
    max_error = "max-error"
    isolated = "isolated"
    saturation = "saturation"
    order = "order"


class DiffCommand(CommandOptions):
    """The command line of `npuc diff`."""

    first: Annotated[
        Path,
        typer.Argument(
            metavar="REFERENCE",
            help="The reference: a model file, or a folder written by 'npuc run --dump-layers'.",
        ),
    ]
    second: Annotated[
        Path, typer.Argument(metavar="OTHER", help="The model or dump that is compared with the reference.")
    ]
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="[NAME=]FILE",
            help="An .npz, .npy or image file; repeat the option for several.",
        ),
    ] = None
    data: given.Data = None
    random: Annotated[bool, typer.Option("--random", help="Compare on random data.")] = False
    preprocess: given.Preprocess = None
    max_count: given.MaxCount = None
    seed: given.Seed = None
    isolated: Annotated[
        bool,
        typer.Option("--isolated", help="Also print the error of each layer by itself, on exact inputs."),
    ] = False
    sort: Annotated[
        LayerOrder, typer.Option(help="Sort by this figure, the worst first; or in the order of the network.")
    ] = LayerOrder.sqnr
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Print at most this many rows; 0 prints all.")
    ] = 20
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Plot the figures of the layers.")] = (
        None
    )
    input_shape: options.InputShapes = None
    entry: options.EntryName = ""
    threads: options.OneThread = 1
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(DiffCommand)
def command(args: DiffCommand) -> None:
    """Run the command."""
    from npuc.calib.paired import prepared_differently
    from npuc.compare.layer_plot import plot as draw
    from npuc.compare.layers import worst_first
    from npuc.debug.opening import open_layers
    from npuc.files import write_atomically
    from npuc.flow import load_model
    from npuc.frontend.sniff import describe_content
    from npuc.transform.claim_custom_ops import claimed

    printer = Printer(args.quiet, args.as_json)
    if args.sort is LayerOrder.isolated and not args.isolated:
        raise UsageError("--sort isolated needs --isolated")
    if args.plot is not None:
        options.result(args.plot, ".svg", "--plot")

    def load(path: Path) -> Graph:
        # Of the two, one may be a program, which has its shapes.
        own = describe_content(path).kind == "mlir"
        graph = claimed(load_model(path, None if own else options.imported_as(path, args.input_shape)))
        options.tell_import(printer, graph)
        return graph

    options.check_entry(args.entry, [args.first, args.second])
    reference, ours = (open_layers(path, load, args.entry) for path in (args.first, args.second))
    if args.isolated and (reference.kind, ours.kind) != ("float", "integer"):
        raise UsageError(
            f"--isolated is for a float network and the integer one made of it, and {args.first} is {_KINDS[reference.kind]}, "
            f"{args.second} is {_KINDS[ours.kind]}"
        )
    data = _ComparisonData(args.inputs, args.data, args.random, args.preprocess, args.max_count, args.seed)
    if "dump" in (reference.kind, ours.kind):
        if any(data.ways):
            raise UsageError(
                "a dump is compared on its own data", fix="Leave out --input, --data and --random"
            )
        apart = {}
        errors = _with_dump(printer, reference, ours, args.threads)
    else:
        assert reference.graph is not None and ours.graph is not None
        data.check()
        apart = prepared_differently(reference.graph, ours.graph) if args.preprocess is None else {}
        if apart:
            errors = _on_same_images(printer, reference, ours, data, apart, args.isolated, args.threads)
        else:
            reader = _reader(reference.graph, ours.graph)
            batches, total = data.batches(reader, printer)
            with progress(printer, "comparing", total) as step:
                errors = _models(printer, reference, ours, batches, args.isolated, args.threads, step)
    key = args.sort.value.replace("-", "_")
    rows = worst_first(errors, key)  # type: ignore[arg-type]
    outputs, missing = _outputs(errors, reference, ours)
    if outputs:
        _print(printer, outputs, args.isolated, "output")
        printer.say()
    for name in missing:
        printer.note(f"output '{name}' is not compared: only one of the two has it, or in another shape")
    _print(printer, rows[: args.limit] if args.limit else rows, args.isolated)
    if args.limit and len(rows) > args.limit:
        printer.say(f"{args.limit} of {len(rows)} layers; --limit 0 shows all")
    if args.plot is not None:
        with write_atomically(args.plot) as out:
            out.write(draw(errors, f"{args.second.name} against {args.first.name}").encode())
        printer.say(f"plot written to {args.plot}")
    printer.result(
        {
            "outputs": [entry.as_json() for entry in outputs],
            "layers": [entry.as_json() for entry in rows],
            "prepared_differently": apart,
        }
    )


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
    from npuc.compare.layers import batch_rows, compare_layers
    from npuc.debug.difference import RunPair, compare_runs

    assert reference.graph is not None and ours.graph is not None
    if (reference.kind, ours.kind) == ("float", "integer"):
        return compare_layers(
            reference.graph, ours.graph, batches, isolated=isolated, threads=threads, step=step
        )
    a, b = reference.layers(threads), ours.layers(threads)
    pairs = (RunPair(batch.inputs, a, b, batch.keep) for batch in batches)
    return _told(printer, compare_runs(pairs, batch_rows(reference.graph), step))


def _with_dump(printer: Printer, reference: Opened, ours: Opened, threads: int) -> list[LayerError]:
    """At least one of the two is a dump: its runs are compared on its data."""
    from npuc.debug.difference import RunPair, compare_runs
    from npuc.debug.opening import DumpedRun

    both = (reference, ours)
    dumps = [opened.dump for opened in both if opened.dump is not None]
    running = {opened.path: opened.layers(threads) for opened in both if opened.dump is None}
    graph = reference.graph or ours.graph

    def layers_of(opened: Opened, run: int) -> Layers:
        return running[opened.path] if opened.dump is None else DumpedRun(opened.dump, run)

    pairs = (
        RunPair(
            dumps[0].inputs_for(graph, run) if graph is not None else {},
            layers_of(reference, run),
            layers_of(ours, run),
        )
        for run in range(min(dump.index.runs for dump in dumps))
    )
    return _told(printer, compare_runs(pairs))


def _told(printer: Printer, comparison: Compared) -> list[LayerError]:
    """Say which tensors only one of the two has."""
    for which, names in (("first", comparison.only_reference), ("second", comparison.only_ours)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            printer.note(f"only the {which} has {', '.join(map(shorten, names[:3]))}{more}")
    if comparison.reshaped:
        others = len(comparison.reshaped) - 1
        some = f"{shorten(comparison.reshaped[0])}{f' and {others} more' * bool(others)}"
        printer.note(f"not compared, because the shapes differ: {some}")
    return comparison.layers


def _reader(reference: Graph, ours: Graph) -> Graph:
    """The one of the two that says how images become inputs: an original cannot, and what was made of it may."""

    def takes(graph: Graph) -> list[tuple[str, str]]:
        return [(port.name, str(port.type)) for port in graph.inputs]

    silent = not any(port.preprocess for port in reference.inputs)
    return ours if silent and takes(reference) == takes(ours) else reference


@dataclass(frozen=True)
class _ComparisonData:
    """The data that the options name."""

    inputs: list[str] | None
    data: list[str] | None
    random: bool
    preprocess: str | None
    max_count: int | None
    seed: int | None

    @property
    def ways(self) -> list[bool]:
        """Which of them are given."""
        return [bool(self.inputs), bool(self.data), self.random]

    def check(self) -> None:
        """One of them has to be."""
        if sum(self.ways) != 1:
            raise UsageError(
                "the data to compare on is missing, or given twice",
                fix="Give one of --input FILE, --data PATH and --random",
            )

    def batches(self, graph: Graph, printer: Printer, *, strict: bool = False) -> tuple[Iterable[Batch], int]:
        """The data for a network, and how many runs it is about."""
        if self.inputs:
            from npuc.calib.samples import with_states
            from npuc.calib.several import load_given

            samples = with_states(load_given(graph, self.inputs), graph)
            for note in samples.notes:
                printer.note(note)
            return samples, samples.runs
        from npuc.calib.feeding import Feeder

        source = given.source(graph, self.data, self.random, self.preprocess, None, self.max_count, self.seed)
        return Feeder(graph, source, strict=strict, warn=printer.note).batches(), source.total or 0


def _on_same_images(
    printer: Printer,
    reference: Opened,
    ours: Opened,
    data: _ComparisonData,
    apart: Mapping[str, str],
    isolated: bool,
    threads: int,
) -> list[LayerError]:
    """Two networks that make different tensors of an image: each gets the same images in its own way."""
    from npuc.calib.paired import random_batch_pairs
    from npuc.compare.layers import batch_rows
    from npuc.debug.difference import RunPair, compare_runs

    assert reference.graph is not None and ours.graph is not None
    for name, words in apart.items():
        printer.note(
            f"the two prepare images for input '{name}' differently ({words}): each gets the same images in its own way, "
            "and tensor files as they are"
        )
    if isolated:
        raise UsageError(
            "--isolated gives both networks the same tensors, and they prepare their inputs differently",
            fix="Leave it out, or import the network with the same preprocessing as the other",
        )
    pairs: Iterable[tuple[Batch, Batch]]
    if data.random:
        pairs = random_batch_pairs(reference.graph, ours.graph, data.max_count, data.seed)
        total = data.max_count or 0
    else:
        first, total = data.batches(reference.graph, printer, strict=True)
        second, _ = data.batches(ours.graph, replace(printer, quiet=True), strict=True)
        pairs = zip(first, second, strict=True)
    a, b = reference.layers(threads), ours.layers(threads)
    with progress(printer, "comparing", total) as step:
        runs = (RunPair(x.inputs, a, b, x.keep, y.inputs) for x, y in pairs)
        return _told(printer, compare_runs(runs, batch_rows(reference.graph), step))


def _outputs(errors: list[LayerError], reference: Opened, ours: Opened) -> tuple[list[LayerError], list[str]]:
    """What is known of the outputs, in their order, and the outputs of which nothing is known."""
    rows = {entry.name: entry for entry in errors}
    outputs = {**reference.outputs(), **ours.outputs()}
    known = {name: rows.get(name) or rows.get(tensor) for name, tensor in outputs.items()}
    return [row for row in known.values() if row is not None], [n for n, row in known.items() if row is None]


def _print(printer: Printer, rows: list[LayerError], isolated: bool, what: str = "layer") -> None:
    extra = ["isolated dB"] if isolated else []
    printer.table(
        [what, "op", "type", "cosine", "SQNR dB", *extra, "max error", "saturated", "range use"],
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
