"""`python -m vaitrace_py SCRIPT ARGUMENTS`: `vaitrace` for a Python program."""

from __future__ import annotations

import sys

from npuc.compat.registry import vendor_named
from npuc.compat.running import run_vendor_command
from npuc.errors import NpucError

__all__ = ["main"]


def main() -> int:
    """Trace the script that the command line names."""
    try:
        return run_vendor_command(vendor_named("vitis"), "vaitrace", ["-p", *sys.argv[1:]])
    except NpucError as error:
        print(f"error{error}", file=sys.stderr)
        return error.exit_status


_PROGRAM = getattr(sys.modules.get("__main__"), "__spec__", None)
if _PROGRAM is not None and _PROGRAM.name == "vaitrace_py":
    # `python -m vaitrace_py`: the module is the program.
    sys.exit(main())
