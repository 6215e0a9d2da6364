"""Names of DPUs, fingerprints and arch.json files as targets: every command of npuc takes them (`npuc.target.vendor_names`)."""

from __future__ import annotations

from pathlib import Path

from npuc.errors import UsageError
from npuc.target import Target, load_target

B4096 = "dpuczdx8g-b4096-like"
"""The preset that Vitis programs get where they name no target."""


def resolve_target(text: str | Path) -> Target:
    """The target of a DPU's name, a fingerprint, an arch.json file, or a name or file of npuc's own.

    >>> resolve_target("dpuczdx8g-isa1-b4096").name
    'dpuczdx8g-b4096-like'
    """
    word = str(text).strip()
    if not word:
        raise UsageError(
            "no target is named", fix="Give a DPU's name such as DPUCZDX8G_ISA1_B4096, or an arch.json file"
        )
    return load_target(word)
