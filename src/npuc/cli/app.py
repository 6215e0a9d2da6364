"""The `npuc` program: its commands, and what happens to an error.

An error of the user's is one paragraph with a code and exit status 2, one of ours the same with 1; a traceback is shown
only if `NPUC_TRACEBACK=1` asks for it. Commands import what they need when they run, so that `npuc --help` is fast.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from npuc import __version__
from npuc.cli import (
    INTERRUPTED,
    analyze,
    calib_data,
    calibrate,
    combine,
    compat,
    compile_,
    console,
    diff,
    doctor,
    eval_,
    explore,
    export,
    import_,
    inspect,
    objdump,
    opt,
    ort_compile,
    profile,
    quantize,
    relocate,
    run,
    run_op,
    show,
    sign,
    sim,
    studio,
    targets,
    tensors,
    trace,
    train,
    verify,
)
from npuc.cli.once import each_once
from npuc.cli.plugin import with_plugins
from npuc.errors import (
    FileFormatError,
    FileMissingError,
    InternalError,
    NpucError,
    OutputError,
    ResourceLimitError,
    UsageError,
)
from npuc.files import before_mapping
from npuc.plugin_code import fault_of

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="npuc",
    help="An open NPU compiler suite: take a trained network, quantize it, compile it, run it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
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
app.command("explore", help=explore.__doc__)(explore.command)
app.command("sim", help=sim.__doc__)(sim.command)
app.command("profile", help=profile.__doc__)(profile.command)
app.command("studio", help=studio.__doc__)(studio.command)
app.command("trace", help=trace.__doc__, context_settings={"allow_interspersed_args": False})(trace.command)
app.command("objdump", help=objdump.__doc__)(objdump.command)
app.command("combine", help=combine.__doc__)(combine.command)
app.command("relocate", help=relocate.__doc__)(relocate.command)
app.command("sign", help=sign.__doc__)(sign.command)
app.command("verify", help=verify.__doc__)(verify.command)
app.add_typer(tensors.app, name="tensors", help=tensors.__doc__)
app.add_typer(targets.app, name="targets", help=targets.__doc__)
app.add_typer(export.app, name="export", help=export.__doc__)
app.add_typer(train.app, name="train", help=train.__doc__)
app.add_typer(compat.app, name="compat", help=compat.__doc__)
app.command("doctor", help=doctor.__doc__)(doctor.command)
app.command("ort-compile", help=ort_compile.__doc__, hidden=True)(ort_compile.command)
with_plugins(app)
each_once(app)


def _whole_summaries(group: typer.Typer) -> None:
    """In lists of commands, the first paragraph of each; what is derived from the help ends where the line does."""
    for info in group.registered_commands:
        words = info.help or getattr(info.callback, "__doc__", None)
        info.short_help = info.short_help or _first_paragraph(words)
    for below in group.registered_groups:
        assert below.typer_instance is not None
        below.short_help = _first_paragraph(below.help if isinstance(below.help, str) else None)
        _whole_summaries(below.typer_instance)


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


_whole_summaries(app)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"npuc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    before_mapping(_report_truncation)
    sys.exit(run_command(arguments))


def _report_truncation() -> None:
    from npuc.native import report_truncation  # needs ctypes, which `npuc --help` does not

    report_truncation(FileFormatError.exit_status)


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit status and never raises."""
    _open_streams()
    try:
        status = _invoke(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read our output has had enough.
        _discard(sys.stdout)
        return 0
    except SystemExit as leave:
        fault = fault_of(leave)
        if fault is not None:
            return _report(fault, leave)
        if isinstance(leave.__context__, BrokenPipeError):
            # What typer makes of a closed pipe.
            return 0
        return leave.code if isinstance(leave.code, int) else 1
    except (KeyboardInterrupt, typer.Abort):
        console.complain("interrupted")
        return INTERRUPTED
    except NpucError as error:
        return _report(fault_of(error) or error, error)
    except MemoryError as error:
        return _report(
            ResourceLimitError("the machine ran out of memory", fix="Use a smaller input or batch"), error
        )
    except OSError as error:
        fault = fault_of(error)
        if fault is not None:
            return _report(fault, error)
        if error.filename is not None:
            # A name that is too long, a folder that may not be entered: the system knows more of those than npuc asks for.
            where = console.shorten(str(error.filename), 100)
            words, fix = f"cannot be used: {error.strerror}", "Check the path"
            return _report(FileMissingError(words, where=where, fix=fix), error)
        if error.errno not in _FULL:
            return _bug(error)
        # Results are written by `write_atomically`, which has its own words: this is about what is printed.
        _discard(sys.stdout)
        words = f"what is printed cannot be written: {error.strerror}"
        return _report(OutputError(words, fix="Make room, or send it to another place"), error)
    except Exception as error:
        if _was_interrupted(error):
            console.complain("interrupted")
            return INTERRUPTED
        fault = fault_of(error)
        return _report(fault, error) if fault is not None else _bug(error)


def _was_interrupted(error: BaseException | None) -> bool:
    """Libraries that are being loaded make an error of their own of Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _bug(error: Exception) -> int:
    words = f"{type(error).__name__}: {error}".strip().rstrip(":")
    fix = "This is a bug in npuc: please report it with the command line (NPUC_TRACEBACK=1 shows where)"
    return _report(InternalError(words, fix=fix), error)


def _open_streams() -> None:
    """Streams that take all that is printed: nobody reads one that was closed before the program began (`>&-`), and a
    letter that the terminal's encoding lacks, or a name of a file that is no text, is shown by its number."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it stays open to the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard(stream: Any) -> None:
    """Send what is left in a stream nowhere: Python would complain again when it closes it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
    if status == INTERRUPTED:
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
