"""`vaitrace`: run a program and record what it does with compiled models.

By default it writes a trace for Perfetto and tables as CSV; with `--txt`, a table of the DPU subgraphs and the CPU parts. Figures
of the DPU are those of the cycle model for the programs that the command line names.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npuc.compat.arguments import VendorParser
from npuc.compat.running import warn
from npuc.errors import FileFormatError, UsageError
from npuc.files import read_short, write_atomically
from npuc.frontend.sniff import describe_content
from npuc.profile.program_trace import ProgramTrace, trace_program
from npuc.profile.report import Figures, Machine, report_of
from npuc.program.file import load_compiled
from npuc.program.model import CompiledModel, CpuSubgraph
from npuc.sim import simulate

_MEGA = 1 << 20
_SUMMARY = "xclbin.ex.run_summary"
_LARGEST_FILE = 1 << 20
_MISSING_COMMA = re.compile(r'([}\]"])(\s*\n\s*")')
_HEAD = ("DPU Id", "Bat", "SubGraph", "WL", "RT", "Perf", "LdWB", "LdFM", "StFM", "AvgBw")
_LISTS = ("vitis-ai-library", "vart", "opencv", "custom")


def main(arguments: list[str]) -> int:
    """`vaitrace`."""
    options, command = _divided(arguments)
    parser = VendorParser("vaitrace", "Run a program and record what it does with compiled models.")
    parser.add("-c", dest="config", nargs="?", metavar="FILE", help="A configuration (JSON).")
    parser.add("-o", dest="output", nargs="?", metavar="FILE", help="Where the text summary is written.")
    parser.add(
        "-t",
        dest="timeout",
        nargs="?",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="How long to record.",
    )
    parser.add("-v", dest="version", action="store_true", help="Show the version.")
    parser.add("-b", dest="bypass", action="store_true", help="Only run the program.")
    parser.add("-p", dest="python", action="store_true", help="The program is a Python script.")
    parser.add("--va", action="store_true", help="A trace and tables (the default).")
    parser.add("--txt_summary", "--txt", dest="text", action="store_true", help="A text summary.")
    parser.add("--fine_grained", action="store_true", help="Layers instead of subgraphs.")
    parser.add_ignored("-d", "nothing is left to debug", action="store_true")
    parser.add_ignored("--xat", "the trace is the raw data", action="store_true")
    given = parser.parse(options)
    if given.version:
        print("vaitrace 3.5.0 (npuc)")
        return 0
    if not command:
        raise UsageError("vaitrace needs a program to run", fix="vaitrace ./program model.xmodel")
    if given.va and given.text:
        raise UsageError("--va and --txt_summary exclude each other")
    if given.config:
        _check_config(Path(given.config))
    if given.python or command[0].endswith(".py"):
        command = [sys.executable, *command]
    if given.bypass:
        return subprocess.run(command).returncode
    trace = trace_program(command, Path("vaitrace.json"))
    if trace.seconds > (10 if given.fine_grained else given.timeout or 30):
        warn("recording is not ended by -t here: all of the program is in vaitrace.json")
    models = list(_models(command))
    if not models:
        warn("no argument of the program is a compiled model: there are no figures of the DPU")
    if given.text:
        _tell(summary_of(models, trace, layers=given.fine_grained), given.output)
        Path("vaitrace.json").unlink()
    else:
        tables = tables_of(models, trace, layers=given.fine_grained)
        for name, rows in tables.items():
            _write_csv(Path(name), rows)
        _write_run_summary(command, trace, list(tables))
        print(
            f"written: vaitrace.json (https://ui.perfetto.dev), vaitrace_dpu.csv, vaitrace_cpu.csv, {_SUMMARY}",
            file=sys.stderr,
        )
    return trace.status


def _write_run_summary(command: list[str], trace: ProgramTrace, tables: list[str]) -> None:
    """The file that names all files of a run, in a form of npuc's own: the vendor publishes none of its own."""
    files = [
        {"name": "vaitrace.json", "type": "TRACE"},
        *({"name": name, "type": "TABLE"} for name in tables),
    ]
    content = {"command": command, "status": trace.status, "seconds": round(trace.seconds, 6), "files": files}
    with write_atomically(Path(_SUMMARY)) as out:
        out.write(json.dumps({"version": 1, "tool": "npuc", "run": content}, indent=1).encode())


