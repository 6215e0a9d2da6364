"""Targets: the machines that npuc compiles for, described by data.

`load_target("edge-4t")` or `load_target("my.yaml")` gives a frozen, validated `Target` with a 64-bit fingerprint;
`check_op` tells which of its limits an op fails. See docs/targets.md for the file format.
"""

from npuc.target.check import LimitFailure, Support, check_op, support
from npuc.target.interface import DescribedMachine, Machine
from npuc.target.load import TargetFile, available, load_target, load_with_files, search_path
from npuc.target.model import Target
from npuc.target.vocabulary import OP_KINDS

__all__ = [
    "OP_KINDS",
    "DescribedMachine",
    "LimitFailure",
    "Machine",
    "Support",
    "Target",
    "TargetFile",
    "available",
    "check_op",
    "load_target",
    "load_with_files",
    "search_path",
    "support",
]
