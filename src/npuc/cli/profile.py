"""Show where the time of a compiled model goes: by layer, by group of layers and by engine, and what limits each.

The time on the NPU comes from the cycle simulator; CPU subgraphs are timed on this machine. -o writes a file, whose format
follows from its name: a report for a browser (.html), a workbook (.xlsx), the figures (.json), or a timeline for Perfetto
(.trace.json). --compare compares two models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten, size
from npuc.errors import UsageError
from npuc.files import writable, write_atomically
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.profile.report import Figures, Machine, Report
    from npuc.program.model import CompiledModel

_SHOWN = 20
Writer = Callable[[IO[bytes]], None]


class ProfileCommand(CommandOptions):
    """The command line of `npuc profile`."""

    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL.npu...", help="A compiled model; two with --compare.")
    ]
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare two models, of the same network or not.")
    ] = False
    outputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write .html, .xlsx, .json or .trace.json; repeat it for several.",
        ),
    ] = None
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a report that any browser opens.")
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the timeline for chrome://tracing or Perfetto."),
    ] = None
    host: Annotated[
        bool, typer.Option("--host/--no-host", help="Run the CPU subgraphs on this machine and time them.")
    ] = True
    entry: options.EntryName = ""
    layers: Annotated[int, typer.Option(min=0, help="Layers to list, the longest first; 0 is all.")] = _SHOWN
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(ProfileCommand)
def command(args: ProfileCommand) -> None:
    """Run the command."""
    if len(args.models) != 1 + args.compare:
        raise UsageError(
            f"--compare takes two models, not {len(args.models)}" if args.compare else "one model can be profiled at a time",
            fix="Two are compared with: npuc profile --compare A.npu B.npu",
        )  # fmt: skip
    files = [*((path, form_of(path)) for path in args.outputs or ())]
    files += [(path, form) for path, form in ((args.html, "html"), (args.trace, "trace")) if path is not None]
    if args.html is not None and form_of(args.html) != "html":
        raise UsageError(
            f"--html '{args.html}' is not an .html file", fix=f"Name it {args.html.with_suffix('.html')}"
        )
    for path, form in files:
        if args.compare and form not in ("json", "xlsx"):
            raise UsageError(
                "a report and a timeline are of one model",
                where=str(path),
                fix="Leave --compare out, or write .xlsx or .json",
            )
        writable(path)
    printer = Printer(args.quiet, args.as_json)
    load = partial(options.compiled_model, entry=args.entry)
    if args.compare:
        _compare(printer, load, args.models, files, args.host, args.layers)
    else:
        _profile(printer, load(args.models[0]), files, args.host, args.layers)


_FORMS = {".trace.json": "trace", ".json": "json", ".xlsx": "xlsx", ".html": "html", ".htm": "html"}


def form_of(path: Path) -> str:
    """What is to be written to a file, by the end of its name."""
    for ending, form in _FORMS.items():
        if path.name.lower().endswith(ending):
            return form
    raise UsageError(
        "the end of its name does not say what to write",
        where=str(path),
        fix="Use .html, .xlsx, .json or .trace.json",
    )


def _profile(
    printer: Printer, compiled: CompiledModel, files: list[tuple[Path, str]], host: bool, most: int
) -> None:
    from npuc.profile.host import host_times
    from npuc.profile.report import report_of
    from npuc.sim import simulate

    timeline = simulate(compiled)
    report = report_of(compiled, timeline, host_times(compiled, measure=host))
    content = report.as_dict()

    def workbook(out: IO[bytes]) -> None:
        from npuc.profile.sheets import report_sheets
        from npuc.profile.workbook import write_workbook

        write_workbook(out, report_sheets(content))

    def page(out: IO[bytes]) -> None:
        from npuc.profile.page import html_page

        out.write(html_page(compiled, timeline, report).encode())

    def events(out: IO[bytes]) -> None:
        from npuc.profile.timeline import chrome_trace

        out.write(json.dumps(chrome_trace(compiled, timeline)).encode())

    writers: dict[str, Writer] = {
        "xlsx": workbook,
        "html": page,
        "trace": events,
        "json": partial(_write_json, content),
    }
    _write(files, writers)
    _print(printer, report, most)
    _tell(printer, files)
    names = {form: next((str(path) for path, written in files if written == form), None) for form in writers}
    printer.result({**content, **names})


_TITLES = {"html": "report", "xlsx": "workbook", "json": "figures", "trace": "timeline"}


def _write(files: list[tuple[Path, str]], writers: Mapping[str, Writer]) -> None:
    """Before anything is printed: whoever reads that may have had enough of it."""
    for path, form in files:
        with write_atomically(path) as out:
            writers[form](out)


def _tell(printer: Printer, files: list[tuple[Path, str]]) -> None:
    for path, form in files:
        printer.say(f"{_TITLES[form]} written to {path}")


def _write_json(content: Any, out: IO[bytes]) -> None:
    out.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def _print(printer: Printer, report: Report, most: int) -> None:
    from npuc.profile.work import sparse_words

    summary, machine = report.as_dict()["summary"], report.machine
    printer.say(f"{_name(report.name)} on {report.target}: {_time(report, summary)}")
    for name, cycles in report.bounds.items():
        part = summary["of_bound"][name]
        printer.say(f"  {name:8} {cycles:,} cycles at least, {part:.1%} of the time")
    printer.say(
        f"  {'work':8} {summary['gop']:.4g} GOP, {summary['gops']:,.1f} GOP/s of {machine.peak / 1e9:,.0f}, "
        f"array in use {summary['utilization']:.1%}"
    )
    if words := sparse_words(layer.sparsity for layer in report.layers):
        printer.say(f"  {'sparse':8} {words}")
    printer.say(
        f"  {'busy':8} matrix {summary['matrix_share']:.1%}, vector {summary['vector_share']:.1%}, "
        f"DMA {summary['dma_share']:.1%}"
    )
    printer.say(
        f"  {'DRAM':8} {size(summary['weights_in'])} of constants{_decoded(summary)} and "
        f"{size(summary['features_in'])} of feature maps in, "
        f"{size(summary['features_out'])} out, {summary['bandwidth']:.3g} GB/s of {machine.bandwidth / 1e9:.3g}"
    )
    if summary["shared"]:
        printer.say(f"  {'shared':8} {size(summary['shared'])} through shared memory")
    printer.say(f"  {'on chip':8} {size(summary['on_chip'])} of {size(machine.local)} at the peak")
    charged = sorted(report.total.charged.items(), key=lambda item: -item[1])
    spent = ", ".join(
        f"{'DMA alone' if why == 'DMA' else why} {cycles / max(1, summary['cycles']):.1%}"
        for why, cycles in charged
        if cycles
    )
    if spent:
        printer.say(f"  {'spent':8} {spent}; the most by {summary['limited_by']}")
    for part in report.host:
        known = "not timed" if part.estimate is None else f"about {part.estimate * 1e3:.4g} ms (an estimate)"
        taken = f"{part.seconds * 1e3:.3f} ms on this machine" if part.seconds is not None else known
        printer.say(f"  {'CPU':8} {part.name}: {taken}")
    printer.say()
    ranked = sorted(report.layers, key=lambda layer: -layer.cycles)
    shown = ranked[:most] if most else ranked
    _table(printer, "layer", ((shorten(_name(part.name), 36), part) for part in shown), machine, report.total)
    if len(shown) < len(ranked):
        printer.say(f"and {counted(len(ranked) - len(shown), 'layer')} more")
    if any(len(group.layers) > 1 for group in report.groups):
        printer.say()
        groups = sorted(report.groups, key=lambda group: -group.figures.cycles)
        rows = []
        for group in groups[:most] if most else groups:
            first, last = (_name(report.layers[at].name) for at in (group.layers[0], group.layers[-1]))
            text = (
                shorten(first, 36) if len(group.layers) == 1 else f"{shorten(first, 17)}..{shorten(last, 17)}"
            )
            rows.append((text, group.figures))
        _table(printer, "group", rows, machine, report.total)
        if most and len(groups) > most:
            printer.say(f"and {counted(len(groups) - most, 'group')} more")


def _time(report: Report, summary: dict[str, Any]) -> str:
    """On the NPU, on the CPU, and together, as far as each is there."""
    cores = f" on {report.machine.cores} cores" if report.machine.cores > 1 else ""
    npu = f"{summary['cycles']:,.0f} cycles, {summary['milliseconds']:.4g} ms{cores}"
    if not report.host:
        return npu
    if any(part.seconds is None and part.estimate is None for part in report.host):
        return f"NPU {npu}; the time of the CPU is not known"
    measured = all(part.seconds is not None for part in report.host)
    how = "as measured on this machine" if measured else "an estimate"
    host, total = summary["host_milliseconds"], summary["total_milliseconds"]
    return f"NPU {npu}; CPU about {host:.4g} ms ({how}); together about {total:.4g} ms"


_COLUMNS = (
    "cycles", "share", "busiest", "matrix", "vector", "DMA", "array", "GOP/s", "consts", "in", "out", "GB/s", "on chip",
)  # fmt: skip


def _table(
    printer: Printer, what: str, rows: Iterable[tuple[str, Figures]], machine: Machine, total: Figures
) -> None:
    cells = []
    for name, figures in rows:
        row = figures.as_dict(machine, total.cycles)
        cells.append(
            [
                name, f"{row['cycles']:.0f}", f"{row['share']:.1%}", f"{row['busiest']:.0f}",
                row["matrix_busy"], row["vector_busy"], row["dma_busy"], f"{row['utilization']:.0%}", f"{row['gops']:.1f}",
                _short(row["weights_in"]), _short(row["features_in"]), _short(row["features_out"]),
                f"{row['bandwidth']:.2f}", _short(row["on_chip"]), row["limited_by"],
            ]
        )  # fmt: skip
    printer.table([what, *_COLUMNS, "limited by"], cells, right=_COLUMNS)


def _compare(
    printer: Printer,
    load: Callable[[Path], CompiledModel],
    models: list[Path],
    files: list[tuple[Path, str]],
    host: bool,
    most: int,
) -> None:
    from npuc.profile.compare import compare
    from npuc.profile.host import host_times
    from npuc.profile.report import report_of
    from npuc.profile.sheets import compare_sheets
    from npuc.profile.workbook import write_workbook
    from npuc.sim import simulate

    reports = []
    for path in models:
        compiled = load(path)
        reports.append(report_of(compiled, simulate(compiled), host_times(compiled, measure=host)))
    comparison = compare(*reports)
    writers: dict[str, Writer] = {
        "json": partial(_write_json, comparison),
        "xlsx": lambda out: write_workbook(out, compare_sheets(comparison)),
    }
    _write(files, writers)
    printer.say(f"A: {models[0]} ({reports[0].target}), B: {models[1]} ({reports[1].target})")
    printer.say()
    a, b = comparison["a"]["summary"], comparison["b"]["summary"]
    rows = [
        [label, *(text(side[key]) for side in (a, b)), _ratio(a[key], b[key])]
        for label, key, text in _COMPARED
    ]
    for name in [name for name in a["bounds"] if name in b["bounds"]]:
        parts = [side["of_bound"][name] for side in (a, b)]
        rows.append([f"{name} bound", *(f"{part:.1%} of the time" for part in parts), _ratio(*parts)])
    printer.table(["", "A", "B", "B / A"], rows, right=["A", "B", "B / A"])
    printer.say()
    _changes(printer, "layer", comparison["layers"], most)
    if comparison["host"]:
        printer.say()
        _changes(printer, "on the CPU", comparison["host"], most)
    _tell(printer, files)
    printer.result(comparison)


def _changes(printer: Printer, what: str, changes: list[dict[str, Any]], most: int) -> None:
    shown = changes[:most] if most else changes
    printer.table(
        [what, "A µs", "B µs", "difference", "B / A", "limited by"],
        [
            [
                shorten(_name(change["name"])),
                *("-" if change[key] is None else f"{change[key]:.2f}" for key in ("a", "b")),
                f"{change['difference']:+.2f}",
                _ratio(change["a"], change["b"]),
                " → ".join(dict.fromkeys(filter(None, (change["a_limited_by"], change["b_limited_by"])))),
            ]
            for change in shown
        ],
        right=["A µs", "B µs", "difference", "B / A"],
    )
    if len(shown) < len(changes):
        printer.say(f"and {len(changes) - len(shown)} {what}s more" if what == "layer" else "and more")


_COMPARED: tuple[tuple[str, str, Any], ...] = (
    ("cycles", "cycles", lambda value: f"{value:,.0f}"),
    ("ms", "milliseconds", lambda value: f"{value:.3f}"),
    ("ms on the CPU", "host_milliseconds", lambda value: f"{value:.3f}"),
    ("ms together", "total_milliseconds", lambda value: f"{value:.3f}"),
    ("GOP", "gop", lambda value: f"{value:.4g}"),
    ("GOP/s", "gops", lambda value: f"{value:,.1f}"),
    ("array in use", "utilization", lambda value: f"{value:.1%}"),
    ("constants in", "weights_in", size),
    ("feature maps in", "features_in", size),
    ("feature maps out", "features_out", size),
    ("DRAM GB/s", "bandwidth", lambda value: f"{value:.3g}"),
    ("on-chip peak", "on_chip", size),
    ("limited by", "limited_by", str),
)


def _ratio(a: Any, b: Any) -> str:
    if not isinstance(a, int | float) or not isinstance(b, int | float) or not a:
        return ""
    return f"{b / a:.3f}"


def _decoded(summary: dict[str, Any]) -> str:
    """What constants come to that are compressed in DRAM."""
    more = summary["weights_decoded"] > summary["weights_in"]
    return f" ({size(summary['weights_decoded'])} decoded)" if more else ""


def _short(number: int) -> str:
    """Bytes in a narrow column."""
    return f"{number / 1024:.1f}K" if number < 1 << 20 else f"{number / (1 << 20):.1f}M"


def _name(text: str) -> str:
    from npuc.program.disassemble import printable

    return printable(text)
