"""Names of DPUs, fingerprints and arch.json files as targets.

    resolve_target("DPUCZDX8G_ISA1_B4096")        the preset that the name stands for
    resolve_target("0x0101000016010407")          the same, by the fingerprint of its configuration
    resolve_target("path/to/arch.json")           what the file names

A DPU whose figures are not among the presets is refused by name. Names, files and fingerprints of npuc's own targets are taken,
too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from npuc.errors import FileFormatError, FileMissingError, UnknownTargetError, UsageError
from npuc.files import read_short
from npuc.target import Target, load_target
from npuc.target.fingerprint import fingerprint_of
from npuc.target.load import available

B4096 = "dpuczdx8g-b4096-like"
"""The preset that Vitis programs get where they name no target."""

PRESET_OF = {
    "DPUCZDX8G_ISA0_B4096": B4096,
    "DPUCZDX8G_ISA1_B4096": B4096,
    "DPUCVDX8G_ISA3_C32B3": "dpucvdx8g-c32b3-like",
    "DPUCAHX8H_ISA2_DWC": "dpucahx8h-dwc-like",
}
"""Names of the guide that have a preset, in capitals and without a suffix."""

UNPUBLISHED = (
    "DPUCAHX8L_ISA0",
    "DPUCADF8H_ISA0",
    "DPUCVDX8H_ISA1_F2W4_4PE",
    "DPUCV2DX8G_ISA1_C20B1",
)
"""Names of the guide whose machine has no preset: of their sizes and clocks too little is published."""

FINGERPRINTS = {
    0x0101000016010407: "DPUCZDX8G_ISA1_B4096",
    0x0101000056010407: "DPUCZDX8G_ISA1_B4096",
    0x0603000B16011831: "DPUCVDX8G_ISA3_C32B3",
    0x0603000B56011831: "DPUCVDX8G_ISA3_C32B3",
    0x020200000010002B: "DPUCAHX8H_ISA2_DWC",
    0x030000000000001D: "DPUCAHX8L_ISA0",
    0x030000000000101D: "DPUCAHX8L_ISA0",
    0x0700000000000000: "DPUCADF8H_ISA0",
}
"""Fingerprints by the target that they stand for: the guide's, and those that the vendor's compiler lists in its messages
(github.com/Xilinx/Vitis-AI, issues 995 and 1149; Vitis AI 3.0 raised a bit of some)."""

_BOARDS = {
    "ZCU102": "DPUCZDX8G_ISA1_B4096",
    "ZCU104": "DPUCZDX8G_ISA1_B4096",
    "KV260": "DPUCZDX8G_ISA1_B4096",
    "VCK190": "DPUCVDX8G_ISA3_C32B3",
    "VCK5000": "DPUCVDX8H_ISA1_F2W4_4PE",
    "VEK280": "DPUCV2DX8G_ISA1_C20B1",
    "V70": "DPUCV2DX8G_ISA1_C20B1",
    "U50": "DPUCAHX8H_ISA2_DWC",
    "U50LV": "DPUCAHX8H_ISA2_DWC",
    "U55C": "DPUCAHX8H_ISA2_DWC",
    "U280": "DPUCAHX8L_ISA0",
    "U200": "DPUCADF8H_ISA0",
    "U250": "DPUCADF8H_ISA0",
}
"""The DPU of a board, for paths of arch.json files that exist in the vendor's containers only."""

_VENDOR_PATH = re.compile(r"/opt/vitis[_-]ai/compiler/arch/[^/]+/(?P<board>[^/]+)/arch\.json", re.IGNORECASE)
_FINGERPRINT = re.compile(r"0x[0-9a-f]{1,16}", re.IGNORECASE)
_SUFFIX = re.compile(r"_SP$")
_LARGEST_FILE = 1 << 16


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
    if _FINGERPRINT.fullmatch(word):
        return _by_fingerprint(word)
    if word.lower().endswith(".json"):
        return _from_file(Path(word))
    name = dpu_name(word)
    if name in PRESET_OF:
        return load_target(PRESET_OF[name])
    if name in UNPUBLISHED:
        raise UnknownTargetError(
            f"the figures of '{word}' are not published as far as a compiler needs them, and npuc has no preset of it",
            fix=f"The nearest preset is {_nearest(name)}; a target file of your own is given by its path",
        )
    if name.startswith("DPUC") and word not in {file.name for file in available()}:
        raise UnknownTargetError(
            f"there is no DPU '{word}'",
            fix=f"The names with a preset are {', '.join(PRESET_OF)}",
        )
    return load_target(word)


def _nearest(name: str) -> str:
    """The preset whose name has most in common with a DPU's: the letters before the last name its device family."""
    families = {"DPUCA": "dpucahx8h-dwc-like", "DPUCV": "dpucvdx8g-c32b3-like"}
    return families.get(name[:5], B4096)


def dpu_name(text: str) -> str:
    """A name as the guide writes it: capitals, underscores, no suffix.

    >>> dpu_name("DPUCAHX8L-ISA0-SP")
    'DPUCAHX8L_ISA0'
    """
    return _SUFFIX.sub("", text.upper().replace("-", "_"))


def _by_fingerprint(word: str) -> Target:
    value = int(word, 16)
    if value in FINGERPRINTS:
        return resolve_target(FINGERPRINTS[value])
    for file in available():
        target = load_target(file.name)
        if fingerprint_of(target) == value:
            return target
    known = ", ".join(f"0x{number:016x} ({name})" for number, name in FINGERPRINTS.items())
    raise UnknownTargetError(
        f"no target has the fingerprint {word}",
        fix=f"Of the DPUs, {known} is known; 'npuc targets list' shows npuc's own targets",
    )


def _from_file(path: Path) -> Target:
    if not path.exists():
        vendor = _VENDOR_PATH.fullmatch(str(path))
        if vendor is None:
            raise FileMissingError(
                "does not exist", where=str(path), fix='Such a file is {"target": "DPUCZDX8G_ISA1_B4096"}'
            )
        board = vendor["board"].upper()
        if board not in _BOARDS:
            raise UnknownTargetError(
                f"does not exist here, and there is no board '{vendor['board']}'",
                where=str(path),
                fix=f"The boards are {', '.join(_BOARDS)}",
            )
        return resolve_target(_BOARDS[board])
    data = read_short(path, _LARGEST_FILE, "an arch.json file", FileFormatError)
    try:
        content: Any = json.loads(data)
    except ValueError as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    stated = content.get("fingerprint") or content.get("target") if isinstance(content, dict) else None
    if not isinstance(stated, str) or stated.lower().endswith(".json"):
        raise FileFormatError(
            'has neither "target" nor "fingerprint"',
            where=str(path),
            fix='Write {"target": "DPUCZDX8G_ISA1_B4096"}',
        )
    return resolve_target(stated)
