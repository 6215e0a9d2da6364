"""What a machine costs to build and to run, by coefficients that stand for real figures: a proxy, not a measurement.

Area is in units of one 8-bit multiply-accumulate of the array, energy in joules a run. The coefficients and where they come from
are in docs/explore.md; a user's own replace any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

import yaml

from npuc.errors import UsageError
from npuc.files import read_short
from npuc.plain_yaml import load_yaml
from npuc.target import Target

_MAX_BYTES = 1 << 16
CONTEXT_BYTES = 768
"""Of a table of the weight decoder: 257 places of 15 bits in a scale of 2^14, and for each of 256 parts of it where to look."""


@dataclass(frozen=True)
class Coefficients:
    """The default area is the floor plan of a published 28 nm accelerator (TPU v1, ISCA 2017), the default energy a published
    table for 45 nm (Horowitz, ISSCC 2014)."""

    mac_area: float = 1.0
    """Of one 8-bit multiply-accumulate a cycle."""
    vector_lane_area: float = 64.0
    byte_area: float = 0.0032
    """Of a byte of on-chip memory."""
    bank_area: float = 16.0
    """Of a bank's own address and data paths."""
    dram_area: float = 480.0
    """Of the interface, for 1 GB/s."""
    decoder_area: float = 64.0
    """Of a weight decoder, for each byte a cycle."""
    core_area: float = 1000.0
    """Of the control of a core."""
    mac_energy: float = 0.3e-12
    """Joules of one 8-bit multiply-accumulate with its 32-bit sum."""
    dram_energy: float = 160e-12
    """Joules of a byte to or from DRAM."""
    byte_energy: float = 12.5e-12
    """Joules of a byte to or from a 1 MiB on-chip memory; the square root of a bank's size scales it."""
    static_power: float = 1e-4
    """Watts for each unit of area, at work or idle."""

    @staticmethod
    def load(path: Path | str) -> Coefficients:
        """The default coefficients, with those of a YAML file in place of their like."""
        text = read_short(path, _MAX_BYTES, "a file of coefficients", UsageError)
        try:
            data = load_yaml(text.decode()) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
        return Coefficients.of(data, str(path))

    @staticmethod
    def of(data: Any, where: str) -> Coefficients:
        """The same from plain data."""
        names = [part.name for part in fields(Coefficients)]
        if not isinstance(data, dict) or not set(names) >= data.keys():
            raise UsageError(
                f"{where} is no file of coefficients", fix=f"The coefficients are {', '.join(names)}"
            )
        for name, value in data.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not isfinite(value) or value < 0:
                raise UsageError(f"{where}: {name} is not a number from 0 on", fix="Such as 1.0e-12")
        return replace(Coefficients(), **{name: float(value) for name, value in data.items()})

    def area(self, target: Target) -> float:
        """The area of a machine."""
        compute, memory = target.compute, target.memory
        clock = compute.clock
        decoder = (
            0.0 if memory.weight_decoder is None else float(memory.weight_decoder.bytes_per_cycle(clock))
        )
        core = (
            self.core_area
            + self.mac_area * compute.array.multiplications
            + self.vector_lane_area * compute.vector_lanes
            + self.byte_area * memory.local.size
            + self.bank_area * memory.local.banks
            + self.decoder_area * decoder
            + self.byte_area * CONTEXT_BYTES * (memory.weight_contexts or 0)
        )
        shared = self.byte_area * memory.shared.size if memory.shared else 0.0
        dram = self.dram_area * target.dram_bytes_per_cycle * float(clock) / 1e9
        return compute.cores * core + shared + dram

    def energy(self, area: float, bank: int, macs: float, seconds: float, dram_bytes: float) -> float:
        """Joules of a run on a machine of that area and banks of that size: arithmetic, bytes of DRAM on their way through
        local memory, and what flows all the time."""
        access = self.byte_energy * sqrt(bank / (1 << 20))
        moved = dram_bytes * (self.dram_energy + access)
        return macs * self.mac_energy + moved + seconds * area * self.static_power


def on_chip_bytes(target: Target) -> int:
    """All memory on the chip."""
    shared = target.memory.shared.size if target.memory.shared else 0
    return int(target.compute.cores * target.memory.local.size + shared)
