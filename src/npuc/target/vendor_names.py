"""Machines under the names that their vendors use: a chip, a fingerprint, or the file that a vendor's compiler takes.

A chip whose figures are documented, as far as they are, is a preset `...-like`; its vendor's name stands for it. A chip whose
figures nobody publishes is refused by its name, with the preset that is nearest. Every command that takes a target takes these
names, and the adapters of `npuc.compat` have no tables of their own.
"""

from __future__ import annotations

import json
import re
from itertools import takewhile
from pathlib import Path

from npuc.errors import TargetError, UnknownTargetError
from npuc.files import read_short

SOPHGO = {"BM1684X": "bm1684x-like"}
"""What runs in the place of the BM1684X: npuc's machine of its figures. Programs in the chip's own instructions are those of the
preset `bm1684x`, in small letters; the chip or its vendor's functional model runs them."""

DPUS = {
    "DPUCZDX8G_ISA0_B4096": "dpuczdx8g-b4096-like",
    "DPUCZDX8G_ISA1_B4096": "dpuczdx8g-b4096-like",
    "DPUCVDX8G_ISA3_C32B3": "dpucvdx8g-c32b3-like",
    "DPUCAHX8H_ISA2_DWC": "dpucahx8h-dwc-like",
}
"""AMD's DPUs."""

ZHOUYI = {
    "X1_1204": "zhouyi-x1-like",
    "X2_1204": "zhouyi-x2-like",
    "X2_1204MP3": "zhouyi-x2mp3-like",
}
"""Parts of Arm China's Zhouyi family."""

VIPNANO = {
    f"VIPNANOQI_PID0X{part}": "vipnano-e8-like" if part == "E8" else "vipnano-like"
    for part in ("7D", "88", "99", "A1", "B9", "BE", "1E", "E8")
}
"""VIPNano parts of Amlogic's chips: one preset but for 0xE8, which also has scales for channels."""

PRESET_OF = {"ARIES": "aries-like"} | SOPHGO | DPUS | ZHOUYI | VIPNANO
"""The preset of a chip, by its vendor's name as `canonical` writes it."""

NEAREST = (
    dict.fromkeys(
        ("BM1684", "BM1686", "BM1688", "BM1690", "CV186X", "CV184X", "CV183X", "CV182X", "CV181X", "CV180X", "SG2380"),
        "bm1684x-like",
    )
    | dict.fromkeys(("DPUCAHX8L_ISA0", "DPUCADF8H_ISA0"), "dpucahx8h-dwc-like")
    | dict.fromkeys(("DPUCVDX8H_ISA1_F2W4_4PE", "DPUCV2DX8G_ISA1_C20B1"), "dpucvdx8g-c32b3-like")
    | dict.fromkeys(("Z2_0901", "Z2_1002", "Z2_1004", "Z2_1104", "Z3_0901", "Z3_1104"), "zhouyi-x1-like")
)  # fmt: skip
"""The nearest preset of chips whose figures are not published."""

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
"""DPUs by fingerprint: the guide's, and those that the vendor's compiler lists in its messages
(github.com/Xilinx/Vitis-AI, issues 995 and 1149; Vitis AI 3.0 raised a bit of some)."""

BOARDS = {
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

_MAX_FILE = 1 << 16
_EXAMPLE = '{"target": "DPUCZDX8G_ISA1_B4096"}'
_FINGERPRINT = re.compile(r"0x[0-9a-f]{1,16}")
_CONTAINER_PATH = re.compile(
    r"/opt/vitis[_-]ai/compiler/arch/[^/]+/(?P<board>[^/]+)/arch\.json", re.IGNORECASE
)


def canonical(name: str) -> str:
    """A vendor's name in capitals, with underscores, and without the suffix of a DPU's speed grade.

    >>> canonical("DPUCAHX8L-ISA0-SP"), canonical("bm1684x")
    ('DPUCAHX8L_ISA0', 'BM1684X')
    """
    return name.upper().replace("-", "_").removesuffix("_SP")


def preset_of(name: str) -> str | None:
    """The preset that a vendor's name of a chip stands for; None if it is no such name.

    >>> preset_of("BM1684X"), preset_of("dpuczdx8g-isa1-b4096"), preset_of("edge-4t")
    ('bm1684x-like', 'dpuczdx8g-b4096-like', None)
    """
    chip = canonical(name)
    if chip in NEAREST:
        raise UnknownTargetError(
            f"the figures of '{name}' are not published, so there is no target for it",
            fix=f"The nearest one is {NEAREST[chip]}; 'npuc targets show {NEAREST[chip]}' shows what it states",
        )
    return PRESET_OF.get(chip)


def names_like(name: str) -> list[str]:
    """The names with a preset that begin with the same two letters, or the same one before a digit: those of the same vendor.

    >>> names_like("X9")
    ['X1_1204', 'X2_1204', 'X2_1204MP3']
    """
    return [known for known in PRESET_OF if _letters(known) == _letters(canonical(name))]


def _letters(name: str) -> str:
    return "".join(takewhile(str.isalpha, name[:2]))


def is_fingerprint(name: str) -> bool:
    """Whether a text is the fingerprint of a target, like 0x0123456789abcdef."""
    return _FINGERPRINT.fullmatch(name.lower()) is not None


def name_in(file: str) -> str:
    """The name or fingerprint in a vendor's description of an architecture: JSON with `target` or `fingerprint`.

    A path of the vendor's container that does not exist here stands for its board.

    >>> name_in("/opt/vitis_ai/compiler/arch/DPUCZDX8G/ZCU102/arch.json")
    'DPUCZDX8G_ISA1_B4096'
    """
    container = _CONTAINER_PATH.fullmatch(file)
    if container is not None and not Path(file).exists():
        return _dpu_of_board(container["board"], file)
    data = read_short(file, _MAX_FILE, "a description of an architecture", TargetError)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TargetError(f"is not JSON ({error})", where=file, fix=f"Write {_EXAMPLE}") from error
    stated = [content.get(key) for key in ("target", "fingerprint")] if isinstance(content, dict) else []
    name = next((word for word in stated if isinstance(word, str) and word), None)
    if name is None or name.lower().endswith(".json"):
        raise TargetError("states neither 'target' nor 'fingerprint'", where=file, fix=f"Write {_EXAMPLE}")
    return name


def _dpu_of_board(board: str, file: str) -> str:
    if board.upper() not in BOARDS:
        raise UnknownTargetError(
            f"does not exist here, and there is no board '{board}'", where=file, fix=f"The boards are {', '.join(BOARDS)}"
        )  # fmt: skip
    return BOARDS[board.upper()]
