"""Calibration tables and quantization tables as TPU-MLIR writes them.

    # op_name    threshold    min    max
    images 1.0000080 0.0000000 1.0000080
    122_Conv 56.4281803 -102.5830231 97.6811752

The threshold serves symmetric schemes, min and max are the extremes that were seen. A quantization table gives ops the type that
they are computed in: `122_Conv F32`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from npuc.calib.table import CalibrationTable, Entry
from npuc.errors import FileFormatError
from npuc.files import read_short, write_atomically

_MAX_FILE = 256 << 20
_SECTIONS = ("#int8_th", "#int4_th", "#asym_op", "#weight_scale")


@dataclass(frozen=True)
class WeightScales:
    """The scales of a layer's weights, one a channel, which a trained network brings along."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


@dataclass(frozen=True)
class VendorTable:
    """What a calibration table says."""

    ranges: Mapping[str, Entry]
    weights: Mapping[str, WeightScales] = field(default_factory=dict)
    """By the name of the layer; only in tables of quantization-aware training."""
    work_mode: str = ""
    """Of a table of quantization-aware training, such as QAT_all_int8."""
    asymmetric: tuple[str, ...] = ()
    """Ops that are quantized with a zero point."""


def format_calibration(table: CalibrationTable, bins: int, samples: int, tuned: int) -> str:
    """A table as text, in the order of its entries."""
    lines = [
        f"# generated time: {datetime.now()}",
        f"# histogram number: {bins}",
        f"# sample number: {samples}",
        f"# tune number: {tuned}",
        "###",
        "# op_name    threshold    min    max",
    ]
    lines += [
        f"{entry.name} {entry.threshold:.7f} {entry.min:.7f} {entry.max:.7f}" for entry in table.values()
    ]
    return "\n".join(lines) + "\n"


def read_calibration(path: Path | str) -> VendorTable:
    """Read a calibration table; `FileFormatError` names the line."""
    ranges: dict[str, Entry] = {}
    weights: dict[str, WeightScales] = {}
    asymmetric: list[str] = []
    work_mode, section = "", ""
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if line.startswith("#"):
            key, _, value = line[1:].strip().partition(":")
            if key.strip() == "work_mode":
                work_mode = value.split()[0] if value.split() else ""
            if words[0] in _SECTIONS:
                section = words[0]
            continue
        if section == "#int4_th":  # ranges for four bits, beside those for eight
            continue
        try:
            if section == "#asym_op":
                asymmetric.append(words[0])
            elif words[0].endswith("_weight") and len(words) > 4:
                weights[words[0].removesuffix("_weight")] = _weight_row(words)
            else:
                entry = _range_row(words)
                ranges[entry.name] = entry
        except (ValueError, IndexError) as error:
            raise FileFormatError(
                f"'{line[:60]}' is no row of a calibration table: {error}",
                where=f"{path}, line {number}",
                fix="A row is: op_name threshold min max",
            ) from error
    if not ranges:
        raise FileFormatError(
            "has no row with a range", where=str(path), fix="Write it with run_calibration.py"
        )
    return VendorTable(ranges, weights, work_mode, tuple(asymmetric))


def _range_row(words: list[str]) -> Entry:
    if len(words) != 4:
        raise ValueError(f"{len(words)} columns in place of 4")
    threshold, low, high = map(float, words[1:])
    return Entry(words[0], threshold, low, high)


def _weight_row(words: list[str]) -> WeightScales:
    count = int(words[1])
    scales = tuple(float(word) for word in words[2 : 2 + count])
    again = int(words[2 + count])
    zero_points = tuple(int(float(word)) for word in words[3 + count : 3 + count + again])
    if len(words) != 3 + count + again or count < 1 or again not in (0, count):
        raise ValueError("the numbers of scales and zero points do not fit their counts")
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        raise ValueError("a scale is not above 0")
    return WeightScales(scales, zero_points)


def format_quantization(
    modes: Mapping[str, str], chip: str, mix_mode: str, samples: int, notes: Iterable[str] = ()
) -> str:
    """A quantization table as text."""
    lines = [
        f"# generated time: {datetime.now()}",
        f"# sample number: {samples}",
        *(f"# {note}" for note in notes),
        f"# chip: {chip}  mix_mode: {mix_mode}",
        f"# number of {mix_mode} layer: {len(modes)}",
        "###",
        "# op_name   quantize_mode",
        *(f"{name} {mode}" for name, mode in modes.items()),
    ]
    return "\n".join(lines) + "\n"


MODES = ("F32", "F16", "BF16", "INT8", "INT4", "W8F16", "W8BF16", "W4F16", "W4BF16", "F8E4M3", "F8E5M2")


def read_quantization(path: Path | str, mix_mode: str = "F32") -> dict[str, str]:
    """Read a quantization table: the mode of each op; a name alone has the mix mode of the table."""
    modes: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = line.split()
        if line.startswith("#"):
            if "mix_mode:" in words[:-1]:
                mix_mode = words[words.index("mix_mode:") + 1].upper()
            continue
        if not words:
            continue
        mode = words[1].upper() if len(words) == 2 else mix_mode
        if len(words) > 2 or mode not in MODES:
            raise FileFormatError(
                f"'{line[:60]}' is no row of a quantization table",
                where=f"{path}, line {number}",
                fix=f"A row is: op_name mode, with one of {', '.join(MODES)}",
            )
        modes[words[0]] = mode
    return modes


def write_text(path: Path | str, text: str) -> None:
    """Write a text file as a whole."""
    with write_atomically(path) as out:
        out.write(text.encode())


def _text(path: Path | str) -> str:
    data = read_short(path, _MAX_FILE, "a table", FileFormatError)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileFormatError("is not a text file", where=str(path)) from error
