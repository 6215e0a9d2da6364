"""List, show and check the machines that npuc compiles for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten, size
from npuc.errors import NpucError, TargetError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a target, or the path of a target file.")
]


class TargetsListCommand(CommandOptions):
    """The command line of `npuc targets list`."""

    as_json: options.Json = False


@app.command("list")
@takes(TargetsListCommand)
def list_targets(args: TargetsListCommand) -> None:
    """List the targets that are known by name: the presets, then your own."""
    from npuc.target import available, load_target

    printer = Printer(as_json=args.as_json)
    rows: list[list[str]] = []
    entries: list[dict[str, Any]] = []
    for file in available():
        try:
            target = load_target(file.name)
        except NpucError as error:
            # One bad file of a user's must not hide the others.
            rows.append(
                [
                    file.name,
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                    f"not valid: {shorten(error.message, 100)} ({file.path})",
                ]
            )
            entries.append({"name": file.name, "file": str(file.path), "error": error.paragraph()})
            continue
        shared = target.memory.shared
        rows.append(
            [
                file.name,
                str(target.compute.cores),
                _operations(target.peak_operations(*_first_pair(target))),
                size(target.memory.local.size),
                size(shared.size) if shared else "-",
                _rate(float(target.memory.dram.bandwidth.bytes_per_second(target.compute.clock))),
                target.description if file.preset else f"{target.description} ({file.path})".strip(),
            ]
        )
        entries.append(
            {
                "name": file.name,
                "preset": file.preset,
                "file": str(file.path),
                "description": target.description,
                "fingerprint": target.fingerprint_text,
            }
        )
    printer.table(
        ["target", "cores", "peak", "local memory", "shared", "DRAM", ""],
        rows,
        right=["cores", "peak", "local memory", "shared", "DRAM"],
    )
    printer.result(entries)


class TargetsShowCommand(CommandOptions):
    """The command line of `npuc targets show`."""

    name: Name
    as_json: options.Json = False


@app.command("show")
@takes(TargetsShowCommand)
def show(args: TargetsShowCommand) -> None:
    """Show a target, including what it inherits, and its derived figures."""
    from dataclasses import asdict

    import yaml

    from npuc.target import load_with_files
    from npuc.target.figures import derive

    printer = Printer(as_json=args.as_json)
    loaded = load_with_files(args.name)
    target, figures = loaded.target, derive(loaded.target)
    printer.say(f"{target.name}: {target.description}" if target.description else target.name)
    rows = [
        ["fingerprint", target.fingerprint_text],
        ["made of", " over ".join(file.shown for file in loaded.files)],
        *(
            [
                f"peak {peak.activation} × {peak.weight}",
                f"{_operations(peak.operations_per_second)}, {peak.multiplications_per_cycle:g} multiply-adds/cycle",
            ]
            for peak in figures.peaks
        ),
        ["peak depthwise", _operations(figures.depthwise_operations_per_second)],
        ["vector unit", f"{figures.vector_elements_per_cycle} elements/cycle"],
        ["local memory", f"{size(figures.local_bytes)} in all, banks of {size(figures.bank_bytes)}"],
    ]
    if figures.shared_bytes_per_cycle:
        rows.append(["shared memory", f"{figures.shared_bytes_per_cycle:g} bytes/cycle"])
    rows += [
        [
            "DRAM",
            f"{figures.dram_bytes_per_cycle:g} bytes/cycle, {figures.dram_latency_cycles} cycles latency",
        ],
        ["balance", f"{figures.multiplications_per_dram_byte:g} multiply-adds for each DRAM byte"],
    ]
    printer.say("\n".join(f"  {label:18} {words}" for label, words in rows))
    printer.say()
    # What it extends is merged in: written to a file, this text is the same target on its own.
    merged = {key: value for key, value in target.to_dict().items() if key != "extends"}
    text = yaml.safe_dump(merged, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    printer.say(text.rstrip())
    printer.result(
        {
            "target": target.to_dict(),
            "fingerprint": target.fingerprint_text,
            "files": [str(file.path) for file in loaded.files],
            "figures": asdict(figures),
        }
    )


class TargetsCheckCommand(CommandOptions):
    """The command line of `npuc targets check`."""

    file: Annotated[str, typer.Argument(metavar="FILE", help="A target file, or the name of a target.")]
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("check")
@takes(TargetsCheckCommand)
def check(args: TargetsCheckCommand) -> None:
    """Check a target file: print its fingerprint, or every problem that it has."""
    from npuc.target import load_with_files

    printer = Printer(args.quiet, args.as_json)
    try:
        target = load_with_files(args.file).target
    except TargetError as error:
        for problem in error.problems:
            printer.say(str(problem))
        printer.result({"valid": False, "problems": [problem.as_json() for problem in error.problems]})
        count = len(error.problems)
        if count < 2:
            raise
        raise TargetError(f"{count} problems", where=args.file, problems=error.problems) from error
    printer.say(f"{target.name} is valid, fingerprint {target.fingerprint_text}")
    printer.result({"valid": True, "name": target.name, "fingerprint": target.fingerprint_text})


def _first_pair(target: Any) -> tuple[str, str]:
    from npuc.target.figures import derive

    peak = derive(target).peaks[0]
    return peak.activation, peak.weight


def _operations(number: float) -> str:
    for limit, unit in ((1e12, "TOPS"), (1e9, "GOPS"), (1e6, "MOPS")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.3g} OPS"


def _rate(number: float) -> str:
    for limit, unit in ((1e9, "GB/s"), (1e6, "MB/s")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.3g} B/s"
