"""Which vendors there are, and finding one of them or of their commands by name."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import cast

from npuc.compat.vendor import Vendor
from npuc.errors import UsageError

NAMES = ("tpumlir", "vitis", "acuity", "compass", "qubee")
"""The packages below `npuc.compat` that have a `VENDOR`, in the order in which they are listed."""


def vendors() -> list[Vendor]:
    """All of them.

    >>> [vendor.name for vendor in vendors()][0]
    'tpumlir'
    """
    return [cast(Vendor, import_module(f"npuc.compat.{name}").VENDOR) for name in NAMES]


def vendor_named(name: str) -> Vendor:
    """The vendor of that name; capitals, dashes and blanks do not matter.

    >>> vendor_named("TPU-MLIR").name
    'tpumlir'
    """
    plain = "".join(filter(str.isalnum, name.lower()))
    for vendor in vendors():
        if plain == vendor.name:
            return vendor
    near = get_close_matches(plain, NAMES, 1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    raise UsageError(f"there is no toolchain '{name}'", fix=f"{hint}There are: {', '.join(NAMES)}")


def command_named(vendor: Vendor, name: str) -> str:
    """The command of a vendor by its name; a suffix `.py` may be left out."""
    for command in (name, f"{name}.py"):
        if command in vendor.commands:
            return command
    near = get_close_matches(name, vendor.commands, 1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    raise UsageError(
        f"{vendor.title} has no command '{name}' here", fix=f"{hint}There are: {', '.join(vendor.commands)}"
    )
