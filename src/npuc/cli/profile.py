"""Show where the time of a compiled model goes: by layer, by group of layers, by engine, and what limits each.

The time is that of the cycle simulator; what runs on the CPU is timed on this machine. --html writes a report for a
browser, --trace a timeline for Perfetto. --compare puts two models side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import options
from npuc.cli.console import Printer, shorten, size
from npuc.errors import UsageError

if TYPE_CHECKING:
    from npuc.profile.report import Figures, Machine, Report

_SHOWN = 20


def command(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL.npu...", help="A compiled model; two with --compare.")
    ],
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare two models, of the same network or not.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a report that any browser opens.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the timeline for chrome://tracing or Perfetto."),
    ] = None,
    host: Annotated[
        bool, typer.Option("--host/--no-host", help="Run what is for the CPU here, and time it.")
    ] = True,
    layers: Annotated[int, typer.Option(min=0, help="Layers to list, the longest first; 0 is all.")] = _SHOWN,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run the command."""
    if len(models) != 1 + compare:
        raise UsageError(
            f"--compare takes two models, not {len(models)}" if compare else "one model can be profiled at a time",
            fix="npuc profile --compare A.npu B.npu",
        )  # fmt: skip
    for path in (html, trace):
        if compare and path is not None:
            raise UsageError("--html and --trace are for one model", fix="Leave --compare out")
    printer = Printer(quiet, as_json)
    if compare:
        _compare(printer, models, host, layers)
    else:
        _profile(printer, models[0], html, trace, host, layers)


def _profile(
    printer: Printer, model: Path, html: Path | None, trace: Path | None, host: bool, most: int
) -> None:
    from npuc.codegen.file import load_compiled
    from npuc.files import writable, write_atomically
    from npuc.profile.host import host_times
    from npuc.profile.page import html_page
    from npuc.profile.report import report_of
    from npuc.profile.timeline import chrome_trace
    from npuc.sim import simulate

    for path in (html, trace):
        if path is not None:
            writable(path)
    compiled = load_compiled(model)
    timeline = simulate(compiled)
    report = report_of(compiled, timeline, host_times(compiled, measure=host))
    _print(printer, report, most)
    if html is not None:
        with write_atomically(html) as out:
            out.write(html_page(compiled, timeline, report).encode())
        printer.say(f"report written to {html}")
    if trace is not None:
        with write_atomically(trace) as out:
            out.write(json.dumps(chrome_trace(compiled, timeline)).encode())
        printer.say(f"timeline written to {trace}")
    files = {"html": str(html) if html else None, "trace": str(trace) if trace else None}
    printer.result({**report.as_dict(), **files})


def _print(printer: Printer, report: Report, most: int) -> None:
    whole, machine = report.as_dict()["summary"], report.machine
    cores = f" on {machine.cores} cores" if machine.cores > 1 else ""
    printer.say(
        f"{_name(report.name)} on {report.target}: {whole['cycles']:,.0f} cycles, {whole['milliseconds']:.3f} ms{cores}"
    )
    for name, cycles in report.bounds.items():
        part = whole["of_bound"][name]
        printer.say(f"  {name:8} {cycles:,} cycles at least, {part:.1%} of the time")
    printer.say(
        f"  {'work':8} {whole['gop']:.4g} GOP, {whole['gops']:,.1f} GOP/s of {machine.peak / 1e9:,.0f}, "
        f"array in use {whole['utilization']:.1%}"
    )
    printer.say(
        f"  {'busy':8} matrix {whole['matrix_share']:.1%}, vector {whole['vector_share']:.1%}, "
        f"DMA {whole['dma_share']:.1%}"
    )
    printer.say(
        f"  {'DRAM':8} {size(whole['weights_in'])} of constants and {size(whole['features_in'])} of feature maps in, "
        f"{size(whole['features_out'])} out, {whole['bandwidth']:.3g} GB/s of {machine.bandwidth / 1e9:.3g}"
    )
    if whole["shared"]:
        printer.say(f"  {'shared':8} {size(whole['shared'])} through shared memory")
    printer.say(f"  {'on chip':8} {size(whole['on_chip'])} of {size(machine.local)} at the peak")
    charged = sorted(report.total.charged.items(), key=lambda item: -item[1])
    limits = ", ".join(f"{why} {cycles / max(1, whole['cycles']):.1%}" for why, cycles in charged if cycles)
    printer.say(f"  {'limits':8} {limits or 'none'}")
    for one in report.host:
        taken = f"{one.seconds * 1e3:.3f} ms on this machine" if one.seconds is not None else "not timed"
        printer.say(f"  {'CPU':8} {one.name}: {taken}")
    printer.say()
    ranked = sorted(report.layers, key=lambda layer: -layer.cycles)
    shown = ranked[:most] if most else ranked
    _table(printer, "layer", ((shorten(_name(one.name), 36), one) for one in shown), machine, report.total)
    if len(shown) < len(ranked):
        printer.say(f"and {len(ranked) - len(shown)} layers more")
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
            printer.say(f"and {len(groups) - most} groups more")


