"""Chips by TPU-MLIR's names."""

from __future__ import annotations

from npuc.compat.arguments import VendorParser
from npuc.errors import UsageError
from npuc.target import Target, load_target
from npuc.target.vendor_names import SOPHGO

MACHINE = SOPHGO["BM1684X"]
"""What runs in the place of the BM1684X: npuc's machine of its figures. Programs in the chip's own instructions, for the target
`bm1684x`, are run by the chip or by its vendor's functional model only, and these commands run what they make."""


def add_chip(parser: VendorParser, required: bool = False) -> None:
    """The option that names the chip, under both of its names."""
    parser.add("--chip", "--processor", required=required, help="bm1684x, or any target of npuc")


def chip_named(name: str, command: str) -> Target:
    """The target of a chip; one whose figures nobody publishes is refused with the nearest preset."""
    if not name:
        raise UsageError("--chip is missing", where=command, fix="Give --chip bm1684x")
    # A chip is written in small letters or in capitals; the names of npuc's own targets are small.
    small = name if "/" in name or "." in name else name.lower()
    return load_target(MACHINE if small == "bm1684x" else small)
