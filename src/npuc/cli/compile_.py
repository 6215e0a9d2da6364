"""Compile a network for an NPU: the whole way from a model file to a program.

A float network is quantized for the target first, as 'npuc quantize' does it; an integer network (.mlir) is compiled as it
is. Every decision is printed and can be changed: --device puts layers on the CPU or the NPU, and --schedule fixes groups,
tiles and other schedule decisions by a file, which --save-schedule writes. Search results are cached in the user's cache
folder; set NPUC_CACHE to another folder, or to 'off'.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import calibration_data as given
from npuc.cli import chip_report, ladder, options, sim
from npuc.cli import quantization as quant
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten, size
from npuc.cli.preprocessing import PreprocessingOptions
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npuc.codegen.compile_model import Compilation, CompileOptions
    from npuc.frontend.options import ImportOptions
    from npuc.ir import Graph
    from npuc.profile.timeline import Profile
    from npuc.schedule.bounds import Bounds
    from npuc.target import Target

_SHOWN = 8
_MOST = 12
"""Subgraphs that are listed one by one."""


class CompileCommand(CommandOptions):
    """The command line of `npuc compile`."""

    model: options.Model
    target: options.Target
    data: ladder.Data = None
    table: quant.Table = None
    random: given.Random = False
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.npu",
            help="Where to write the result.  [default: MODEL.npu beside the model]",
        ),
    ] = None
    level: Annotated[
        int,
        typer.Option(
            "-O",
            min=0,
            max=3,
            help="The effort of the schedule search: 0 runs layer by layer, 1 forms groups of layers, 2 also compares "
            "several candidates, 3 many.",
        ),
    ] = 2
    device: options.Devices = None
    state: options.States = None
    island_threshold: options.IslandThreshold = 1.0
    min_ops: options.MinOps = 1
    npu_only: Annotated[
        bool,
        typer.Option(
            "--npu-only",
            help="Leave nothing to the CPU: refuse a network of which a layer does not fit the NPU, with the reasons.",
        ),
    ] = False
    cores: Annotated[
        int | None,
        typer.Option(min=1, help="Use at most this many cores.  [default: all cores of the target]"),
    ] = None
    local_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Use at most this much of each core's local memory, such as 128KiB, so that programs can share it.  "
            "[default: all of it]",
        ),
    ] = None
    schedule: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml", help="Schedule decisions to keep fixed; --save-schedule writes such a file."
        ),
    ] = None
    save_schedule: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yaml", help="Write the decisions of the schedule to this file."),
    ] = None
    integer_io: Annotated[
        str | None,
        typer.Option(
            "--integer-io",
            metavar="inputs|outputs|both",
            help="The program takes or gives the integers of the NPU there instead of reals; its file states their scales.",
        ),
    ] = None
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize",
            help="Also execute the program on zeros and check it for bad memory accesses and races.",
        ),
    ] = False
    dump_ir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the program after every stage into this folder.")
    ] = None
    ranges: quant.RangeOptions
    calib: ladder.Calib = None
    ladder_options: ladder.LadderOptions
    schemes: quant.SchemeOptions
    force_float: quant.ForceFloat = False
    input_shape: options.InputShapes = None
    inputs: options.Inputs = None
    outputs: options.Outputs = None
    preprocessing: PreprocessingOptions
    add_postprocess: options.Postprocess = None
    weights: options.Weights = None
    threads: options.Threads = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(CompileCommand)
def command(args: CompileCommand) -> None:
    """Run the command."""
    from npuc.codegen.compile_model import CompileOptions
    from npuc.files import existing_model, make_folder, writable
    from npuc.flow import compile_network
    from npuc.ir.states import parse_states
    from npuc.partition.overrides import parse_devices
    from npuc.program.file import save_compiled
    from npuc.schedule.cache import Cache
    from npuc.schedule.schedule_file import ScheduleFile
    from npuc.target import load_target

    printer = Printer(args.quiet, args.as_json)
    start = time.perf_counter()
    existing_model(args.model)
    to = args.output or args.model.with_name(f"{args.model.stem}.npu")
    machine = load_target(args.target)
    own = machine.instruction_set == "npuc"
    options.result(to, ".bmodel" if not own and to.suffix == ".bmodel" else ".npu")
    if args.save_schedule is not None:
        writable(args.save_schedule)
    request = quant.QuantizationRequest.of(args)
    request.check()
    if args.cores is not None and args.cores > machine.compute.cores:
        count = machine.compute.cores
        raise UsageError(f"{machine.name} has {counted(count, 'core')}, and --cores asks for {args.cores}")
    cache = Cache.default()
    compile_options = CompileOptions(
        args.level,
        parse_devices(args.device or []),
        args.island_threshold,
        args.cores,
        ScheduleFile.load(args.schedule) if args.schedule else ScheduleFile.model_construct(),
        cache,
        _local_memory(args.local_memory, machine),
        args.min_ops,
        args.npu_only,
        args.integer_io or "",
    )
    folder = make_folder(args.dump_ir) if args.dump_ir is not None else None
    graph, quantization = _integer_network(
        printer,
        args.model,
        request,
        machine,
        compile_options,
        args.force_float,
        options.imported_as(
            args.model,
            args.input_shape,
            args.weights,
            args.add_postprocess,
            args.inputs,
            args.outputs,
            args.preprocessing,
        ),
        folder,
        parse_states(args.state or []),
    )
    began = time.perf_counter()
    done = compile_network(graph, machine, compile_options, args.model.stem)
    compile_seconds = time.perf_counter() - began
    if not own:
        chip_report.save(done, to)
        seconds = time.perf_counter() - start
        printer.say(f"{args.model} -> {to} for {machine.name} ({seconds:.1f} s)")
        if quantization is not None:
            quant.print_outcome(
                printer, quantization.quantized.outcome, quantization.scheme, quantization.origin
            )
        subgraphs = _subgraphs(done)
        figures = chip_report.figures(done, to, subgraphs, seconds, compile_seconds)
        chip_report.tell(printer, figures, _print_subgraph)
        if quantization is not None:
            quant.print_accuracy(printer, quantization.quantized)
            figures |= quant.accuracy_json(quantization.quantized)
        printer.result(figures)
        return
    for words in cache.problems if cache is not None else ():
        printer.note(
            f"{words}; schedules are searched anew every time (NPUC_CACHE names another folder, or is 'off')"
        )
    if folder is not None:
        _write_stages(folder, done, machine)
    if args.sanitize:
        sim.check(printer, done.model)
    save_compiled(done.model, to)
    if args.save_schedule is not None:
        _write(args.save_schedule, _schedule_text(done, machine))
    if printer.quiet and not printer.as_json:
        return
    from npuc.profile.occupancy import local_peak, local_reach
    from npuc.profile.timeline import profile_of
    from npuc.profile.work import sparse_layers
    from npuc.sim import simulate

    profile = profile_of(done.model, simulate(done.model))
    seconds = time.perf_counter() - start
    printer.say(f"{args.model} -> {to} for {machine.name} at -O{args.level} ({seconds:.1f} s)")
    if quantization is not None:
        quant.print_outcome(printer, quantization.quantized.outcome, quantization.scheme, quantization.origin)
    limits = _bounds(done, machine, max(1, profile.cores))
    _print(printer, done, profile, limits, int(machine.memory.local.size), compile_seconds, to)
    if quantization is not None:
        quant.print_accuracy(printer, quantization.quantized)
    printer.result(
        {
            "file": str(to),
            "bytes": to.stat().st_size,
            "target": machine.name,
            "level": args.level,
            "seconds": seconds,
            "compile_seconds": compile_seconds,
            "subgraphs": _subgraphs(done),
            "cycles": profile.cycles,
            "milliseconds": profile.milliseconds,
            "host_milliseconds": profile.host_milliseconds,
            "total_milliseconds": profile.total_milliseconds,
            "cores": profile.cores,
            "busy": profile.busy,
            "bounds": limits,
            "dram_bytes": profile.dram,
            "weights_bytes": done.model.segments[0].size,
            "sparse_layers": {done.model.layers[at]: text for at, text in sparse_layers(done.model).items()},
            "workspace_bytes": done.model.segments[1].size,
            "local_memory_bytes": local_peak(done.model),
            "local_memory_reach": local_reach(done.model),
            "sanitized": args.sanitize,
            "schedule": str(args.save_schedule) if args.save_schedule else None,
            **(quant.accuracy_json(quantization.quantized) if quantization is not None else {}),
        }
    )


def _local_memory(text: str | None, target: Target) -> int | None:
    """The bytes that --local-memory asks for."""
    from npuc.arithmetic.units import parse_bytes

    if text is None:
        return None
    available = int(target.memory.local.size)
    try:
        limit = parse_bytes(int(text) if text.isascii() and text.isdigit() else text)
    except ValueError as error:
        raise UsageError(f"--local-memory: {error}") from error
    if not 0 < limit <= available:
        raise UsageError(
            f"--local-memory asks for {limit:,} bytes, and a core of {target.name} has {available:,}",
            fix="Ask for a part of it, or leave the option out to use all",
        )
    return limit


def _integer_network(
    printer: Printer,
    model: Path,
    request: quant.QuantizationRequest,
    target: Target,
    compile_options: CompileOptions,
    force_float: bool,
    imported: ImportOptions | None,
    folder: Path | None,
    states: Mapping[str, str],
) -> tuple[Graph, quant.QuantizationRun | None]:
    """The network as integers, and how it became so unless it was."""
    from npuc.codegen.preflight import check_options
    from npuc.flow import load_model, network_to_quantize, save_graph
    from npuc.frontend.sniff import describe_content
    from npuc.ir.states import set_states
    from npuc.partition import float_on_cpu
    from npuc.quant.report import is_integer

    own = describe_content(model).kind == "mlir"
    loaded = load_model(model, imported) if own or folder is not None else None
    if own and loaded is not None and is_integer(loaded):
        quant.refuse_unused(model, request, force_float, imported.postprocess if imported else None)
        set_states(loaded, {**loaded.states, **states})
        if folder is not None:
            save_graph(loaded, folder / "2-quantized.mlir")
        return loaded, None
    if loaded is not None and folder is not None:
        save_graph(loaded, folder / ("1-canonical.mlir" if own else "0-imported.mlir"))
    graph = network_to_quantize(model, imported, force_float=force_float)
    options.tell_import(printer, graph)
    set_states(graph, {**graph.states, **states})
    check_options(graph, target, compile_options)
    if folder is not None:
        save_graph(graph, folder / "1-canonical.mlir")
    request = request.changed(floats=float_on_cpu(graph, compile_options.devices))
    done = quant.quantized(printer, model, graph, request, target)
    if folder is not None:
        save_graph(done.quantized.graph, folder / "2-quantized.mlir")
    return done.quantized.graph, done


def _write(path: Path, text: str) -> None:
    from npuc.files import write_atomically

    with write_atomically(path) as out:
        out.write(text.encode())


def _write_stages(folder: Path, done: Compilation, target: Target) -> None:
    """The program after the last stages, for a reader."""
    from npuc.schedule.listing import save_listing

    _write(folder / "3-partition.txt", _partition_text(done))
    _write(folder / "4-schedule.yaml", _schedule_text(done, target))
    for part in done.parts:
        save_listing(part.schedule, folder / f"5-schedule-{part.name}.txt")


def _schedule_text(done: Compilation, target: Target) -> str:
    """What was decided, as a file that decides it again."""
    from npuc.schedule.schedule_file import describe

    parts = {
        part.name: (part.scheduled.schedule_decisions, [layer.name for layer in part.network.layers])
        for part in done.parts
    }
    return describe(parts, target.name)


def _bounds(done: Compilation, target: Target, cores: int) -> dict[str, int]:
    """The lower bounds of all NPU subgraphs, one after the other."""
    from npuc.schedule.bounds import bounds

    by_part: list[Bounds] = [bounds(part.network, target, cores) for part in done.parts]
    return {
        key: sum(getattr(part_bounds, key) for part_bounds in by_part)
        for key in ("roofline", "buffered", "matrix", "vector", "bytes")
    }


def _subgraphs(done: Compilation) -> list[dict[str, Any]]:
    """Subgraphs as plain data."""
    from npuc.ir import result_names

    parts = {part.name: part for part in done.parts}
    entries = []
    for subgraph, part in zip(done.model.subgraphs, done.partition.parts, strict=True):
        names = [result_names(op)[0] for op in part.ops]
        entry: dict[str, Any] = {"name": subgraph.name, "device": part.device, "layers": names}
        if part.device not in ("npu", "convert"):
            entry["reasons"] = {
                name: done.partition.reasons[name] for name in names if name in done.partition.reasons
            }
            entry["levers"] = {
                name: done.partition.levers[name] for name in names if name in done.partition.levers
            }
        if subgraph.name in parts:
            schedule_decisions = parts[subgraph.name].scheduled.schedule_decisions
            entry |= {
                "groups": len(schedule_decisions.decisions.groups),
                "tiles": sum(group.tile_count for group in schedule_decisions.decisions.groups),
                "cores": schedule_decisions.cores,
                "choices": asdict(schedule_decisions.choices),
                "cached": parts[subgraph.name].cached,
            }
        entries.append(entry)
    return entries


def _partition_text(done: Compilation) -> str:
    """Which layer is in which subgraph, and why not on the NPU."""
    lines = []
    for entry in _subgraphs(done):
        lines.append(f"{entry['name']} ({entry['device']})")
        lines += [f"  {name}{_because(entry, name)}" for name in entry["layers"]]
    return "\n".join(lines) + "\n"


def _because(entry: dict[str, Any], name: str) -> str:
    reason = entry.get("reasons", {}).get(name)
    return f": {reason}" if reason else ""


def _print(
    printer: Printer,
    done: Compilation,
    profile: Profile,
    limits: dict[str, int],
    local: int,
    seconds: float,
    to: Path,
) -> None:
    from npuc.profile.work import sparse_layers, sparse_words

    subgraphs = _subgraphs(done)
    for entry in subgraphs if len(subgraphs) <= _MOST else _by_device(subgraphs):
        _print_subgraph(printer, entry)
    if profile.cycles or profile.host_parts:
        printer.say(f"  {'time':8} {profile.time_words()}")
    if profile.cycles:
        printer.say(
            f"  {'bounds':8} buffered {limits['buffered']:,} ({limits['buffered'] / profile.cycles:.1%} of the time), "
            f"roofline {limits['roofline']:,} ({limits['roofline'] / profile.cycles:.1%})"
        )
        printer.say(
            f"  {'busy':8} " + ", ".join(f"{queue} {part:.1%}" for queue, part in profile.busy.items())
        )
        least = max(1, limits["bytes"])
        printer.say(
            f"  {'DRAM':8} {size(profile.dram)} moved, {profile.dram / least:.2f} times the {size(least)} that have to be"
        )
    if words := sparse_words(sparse_layers(done.model).values()):
        printer.say(f"  {'sparse':8} {words}")
    segments = done.model.segments
    on_chip = f", local {_local_words(done, local)}" if done.parts else ""
    printer.say(
        f"  {'memory':8} weights {size(segments[0].size)}, workspace {size(segments[1].size)}{on_chip}"
    )
    cached = " (schedule from the cache)" if done.parts and all(part.cached for part in done.parts) else ""
    printer.say(f"  {'file':8} {size(to.stat().st_size)}, compiled in {seconds:.2f} s{cached}")


def _local_words(done: Compilation, local: int) -> str:
    """How much of a core's local memory is taken, and where, if objects lie apart."""
    from npuc.profile.occupancy import local_peak, local_reach

    peak, reach = local_peak(done.model), local_reach(done.model)
    apart = f", in its first {size(reach)}" if 1.1 * peak < reach < local else ""
    return f"{size(peak)} of {size(local)} at the peak{apart}"