_COLUMNS = (
    "cycles", "share", "bound", "matrix", "vector", "DMA", "array", "GOP/s", "consts", "in", "out", "GB/s", "on chip",
)  # fmt: skip


def _table(
    printer: Printer, what: str, rows: Iterable[tuple[str, Figures]], machine: Machine, total: Figures
) -> None:
    made = []
    for name, figures in rows:
        one = figures.as_dict(machine, total.cycles)
        made.append(
            [
                name, f"{one['cycles']:.0f}", f"{one['share']:.1%}", f"{one['bound']:.0f}",
                one["matrix_busy"], one["vector_busy"], one["dma_busy"], f"{one['utilization']:.0%}", f"{one['gops']:.1f}",
                _short(one["weights_in"]), _short(one["features_in"]), _short(one["features_out"]),
                f"{one['bandwidth']:.2f}", _short(one["on_chip"]), one["limited_by"],
            ]
        )  # fmt: skip
    printer.table([what, *_COLUMNS, "limited by"], made, right=_COLUMNS)


def _compare(printer: Printer, models: list[Path], host: bool, most: int) -> None:
    from npuc.codegen.file import load_compiled
    from npuc.profile.compare import compare
    from npuc.profile.host import host_times
    from npuc.profile.report import report_of
    from npuc.sim import simulate

    reports = []
    for path in models:
        compiled = load_compiled(path)
        reports.append(report_of(compiled, simulate(compiled), host_times(compiled, measure=host)))
    found = compare(*reports)
    printer.say(f"A: {models[0]} ({reports[0].target}), B: {models[1]} ({reports[1].target})")
    printer.say()
    a, b = found["a"]["summary"], found["b"]["summary"]
    rows = [
        [label, *(text(one[key]) for one in (a, b)), _ratio(a[key], b[key])] for label, key, text in _COMPARED
    ]
    printer.table(["", "A", "B", "B / A"], rows, right=["A", "B", "B / A"])
    printer.say()
    shown = found["layers"][:most] if most else found["layers"]
    printer.table(
        ["layer", "A µs", "B µs", "difference", "B / A"],
        [
            [
                shorten(_name(one["name"])),
                *("-" if one[key] is None else f"{one[key]:.2f}" for key in ("a", "b")),
                f"{one['difference']:+.2f}",
                _ratio(one["a"], one["b"]),
            ]
            for one in shown
        ],
        right=["A µs", "B µs", "difference", "B / A"],
    )
    if len(shown) < len(found["layers"]):
        printer.say(f"and {len(found['layers']) - len(shown)} layers more")
    printer.result(found)


_COMPARED: tuple[tuple[str, str, Any], ...] = (
    ("cycles", "cycles", lambda value: f"{value:,.0f}"),
    ("ms", "milliseconds", lambda value: f"{value:.3f}"),
    ("ms on the CPU", "host_milliseconds", lambda value: f"{value:.3f}"),
    ("GOP", "gop", lambda value: f"{value:.4g}"),
    ("GOP/s", "gops", lambda value: f"{value:,.1f}"),
    ("array in use", "utilization", lambda value: f"{value:.1%}"),
    ("constants in", "weights_in", size),
    ("feature maps in", "features_in", size),
    ("feature maps out", "features_out", size),
    ("on-chip peak", "on_chip", size),
    ("limited by", "limited_by", str),
)


def _ratio(a: Any, b: Any) -> str:
    if not isinstance(a, int | float) or not isinstance(b, int | float) or not a:
        return ""
    return f"{b / a:.3f}"


def _short(number: int) -> str:
    """Bytes in a narrow column."""
    return f"{number / 1024:.1f}K" if number < 1 << 20 else f"{number / (1 << 20):.1f}M"


def _name(text: str) -> str:
    from npuc.codegen.disassemble import printable

    return printable(text)
