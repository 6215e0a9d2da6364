"""Tell what is installed and what is missing."""

from __future__ import annotations

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer


class DoctorCommand(CommandOptions):
    """The command line of `npuc doctor`."""

    as_json: options.Json = False


@takes(DoctorCommand)
def command(args: DoctorCommand) -> None:
    """Run the command."""
    from npuc.doctor import examine

    printer = Printer(as_json=args.as_json)
    findings = examine()
    printer.table(
        ["", "version", "status", "what for"],
        [[finding.name, finding.found or "-", finding.status, finding.use] for finding in findings],
    )
    missing = [finding for finding in findings if finding.status == "missing"]
    absent = [finding for finding in findings if finding.status == "absent"]
    printer.say()
    for label, group in (("missing", missing), ("optional", absent)):
        for finding in group:
            printer.say(f"{label}: {finding.name}, for {finding.use}: {finding.fix}")
    printer.say("npuc cannot work fully here." if missing else "All that npuc needs is here.")
    printer.result([vars(finding) | {"status": finding.status} for finding in findings])
    if missing:
        raise typer.Exit(1)
