"""Look at networks in a browser: the graph, the error of layers, the time and the memory, on one page.

FILES are models of any form, tables, configurations and samples, or one folder; the page shows the folder that they are in, and
reads nothing outside of it. The server answers this machine only. The first two models are what the page opens with: the one
that is looked at, and the one that it is compared with. --export writes the page as one file that needs no server;
--node-data writes what Google's Model Explorer paints layers with: the time of a compiled model, or the SQNR of the first model
against the second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer
from npuc.errors import UsageError


class StudioCommand(CommandOptions):
    """The command line of `npuc studio`."""

    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILES...]", help="Files of a project, or its folder.")
    ] = None
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE.html", help="Write the page to this file, and serve nothing."),
    ] = None
    node_data: Annotated[
        Path | None,
        typer.Option(
            "--node-data",
            metavar="FILE.json",
            help="Write data of layers for Model Explorer, and serve nothing.",
        ),
    ] = None
    postprocess: Annotated[
        str,
        typer.Option(
            metavar="KIND[:NAME=VALUE,...]",
            help="How outputs become boxes that are drawn on images, as 'npuc eval' takes it.",
        ),
    ] = ""
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen at; 0 is any that is free.")
    ] = 0
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the address in a browser.")
    ] = True
    threads: options.OneThread = 1
    quiet: options.Quiet = False


@takes(StudioCommand)
def command(args: StudioCommand) -> None:
    """Run the command."""
    from npuc.files import writable, write_atomically
    from npuc.studio.project import Project, sample_among
    from npuc.studio.studio import Studio

    printer = Printer(args.quiet, False)
    project, names = Project.of(args.files or [])
    studio = Studio(project, args.threads)
    if args.export is not None:
        from npuc.studio.export import export

        if args.export.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"--export '{args.export}' is not an .html file")
        writable(args.export)
        every = names or [file.name for file in project.files()]
        page = export(studio, every, args.postprocess, printer.note)
        with write_atomically(args.export) as out:
            out.write(page.encode())
        printer.say(f"page written to {args.export}")
        return
    if args.node_data is not None:
        from npuc.studio.export import layer_data

        writable(args.node_data)
        with write_atomically(args.node_data) as out:
            out.write((json.dumps(layer_data(studio, names), indent=1) + "\n").encode())
        printer.say(f"data written to {args.node_data}")
        return
    from npuc.studio.serving import serve

    files = project.files()
    models = [file.name for file in files if file.kind in ("model", "network", "program")]
    start = dict(zip(("a", "b"), (name for name in names if name in models), strict=False))
    if sample := sample_among(files, names):
        start["sample"] = sample
    if args.postprocess:
        start["decode"] = args.postprocess
    serve(
        studio, args.port, urlencode(start), browser=args.browser, say=lambda words: print(words, flush=True)
    )
