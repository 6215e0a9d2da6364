"""Use the commands and packages of another vendor's toolchain on npuc."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer
from npuc.words import counted

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Toolchain = Annotated[
    str, typer.Argument(metavar="NAME", help="The toolchain; 'npuc compat list' shows which there are.")
]
AS_WRITTEN = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Everything behind the command belongs to the vendor's tool."""


class CompatListCommand(CommandOptions):
    """The command line of `npuc compat list`."""

    as_json: options.Json = False


@app.command("list")
@takes(CompatListCommand)
def list_toolchains(args: CompatListCommand) -> None:
    """List the toolchains, and the commands and modules of each."""
    from npuc.compat.registry import vendors

    printer = Printer(as_json=args.as_json)
    known = vendors()
    for vendor in known:
        printer.say(f"{vendor.name}: {vendor.title} (docs/{vendor.page})")
        for label, names in (("commands", vendor.commands), ("modules", vendor.modules)):
            if names:
                printer.say(f"  {label:8}  {', '.join(names)}")
    printer.result(
        [
            {"name": v.name, "title": v.title, "commands": list(v.commands), "modules": list(v.modules)}
            for v in known
        ]
    )


class CompatInstallCommand(CommandOptions):
    """The command line of `npuc compat install`."""

    name: Toolchain
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder to write to; it gets the folders bin and python, for C++ also include and lib.",
        ),
    ]
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("install")
@takes(CompatInstallCommand)
def install(args: CompatInstallCommand) -> None:
    """Write the scripts and packages of a toolchain into a folder.

    Files that something else wrote are never replaced. What makes them found is printed, not done: nothing is put on PATH.
    """
    from npuc.compat.install import install as write
    from npuc.compat.registry import vendor_named

    printer = Printer(args.quiet, args.as_json)
    vendor = vendor_named(args.name)
    done = write(vendor, args.folder)
    printer.say(
        f"{vendor.title}: {counted(len(done.files), 'file')} written to '{args.folder}'. To use them:"
    )
    lines = {
        "PATH": done.scripts,
        "PYTHONPATH": done.packages,
        "CPLUS_INCLUDE_PATH": done.headers,
        "LIBRARY_PATH": done.libraries,
        "LD_LIBRARY_PATH": done.runtime,
    }
    for variable, folder in lines.items():
        if folder is not None:
            printer.say(f'export {variable}="{folder}${{{variable}:+:${variable}}}"')
    printer.result(
        {
            "files": [str(file) for file in done.files],
            **{variable: str(folder) if folder else None for variable, folder in lines.items()},
        }
    )


class CompatRunCommand(CommandOptions):
    """The command line of `npuc compat run`."""

    name: Toolchain
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="The command of the toolchain.")]
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="Its options and arguments.")
    ] = None


@app.command("run", context_settings=AS_WRITTEN)
@takes(CompatRunCommand)
def run(args: CompatRunCommand) -> None:
    """Run one command of a toolchain with its own options."""
    from npuc.compat.registry import vendor_named
    from npuc.compat.running import run_vendor_command

    status = run_vendor_command(vendor_named(args.name), args.command, args.arguments or [])
    if status:
        raise typer.Exit(status)
