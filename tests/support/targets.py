"""A small, complete target as plain data, and changes of it."""

from __future__ import annotations

import copy
from typing import Any

from npuc.target.load import merge

_SMALL: dict[str, Any] = {
    "name": "small",
    "compute": {
        "cores": 1,
        "clock": "1GHz",
        "array": {"input_channels": 4, "output_channels": 4, "pixels": 2, "rates": {"i8": {"i8": 1}}},
        "vector_lanes": 8,
        "table_units": 1,
    },
    "memory": {
        "local": {"size": "64KiB", "banks": 4, "alignment": "16B"},
        "dram": {"bandwidth": "1GB/s", "latency": "100cycles", "burst": "32B"},
    },
    "arithmetic": {
        "activations": {"formats": {"i8": ["affine"]}},
        "weights": {"formats": {"i8": ["symmetric"]}, "granularity": ["per_channel"]},
        "requantization": {"kinds": ["single_rounding"], "multiplier_bits": 31, "max_shift": 62},
        "bias": {"bits": 32},
        "accumulator": {"bits": 32},
        "tables": {"entries_8bit": 256, "entries_16bit": 0},
    },
}


def small(**changes: Any) -> dict[str, Any]:
    """The small target with changes merged in; a double underscore separates the fields of a path."""
    data = copy.deepcopy(_SMALL)
    for path, value in changes.items():
        change: Any = value
        for name in reversed(path.split("__")):
            change = {name: change}
        data = merge(data, change)
    return data
