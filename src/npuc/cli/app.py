"""The `npuc` program: its commands, and what happens to an error.

An error of the user's is one paragraph with a code and exit status 2, one of ours the same with 1; a traceback is shown
only if `NPUC_TRACEBACK=1` asks for it. Commands import what they need when they run, so that `npuc --help` is fast.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from npuc import __version__
from npuc.cli import (
    analyze,
    calib_data,
    calibrate,
    compile_,
    console,
    diff,
    doctor,
    eval_,
    export,
    import_,
    inspect,
    objdump,
    opt,
    profile,
    quantize,
    relocate,
    run,
    run_op,
    show,
    sim,
    targets,
    tensors,
    trace,
)
from npuc.cli.plugin import with_plugins
from npuc.errors import InternalError, NpucError, UsageError

_INTERRUPTED = 130

app = typer.Typer(
    name="npuc",
    help="An open NPU compiler suite: take a trained network, quantize it, compile it, run it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("import", help=import_.__doc__)(import_.command)
app.command("opt", help=opt.__doc__)(opt.command)
app.command("calibrate", help=calibrate.__doc__)(calibrate.command)
app.command("calib-data", help=calib_data.__doc__)(calib_data.command)
app.command("quantize", help=quantize.__doc__)(quantize.command)
app.command("run", help=run.__doc__)(run.command)
app.command("run-op", help=run_op.__doc__)(run_op.command)
app.command("show", help=show.__doc__)(show.command)
app.command("inspect", help=inspect.__doc__)(inspect.command)
app.command("eval", help=eval_.__doc__)(eval_.command)
app.command("analyze", help=analyze.__doc__)(analyze.command)
app.command("diff", help=diff.__doc__)(diff.command)
app.command("compile", help=compile_.__doc__)(compile_.command)
app.command("sim", help=sim.__doc__)(sim.command)
app.command("profile", help=profile.__doc__)(profile.command)
app.command("trace", help=trace.__doc__, context_settings={"allow_interspersed_args": False})(trace.command)
app.command("objdump", help=objdump.__doc__)(objdump.command)
app.command("relocate", help=relocate.__doc__)(relocate.command)
app.add_typer(tensors.app, name="tensors", help=tensors.__doc__)
app.add_typer(targets.app, name="targets", help=targets.__doc__)
app.add_typer(export.app, name="export", help=export.__doc__)
app.command("doctor", help=doctor.__doc__)(doctor.command)
with_plugins(app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"npuc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run_command(arguments))


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit status and never raises."""
    try:
        status = _invoke(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read our output has had enough. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as leave:
        # typer's answer to a closed pipe.
        return leave.code if isinstance(leave.code, int) else 1
    except (KeyboardInterrupt, typer.Abort):
        console.complain("interrupted")
        return _INTERRUPTED
    except NpucError as error:
        return _report(error)
    except MemoryError as error:
        return _report(
            InternalError("the machine ran out of memory", fix="Use a smaller input or batch"), error
        )
    except Exception as error:
        words = f"{type(error).__name__}: {error}".strip().rstrip(":")
        fix = "This is a bug in npuc: please report it with the command line (NPUC_TRACEBACK=1 shows where)"
        return _report(InternalError(words, fix=fix), error)


def _invoke(arguments: list[str] | None) -> int:
    try:
        result: Any = app(args=arguments, standalone_mode=False, prog_name="npuc")
    except NpucError:
        raise
    except Exception as error:
        # Usage errors of typer (or of click, in its older versions) know how to word themselves.
        if not hasattr(error, "format_message"):
            raise
        return _usage(error)
    status = result if isinstance(result, int) and not isinstance(result, bool) else 0
    if status == _INTERRUPTED:
        # typer turns Ctrl-C into this status by itself.
        raise KeyboardInterrupt
    return status


def _usage(error: Any) -> int:
    words = error.format_message().strip().replace("Value error, ", "")
    # What `no_args_is_help` raises carries the whole help text.
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(words)
        return 0
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "npuc"
    text = " ".join(words.split())
    return _report(UsageError(text, fix=f"'{path} --help' shows how it is used"))


def _report(error: NpucError, cause: BaseException | None = None) -> int:
    console.complain(f"error[{error.code}]: {error.paragraph()}")
    if os.environ.get("NPUC_TRACEBACK") == "1":
        import traceback

        traceback.print_exception(cause or error)
    return error.exit_status
