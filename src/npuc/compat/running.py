"""Run one command of a vendor."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from npuc.compat.registry import command_named
from npuc.compat.vendor import Vendor
from npuc.errors import NpucError


def run_vendor_command(vendor: Vendor, name: str, arguments: Sequence[str]) -> int:
    """Run a command with its arguments; the exit status. An error gets the vendor's identifier where there is one."""
    module, _, function = vendor.commands[command_named(vendor, name)].partition(":")
    main = cast("Callable[[list[str]], int]", getattr(import_module(module), function))
    try:
        return main(list(arguments))
    except NpucError as error:
        identifier = vendor.error_identifiers.get(error.code)
        if identifier and not error.message.startswith(identifier):
            error.message = f"{identifier}: {error.message}"
        for own, theirs in vendor.option_names.items():
            error.message = re.sub(rf"{own}(?![\w-])", theirs, error.message)
            error.fix = re.sub(rf"{own}(?![\w-])", theirs, error.fix) if error.fix else None
        raise


def warn(text: str) -> None:
    """One line for the user that is no result."""
    print(f"warning: {text}", file=sys.stderr)