def _divided(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Options of vaitrace, and the program with its own."""
    with_value = {"-c", "-o", "-t"}
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        if arguments[place] == "--":
            return arguments[:place], arguments[place + 1 :]
        place += 2 if arguments[place] in with_value else 1
    return arguments[:place], arguments[place:]


def _check_config(path: Path) -> None:
    """A configuration in the guide's form, also without the comma that its example lacks."""
    text = read_short(path, _LARGEST_FILE, "a configuration", FileFormatError).decode(errors="replace")
    try:
        content = json.loads(_MISSING_COMMA.sub(r"\1,\2", text) if not _is_json(text) else text)
    except ValueError as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    names = content.get("trace", {}).get("enable_trace_list", []) if isinstance(content, dict) else None
    if not isinstance(names, list):
        raise FileFormatError('has to be {"trace": {"enable_trace_list": [...]}}', where=str(path))
    for name in names:
        if str(name).replace("opency", "opencv") not in _LISTS:
            warn(f"{path}: there is no list of functions '{name}'")
    if "custom" in names and content.get("trace_custom"):
        warn("trace_custom means nothing here: functions of the program itself are not traced")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _models(command: list[str]) -> Iterator[CompiledModel]:
    """The compiled models among the arguments of a program."""
    for word in command[1:]:
        path = Path(word)
        if path.is_file() and describe_content(path).kind == "npu":
            yield load_compiled(path)


def tables_of(
    models: list[CompiledModel], trace: ProgramTrace, *, layers: bool
) -> dict[str, list[list[str]]]:
    """The rows of both tables, their heads first."""
    dpu = [list(_HEAD)]
    cpu = [["SubGraph", "Ops", "Device", "Runs", "AverageRunTime(ms)"]]
    runs = trace.recorded.counts["cpu"]
    spent = trace.recorded.nanoseconds["cpu"] / 1e6 / runs if runs else 0.0
    for model in models:
        report = report_of(model, simulate(model))
        for figures in report.layers if layers else _subgraphs(report.layers):
            if figures.cycles:
                dpu.append(_row(model, figures, report.machine))
        for part in model.subgraphs:
            if isinstance(part, CpuSubgraph):
                cpu.append([part.name, " ".join(part.reasons), "CPU", str(runs), f"{spent:.3f}"])
    return {"vaitrace_dpu.csv": dpu, "vaitrace_cpu.csv": cpu}


def _subgraphs(layers: list[Figures]) -> list[Figures]:
    parts: dict[str, Figures] = {}
    for layer in layers:
        if layer.subgraph:
            parts.setdefault(layer.subgraph, Figures(layer.subgraph)).add(layer)
    return list(parts.values())


def _row(model: CompiledModel, figures: Figures, machine: Machine) -> list[str]:
    seconds = figures.cycles / machine.clock
    operations = 2 * figures.macs / 1e9
    values = (
        operations,
        seconds * 1e3,
        operations / seconds,
        figures.weights_in / _MEGA,
        figures.features_in / _MEGA,
        figures.features_out / _MEGA,
        figures.dram / _MEGA / seconds,
    )
    return [str(model.target.get("name")), "1", figures.name, *map(_number, values)]


def _number(value: float) -> str:
    """Three digits; `~0` for what is between 0 and 0.001.

    >>> _number(0.0004), _number(1.5)
    ('~0', '1.500')
    """
    return "~0" if 0 < value < 0.001 else f"{value:.3f}"


def summary_of(models: list[CompiledModel], trace: ProgramTrace, *, layers: bool) -> str:
    """The text summary."""
    tables = tables_of(models, trace, layers=layers)
    functions = [["Function", "Device", "Runs", "AverageRunTime(ms)"]]
    for category, count in sorted(trace.recorded.counts.items()):
        if count and category in trace.recorded.nanoseconds:
            functions.append(
                [category, "CPU", str(count), f"{trace.recorded.nanoseconds[category] / 1e6 / count:.3f}"]
            )
    notes = (
        "WL(GOP), RT(ms), Perf(GOP/s), LdWB, LdFM, StFM(MB of 2^20 bytes), AvgBw(MB/s); ~0: within (0, 0.001)"
    )
    parts = [
        ("DPU Summary:", tables["vaitrace_dpu.csv"]),
        ("CPU Tasks in Graph(called by graph runner):", tables["vaitrace_cpu.csv"]),
        ("CPU Functions(Not in Graph, e.g.: pre/post-processing, vai-runtime):", functions),
    ]
    text = "\n\n".join("\n".join([title, *_aligned(rows)]) for title, rows in parts)
    return f"{text}\n\nNotes: {notes}\n"


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield " | ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()


def _tell(text: str, path: Any) -> None:
    if path:
        with write_atomically(Path(path)) as out:
            out.write(text.encode())
    else:
        print(text, end="")


def _write_csv(path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    with write_atomically(path) as out:
        out.write(text.getvalue().encode())
