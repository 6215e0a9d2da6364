"""What `npuc compile` writes and tells of a program for a chip with an instruction set of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.cli.console import Printer, size
from npuc.errors import CompileError

if TYPE_CHECKING:
    from npuc.codegen.compile_model import Compilation


def save(done: Compilation, to: Path) -> None:
    """A `.npu` file, or the chip's own file of a network that is one subgraph of it."""
    from npuc.files import write_atomically
    from npuc.program.file import save_compiled
    from npuc.program.model import ChipSubgraph, CpuSubgraph

    if to.suffix != ".bmodel":
        save_compiled(done.model, to)
        return
    chips = [part for part in done.model.subgraphs if isinstance(part, ChipSubgraph)]
    others = [part for part in done.model.subgraphs if isinstance(part, CpuSubgraph)]
    if len(chips) != 1 or others:
        raise CompileError(
            f"the network is {len(chips)} subgraphs of the chip and {len(others)} of the CPU, and a .bmodel file holds one "
            "subgraph of the chip",
            where=str(to),
            fix=f"Write a .npu file, which holds them all: -o {to.with_suffix('.npu').name}",
        )
    with write_atomically(to) as out:
        out.write(chips[0].program)


def figures(
    done: Compilation, to: Path, subgraphs: Sequence[dict[str, Any]], seconds: float, compile_seconds: float
) -> dict[str, Any]:
    """What is told, as plain data."""
    from npuc.schedule.bm1684x.cycles import timeline

    chips = {part.name: part.schedule for part in done.chips}
    times = [timeline(schedule.commands) for schedule in chips.values()]
    for entry in subgraphs:
        schedule = chips.get(entry["name"])
        if schedule is not None:
            entry["commands"] = len(schedule.commands)
            entry["tiled"] = sum(count > 1 for count in schedule.tiles)
    return {
        "file": str(to),
        "bytes": to.stat().st_size,
        "target": done.model.target["name"],
        "seconds": seconds,
        "compile_seconds": compile_seconds,
        "subgraphs": list(subgraphs),
        "cycles": sum(time.total for time in times),
        "busy_cycles": {engine: sum(time.busy[engine] for time in times) for engine in ("tiu", "gdma")},
        "dram_bytes": sum(schedule.moved for schedule in chips.values()),
        "weights_bytes": sum(len(schedule.coefficients) for schedule in chips.values()),
        "workspace_bytes": sum(schedule.activations for schedule in chips.values()),
        "lane_bytes": max((schedule.peak for schedule in chips.values()), default=0),
    }


def tell(
    printer: Printer, told: dict[str, Any], print_subgraph: Callable[[Printer, dict[str, Any]], None]
) -> None:
    """The same in lines."""
    for entry in told["subgraphs"]:
        print_subgraph(printer, entry)
    busy = ", ".join(f"{engine.upper()} {cycles:,}" for engine, cycles in told["busy_cycles"].items())
    printer.say(f"  {'time':8} {told['cycles']:,} cycles by the vendor's table; busy: {busy}")
    printer.say(f"  {'DRAM':8} {size(told['dram_bytes'])} moved")
    printer.say(
        f"  {'memory':8} weights {size(told['weights_bytes'])}, activations {size(told['workspace_bytes'])}, "
        f"{size(told['lane_bytes'])} of the 256.0 KiB of each lane at the peak"
    )
    printer.say(f"  {'file':8} {size(told['bytes'])}, compiled in {told['compile_seconds']:.2f} s")
