"""`aipu_profiler` and `AIPUBuilder.Profiler`: where the time of a program goes, by npuc's cycle model.

The data file is what aipugb and aipurun leave with --profile. Figures are of npuc's engines, under their own names: hardware
counters of the vendor's units do not exist here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npuc.compat.arguments import VendorParser, keyword
from npuc.errors import FileFormatError, UsageError
from npuc.files import existing_file, read_short, writable, write_atomically
from npuc.profile.host import host_times
from npuc.profile.report import report_of
from npuc.program.file import load_compiled
from npuc.sim import simulate

_LARGEST = 16 << 20


def get_profiler_data(json_path: Path | str, bin_path: Path | str, **kwargs: Any) -> dict[str, Any]:
    """The figures of every layer in the order in which they run, as `runtime_information`."""
    content = _graph(json_path)
    model = load_compiled(existing_file(bin_path))
    report = report_of(model, simulate(model), host_times(model, measure=False)).as_dict()
    frequency = float(kwargs.get("frequency") or content.get("frequency") or 1000.0)
    return {
        "graph_name": content.get("graph_name", model.name),
        "frequency": frequency,
        "graph": content,
        "profile_data": [
            {"name": layer["name"], "runtime_information": {k: v for k, v in layer.items() if k != "name"}}
            for layer in report["layers"]
        ],
    }


def _graph(path: Path | str) -> dict[str, Any]:
    place = existing_file(path)
    try:
        content = json.loads(read_short(place, _LARGEST, "a graph.json file", FileFormatError))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(place)) from error
    if not isinstance(content, dict):
        raise FileFormatError("is no graph.json of aipugb or aipurun", where=str(place))
    return content


def main(arguments: list[str], command: str = "aipu_profiler") -> int:
    """`aipu_profiler`."""
    parser = VendorParser(command, "Report where the time of a program goes, by npuc's cycle model.")
    parser.add("graph", help="graph.json of aipurun or aipugb")
    parser.add("data", help="profile_data.bin of the same run")
    parser.add("frequency", nargs="?", type=float, help="the clock in MHz; that of the target otherwise")
    parser.add(
        "-o", "--output", default="", metavar="FILE", help="the report; profile.html or .xlsx otherwise"
    )
    parser.add("--method", type=keyword("html", "xlsx"), default="html")
    options = parser.parse(arguments)
    if options.frequency is not None and not options.frequency > 0:
        raise UsageError(f"{command}: the frequency {options.frequency:g} is no number of MHz above 0")
    figures = get_profiler_data(options.graph, options.data, frequency=options.frequency)
    path = writable(options.output or f"profile.{options.method}")
    model = load_compiled(existing_file(options.data))
    timeline = simulate(model)
    report = report_of(model, timeline, host_times(model, measure=False))
    with write_atomically(path) as out:
        if options.method == "xlsx":
            from npuc.profile.sheets import report_sheets
            from npuc.profile.workbook import write_workbook

            write_workbook(out, report_sheets(report.as_dict()))
        else:
            from npuc.profile.page import html_page

            out.write(html_page(model, timeline, report).encode())
    cycles = report.as_dict()["summary"]["cycles"]
    print(
        f"{figures['graph_name']}: {cycles:.0f} cycles, {cycles / figures['frequency']:.1f} us at {figures['frequency']:g} MHz"
    )
    print(f"report written to {path}")
    return 0


def simulator_main(arguments: list[str]) -> int:
    """`aipu_simulator_profiler`: its options are not public; it has those of aipu_profiler, whose figures are simulated, too."""
    return main(arguments, "aipu_simulator_profiler")


__all__ = ["get_profiler_data"]
