"""Look at, compare and convert tensor files (.npz and .npy)."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten
from npuc.errors import CompareError, UsageError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
File = Annotated[Path, typer.Argument(metavar="FILE", help="An .npz or .npy file.")]


class TensorOrder(StrEnum):
    """What `compare` sorts by."""

    cosine = "cosine"
    euclid = "euclid"
    sqnr = "sqnr"
    max_error = "max-error"
    relative_error = "relative-error"
    name = "name"
    order = "order"


class TensorsDumpCommand(CommandOptions):
    """The command line of `npuc tensors dump`."""

    file: File
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print the values of this tensor.")] = (
        None
    )
    full: Annotated[bool, typer.Option("--full", help="Print all values, not only the first and last.")] = (
        False
    )
    as_json: options.Json = False


@app.command("dump")
@takes(TensorsDumpCommand)
def dump(args: TensorsDumpCommand) -> None:
    """List the tensors of a file, or print the values of one."""
    import numpy as np

    from npuc.tensors import TensorFile

    printer = Printer(as_json=args.as_json)
    tensors = TensorFile(args.file)
    if args.name is None and (len(tensors) > 1 or not args.full):
        headers = {key: tensors.header(key) for key in tensors}
        printer.table(
            ["tensor", "shape", "type", "bytes"],
            [[key, "x".join(map(str, h.shape)) or "scalar", h.dtype, h.nbytes] for key, h in headers.items()],
            right=["bytes"],
        )
        printer.result(
            [{"name": k, "shape": list(h.shape), "dtype": str(h.dtype)} for k, h in headers.items()]
        )
        return
    key = args.name if args.name is not None else next(iter(tensors))
    header, values = tensors.header(key), tensors[key]
    printer.say(f"{key} {'x'.join(map(str, header.shape)) or 'scalar'} {header.dtype}")
    threshold = values.size + 1 if args.full else 200
    printer.say(np.array2string(values, threshold=threshold, max_line_width=100, precision=6))
    printer.result(
        {"name": key, "shape": list(header.shape), "dtype": str(header.dtype), "values": values.tolist()}
    )


class TensorsCompareCommand(CommandOptions):
    """The command line of `npuc tensors compare`."""

    ours: Annotated[Path, typer.Argument(metavar="A", help="The tensors to check.")]
    reference: Annotated[Path, typer.Argument(metavar="B", help="The reference.")]
    tolerance: Annotated[
        str, typer.Option(metavar="COSINE,EUCLID", help="The least similarity that passes.")
    ] = "0.99,0.99"
    leave_out: Annotated[
        str | None, typer.Option("--except", metavar="A,B", help="Leave these tensors out.")
    ] = None
    sort: Annotated[
        TensorOrder,
        typer.Option(help="Sort by this figure, the worst first; or by name, or in the order of the file."),
    ] = TensorOrder.cosine
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Print at most this many rows; 0 prints all.")
    ] = 0
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("compare")
@takes(TensorsCompareCommand)
def compare(args: TensorsCompareCommand) -> None:
    """Compare the tensors of two files by name; exit status 2 if any differs by more than the tolerance."""
    from npuc.compare.tensors import Tolerance, compare_sets, worst_first
    from npuc.tensors import TensorFile

    printer = Printer(args.quiet, args.as_json)
    bar = Tolerance.parse(args.tolerance)
    a, b = TensorFile(args.ours), TensorFile(args.reference)
    skipped = options.names(args.leave_out)
    figures = worst_first(compare_sets(a, b, skipped), args.sort.value.replace("-", "_"))  # type: ignore[arg-type]
    failures = [entry for entry in figures if not entry.passes(bar)]
    printer.table(
        ["tensor", "shape", "cosine", "euclid", "SQNR dB", "max error", "rel. error", ""],
        [
            [
                shorten(entry.name),
                "x".join(map(str, entry.shape)) or "scalar",
                f"{entry.cosine:.6f}",
                f"{entry.euclid:.6f}",
                f"{entry.sqnr:.2f}",
                f"{entry.max_error:.4g}",
                f"{entry.relative_error:.4g}",
                entry.note or ("" if entry.passes(bar) else "FAIL"),
            ]
            for entry in (figures[: args.limit] if args.limit else figures)
        ],
        right=["cosine", "euclid", "SQNR dB", "max error", "rel. error"],
    )
    for ours, theirs, path in ((a, b, args.ours), (b, a, args.reference)):
        alone = [key for key in ours if key not in theirs]
        if alone:
            printer.note(f"only in {path}: {', '.join(alone[:10])}{' and more' if len(alone) > 10 else ''}")
    printer.say(
        f"{len(figures) - len(failures)} of {len(figures)} tensors within cosine {bar.cosine:g}, euclid {bar.euclid:g}"
    )
    printer.result({"passed": not failures, "tensors": [entry.as_json() for entry in figures]})
    if failures:
        raise CompareError(
            f"{len(failures)} of {len(figures)} tensors are beyond the tolerance, worst '{failures[0].name}'",
            where=f"{args.ours} against {args.reference}",
            fix="--tolerance changes the bar, --except leaves tensors out",
        )


class TensorsToDatCommand(CommandOptions):
    """The command line of `npuc tensors to-dat`."""

    file: File
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The tensor to write.")] = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.dat", help="The file to write.")
    ] = None
    every: Annotated[
        Path | None, typer.Option("--all", metavar="DIR", help="Write every tensor into a folder.")
    ] = None
    quiet: options.Quiet = False


@app.command("to-dat")
@takes(TensorsToDatCommand)
def to_dat(args: TensorsToDatCommand) -> None:
    """Write tensors as raw bytes: little-endian, row by row, no header."""
    from npuc.files import make_folder
    from npuc.tensors import TensorFile, file_names, write_raw

    printer = Printer(args.quiet)
    tensors = TensorFile(args.file)
    if args.every is not None:
        if args.name is not None or args.output is not None:
            raise UsageError("--all writes every tensor: a NAME and -o do not go with it")
        folder = make_folder(args.every)
        for key, stem in file_names(tensors).items():
            write_raw(folder / f"{stem}.dat", tensors[key])
            printer.say(f"{key} -> {folder / stem}.dat")
        return
    if args.output is None:
        raise UsageError("-o FILE.dat or --all DIR is needed")
    if args.name is None and len(tensors) > 1:
        raise UsageError(
            f"which tensor? {args.file} holds {', '.join(list(tensors)[:10])}", fix="Name it after the file"
        )
    key = args.name if args.name is not None else next(iter(tensors))
    header = tensors.header(key)
    write_raw(args.output, tensors[key])
    printer.say(
        f"{key} {'x'.join(map(str, header.shape)) or 'scalar'} {header.dtype} -> {args.output} ({header.nbytes} bytes)"
    )


class TensorsStatsCommand(CommandOptions):
    """The command line of `npuc tensors stats`."""

    file: File
    as_json: options.Json = False


@app.command("stats")
@takes(TensorsStatsCommand)
def stats(args: TensorsStatsCommand) -> None:
    """Print the statistics of every tensor in a file."""
    from npuc.compare.tensors import summarize
    from npuc.tensors import TensorFile

    printer = Printer(as_json=args.as_json)
    tensors = TensorFile(args.file)
    figures = [summarize(key, tensors[key]) for key in tensors]
    printer.table(
        ["tensor", "shape", "type", "min", "max", "mean", "std", "zeros", "NaN/Inf"],
        [
            [
                shorten(entry.name),
                "x".join(map(str, entry.shape)) or "scalar",
                entry.dtype,
                *(f"{value:.5g}" for value in (entry.minimum, entry.maximum, entry.mean, entry.deviation)),
                f"{entry.zeros:.1%}",
                entry.not_finite,
            ]
            for entry in figures
        ],
        right=["min", "max", "mean", "std", "zeros", "NaN/Inf"],
    )
    printer.result([vars(entry) for entry in figures])
