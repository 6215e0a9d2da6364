"""The `npuc` program: how it is run, and what happens to an error.

An error of the user's is one paragraph with a code and exit status 2, one of ours the same with 1; a traceback is shown
only if `NPUC_TRACEBACK=1` asks for it. Commands import what they need when they run, so that `npuc --help` is fast.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any

import typer

from npuc.cli import INTERRUPTED, console
from npuc.cli.commands import program
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


def __getattr__(name: str) -> Any:
    """`app` is the program with all its commands, made when it is asked for."""
    if name == "app":
        return program()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
        words = sys.argv[1:] if arguments is None else arguments
        result: Any = program(words[0] if words else None)(
            args=arguments, standalone_mode=False, prog_name="npuc"
        )
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