def _by_device(subgraphs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All subgraphs of a device as one."""
    entries = []
    for device in dict.fromkeys(entry["device"] for entry in subgraphs):
        members = [entry for entry in subgraphs if entry["device"] == device]
        together: dict[str, Any] = {"name": f"{len(members)} x", "device": device}
        together["layers"] = [name for entry in members for name in entry["layers"]]
        for key in ("reasons", "levers"):
            together[key] = {name: words for entry in members for name, words in entry.get(key, {}).items()}
        for key, join in (("groups", sum), ("tiles", sum), ("cores", max)):
            together[key] = join([entry.get(key, 1) for entry in members])
        entries.append(together)
    return entries


def _print_subgraph(printer: Printer, entry: dict[str, Any]) -> None:
    count = len(entry["layers"])
    layers = counted(count, "layer")
    if entry["device"] == "npu" and "commands" in entry:
        tiled = f", {entry['tiled']} of them in tiles" if entry["tiled"] else ""
        printer.say(f"  {entry['name']:8} NPU: {layers}{tiled}, {entry['commands']} commands")
        return
    if entry["device"] == "npu":
        groups = f"{counted(entry['groups'], 'group')}, {counted(entry['tiles'], 'tile')}"
        cores = f", {entry['cores']} cores" if entry["cores"] > 1 else ""
        printer.say(f"  {entry['name']:8} NPU: {layers} in {groups}{cores}")
        return
    if entry["device"] == "convert":
        plural = "s" * (count != 1)
        printer.say(f"  {entry['name']:8} host: {count} conversion{plural} between reals and integers")
        return
    device = "CPU" if entry["device"] == "cpu" else f"the accelerator '{entry['device']}'"
    printer.say(f"  {entry['name']:8} {device}: {layers}")
    by_reason = Counter(entry["reasons"].values())
    for reason, number in by_reason.most_common(_SHOWN):
        names = [name for name, because in entry["reasons"].items() if because == reason]
        more = f" and {number - 1} more" if number > 1 else ""
        lever = entry["levers"].get(names[0])
        printer.say(f"  {'':8} {shorten(names[0])}{more}: {reason}{f'. {lever}' if lever else ''}")
