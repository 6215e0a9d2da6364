"""The arithmetic and the bytes of instructions, as their records state them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from npuc.arithmetic.dtypes import TYPE_NAMES, dtype_of
from npuc.arrays import Array
from npuc.program.isa import BY_NAME, COMPRESSED, MULTICAST, RECORD
from npuc.program.model import SHARED, CompiledModel, NpuSubgraph
from npuc.target import Target
from npuc.words import counted


def heads(stream: Array) -> Array:
    """The instructions of a stream as if each were a transfer; the head is that of all."""
    return np.ascontiguousarray(stream).reshape(-1, RECORD).view(BY_NAME["load"].dtype).reshape(-1)


def multiplications(stream: Array, target: Target, layers: int) -> tuple[Array, Array]:
    """By layer: multiply-adds, those with skipped zeros included, and the cycles that the array would take for the others if all
    of it were in use."""
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
        done = products * _density(records) if name == "conv" else products
        np.add.at(ideal, records["layer"], done / (array.multiplications * rates))
    return macs, ideal


def _density(records: Array) -> Array:
    """The share of the weights of convolutions that is multiplied."""
    density: Array = np.where(
        records["sparse_m"] != 0, records["sparse_n"] / np.maximum(records["sparse_m"], 1), 1.0
    )
    return density


def sparse_layers(model: CompiledModel) -> dict[int, str]:
    """The layers whose weights are N:M sparse, by number, and their patterns."""
    conv = BY_NAME["conv"]
    patterns: dict[int, str] = {}
    for subgraph in model.subgraphs:
        for stream in subgraph.streams if isinstance(subgraph, NpuSubgraph) else ():
            records = np.ascontiguousarray(stream[stream[:, 0] == conv.opcode]).view(conv.dtype).reshape(-1)
            for record in records[records["sparse_m"] != 0]:
                patterns[int(record["layer"])] = f"{record['sparse_n']}:{record['sparse_m']}"
    return patterns


def sparse_words(patterns: Iterable[str]) -> str:
    """How many layers have weights of each N:M pattern; empty if none has.

    >>> sparse_words(["2:4", "", "2:4", "1:4"])
    '1 layer with 1:4 weights, 2 layers with 2:4 weights'
    """
    counts = Counter(pattern for pattern in patterns if pattern)
    parts = (
        f"{counted(number, 'layer')} with {pattern} weights" for pattern, number in sorted(counts.items())
    )
    return ", ".join(parts)


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
    ways to the shared memory. Kernels that work in DRAM count by their own statement."""
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
    kind = BY_NAME["custom_global"]
    records = np.ascontiguousarray(stream[known["opcode"] == kind.opcode]).view(kind.dtype).reshape(-1)
    results = np.minimum(records["y_bytes"], records["traffic"]).astype(np.int64)
    np.add.at(totals["features_out"], records["layer"], results)
    np.add.at(totals["features_in"], records["layer"], records["traffic"].astype(np.int64) - results)
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
