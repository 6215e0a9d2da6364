"""The arithmetic and the bytes of instructions, as their records state them."""

from __future__ import annotations

import numpy as np

from npuc.arithmetic.dtypes import TYPE_NAMES, dtype_of
from npuc.arrays import Array
from npuc.program.isa import BY_NAME, COMPRESSED, MULTICAST, RECORD
from npuc.program.model import SHARED
from npuc.target import Target


def heads(stream: Array) -> Array:
    """The instructions of a stream as if each were a transfer; the head is that of all."""
    return np.ascontiguousarray(stream).reshape(-1, RECORD).view(BY_NAME["load"].dtype).reshape(-1)


def multiplications(stream: Array, target: Target, layers: int) -> tuple[Array, Array]:
    """By layer: multiply-adds, and the cycles that the array would take for them if all of it were in use."""
    macs, ideal = np.zeros(layers), np.zeros(layers)
    array = target.compute.array
    known = heads(stream)
    for name in ("conv", "matmul"):
        instruction = BY_NAME[name]
        rows = np.flatnonzero(known["opcode"] == instruction.opcode)
        if not rows.size:
            continue
        records = np.ascontiguousarray(stream[rows]).view(instruction.dtype).reshape(-1)
        products = _conv(records) if name == "conv" else _product(records, "batch", "m", "k", "cols")
        second = records["w_dtype" if name == "conv" else "b_dtype"]
        rates = np.array(
            [_rate(target, int(x), int(w)) for x, w in zip(records["x_dtype"], second, strict=True)]
        )
        np.add.at(macs, records["layer"], products)
        np.add.at(ideal, records["layer"], products / (array.multiplications * rates))
    return macs, ideal


def _conv(records: Array) -> Array:
    plain = _product(records, "n", "out_h", "out_w", "out_c")
    plain *= records["c"] // np.maximum(records["groups"], 1)
    # Each pixel of x meets each tap of a transposed convolution once.
    turned = _product(records, "n", "h", "w", "c") * (records["out_c"] // np.maximum(records["groups"], 1))
    taps = records["kernel"].astype(np.float64).prod(axis=1)
    products: Array = np.where(records["transposed"] != 0, turned, plain) * taps
    return products


def _product(records: Array, *names: str) -> Array:
    product = np.ones(records.size)
    for name in names:
        product *= records[name]
    return product


def _rate(target: Target, activation: int, weight: int) -> float:
    names = [dtype_of(TYPE_NAMES[code]).short for code in (activation, weight) if code in TYPE_NAMES]
    return float((target.compute.array.rate(*names) if len(names) == 2 else None) or 1)


def moved(stream: Array, core: int, layers: int) -> dict[str, Array]:
    """By layer, the bytes of constants (as they come and as they are in use) and of feature maps from DRAM, into it, and both
    ways to the shared memory."""
    known = heads(stream)
    names = ("weights_in", "weights_decoded", "features_in", "features_out", "shared")
    totals = {name: np.zeros(layers, np.int64) for name in names}
    for name in ("load", "store"):
        transfers = known[known["opcode"] == BY_NAME[name].opcode]
        sizes = on_channel(transfers)
        shared, constant = transfers["segment"] == SHARED, transfers["segment"] == 0
        counted = ~shared & crosses(transfers, core)
        into = {
            "shared": shared,
            "weights_in" if name == "load" else "features_out": counted & constant,
            "features_in" if name == "load" else "features_out": counted & ~constant,
        }
        for key, chosen in into.items():
            np.add.at(totals[key], transfers["layer"][chosen], sizes[chosen])
        if name == "load":
            chosen = counted & constant
            np.add.at(totals["weights_decoded"], transfers["layer"][chosen], decoded(transfers[chosen]))
    return totals


def on_channel(transfers: Array) -> Array:
    """The bytes of transfers on their channel: of compressed constants, those of their stream."""
    sizes: Array = np.where((transfers["flags"] & COMPRESSED) != 0, transfers["stored"], decoded(transfers))
    return sizes


def decoded(transfers: Array) -> Array:
    """The bytes of transfers in local memory."""
    sizes: Array = transfers["size"].astype(np.int64).prod(axis=1)
    return sizes


def crosses(transfers: Array, core: int) -> Array:
    """Transfers that take time of the channel; what all cores load at once crosses it once, for the first."""
    mask: Array = ((transfers["flags"] & MULTICAST) == 0) | (core == 0)
    return mask
