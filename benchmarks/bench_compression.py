"""What the weight codec makes of the weights of networks, layer by layer, against their entropies and other compressors.

`H(w)` is the entropy of a layer's weights, `H(w|v)` that of a weight behind the one before it, both from the shares in that very
layer, without the description of the shares; `stored` is the section of the codec with 16 contexts, its tables and head counted.
`Huffman` is the codec without contexts, `Vela` Arm's codec for Ethos-U on the same weights in the same order (8 bits only). zlib,
lzma and zstd get the bytes at their highest levels.

Shares of pairs come out too low where a layer has few weights: of 4,096 weights of 8 bits nearly every pair is the only one of
its kind, so that `H(w|v)` counts as known what nobody could know. How much of it is chance is measured: the weights in a random
order have no neighbours that matter, and `H(w|v)` of those is below `H(w)` by chance alone. `possible` is `H(w)` less what real
neighbours say beyond that. A layer is `reached` at 1.05 x H(w|v) or less, `out of reach` if `possible` is above that, and
`missed` otherwise: then it is small, and the tables are too large a part of it.

    python benchmarks/bench_compression.py [--networks resnet50,...] [--layers]

`trained` marks networks with trained weights; the others have random ones (benchmarks/networks.py), which show what tables cost.
"""

from __future__ import annotations

import argparse
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

import networks
import numpy as np

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.engine.floating import FloatEngine
from npuc.flow import network_to_quantize, quantize_network
from npuc.ir import Graph
from npuc.partition import partition
from npuc.quant.config import QuantizationConfig
from npuc.schedule.compression import decode, encode, encoded_size
from npuc.schedule.network import build_network
from npuc.target import load_target

NAMES = ("resnet50", "mobilenet_v2", "vit_s16", "cifar10_vit", "yolox_nano")
TRAINED = ("mobilenet_v2", "cifar10_vit", "yolox_nano")
SCHEMES = {8: "int8", 4: "int4-weights"}
BAR = 1.05
_SHUFFLES = 4


@dataclass(frozen=True)
class Row:
    """Bytes of the weights of a layer in many forms."""

    name: str
    raw: int
    entropy: float
    conditional: float
    possible: float
    stored: int
    huffman: int
    vela: int
    zlib: int
    lzma: int
    zstd: int

    @property
    def verdict(self) -> str:
        """Whether the bar is met."""
        if self.stored <= BAR * self.conditional:
            return "reached"
        return "out of reach" if self.possible > BAR * self.conditional else "missed"


def _floating(name: str) -> Graph:
    if name == "cifar10_vit":
        return network_to_quantize(networks.MODELS.parent / "transformers" / "cifar10_vit.onnx")
    return networks.network(name)


def weights(name: str, bits: int) -> Iterator[tuple[str, Array]]:
    """The weights of each layer as they lie in memory; ranges of activations are those of one random sample."""
    graph = _floating(name)
    inputs, ranges = random_inputs(graph, 0), {}
    for tensor, array in {**inputs, **FloatEngine(graph, "all tensors").run(inputs)}.items():
        if array.dtype == np.float32 and array.size:
            ranges[tensor] = min(0.0, float(array.min())), max(0.0, float(array.max()))
    graph = quantize_network(graph, ranges, QuantizationConfig(scheme=SCHEMES[bits])).graph
    for part in partition(graph, load_target("edge-4t")).parts:
        if part.device != "npu":
            continue
        for layer in build_network(graph, part.ops, part.inputs, part.outputs).layers:
            constants = layer.constants((0, layer.channels))
            if "weight" in constants:
                yield layer.name, np.ascontiguousarray(constants["weight"]).view(np.uint8).reshape(-1)


def _entropy(counts: Array) -> float:
    present = counts[counts > 0].astype(np.float64)
    return float((present * np.log2(present.sum() / present)).sum() / 8)


def _conditional(symbols: Array) -> float:
    before = np.concatenate([[0], symbols[:-1]]).astype(np.int64)
    return _entropy(np.bincount(before * 256 + symbols)) - _entropy(np.bincount(before))


def measured(name: str, data: Array, bits: int) -> Row:
    """A layer in all forms."""
    symbols = data if bits == 8 else np.stack([data & 15, data >> 4], 1).reshape(-1)
    random = np.random.default_rng(0)
    entropy, conditional = _entropy(np.bincount(symbols)), _conditional(symbols)
    by_chance = np.mean([_conditional(random.permutation(symbols)) for _ in range(_SHUFFLES)])
    stream = encode(data, (), 16)
    if stream is not None and not np.array_equal(decode(stream, data.size), data):
        raise SystemExit(f"{name} does not come back")
    raw = data.tobytes()
    return Row(
        name,
        data.size,
        entropy,
        conditional,
        float(entropy - by_chance + conditional),
        data.size if stream is None else stream.size,
        encoded_size(data) or data.size,
        _vela(data) if bits == 8 else 0,
        len(zlib.compress(raw, 9)),
        len(lzma.compress(raw, lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 9}])),
        _zstd(raw),
    )


def _vela(data: Array) -> int:
    """Bytes of Vela's codec, if Vela is installed."""
    try:
        mlw_codec = import_module("ethosu.mlw_codec")
    except ImportError:
        return 0
    return len(mlw_codec.encode(data.view(np.int8).astype(np.int16).tolist()))


def _zstd(data: bytes) -> int:
    """Bytes of zstd, if it is installed."""
    try:
        zstandard = import_module("zstandard")
    except ImportError:
        return 0
    return len(zstandard.ZstdCompressor(level=19).compress(data))


_TITLES = (
    "network", "bits", "raw, bytes", "H(w\\|v), bytes", "H(w)", "possible", "stored", "Huffman", "Vela", "zlib", "lzma", "zstd",
    "mean", "worst", "layers reached, out of reach, missed", "their bytes",
)  # fmt: skip
_FORMS = ("stored", "huffman", "vela", "zlib", "lzma", "zstd")


def _ratios(rows: list[Row]) -> list[str]:
    whole = sum(row.conditional for row in rows)
    sums = [sum(getattr(row, form) for row in rows) for form in _FORMS]
    return [f"{total / whole:.3f}" if total else "–" for total in sums]


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", default=",".join(NAMES))
    parser.add_argument("--layers", action="store_true", help="print every layer")
    options = parser.parse_args()
    print("In units of H(w|v) of all layers; mean and worst are stored over H(w|v) of single layers.\n")
    print(f"| {' | '.join(_TITLES)} |\n|---{'|--:' * (len(_TITLES) - 1)}|")
    for name in options.networks.split(","):
        for bits in SCHEMES:
            rows = [measured(layer, data, bits) for layer, data in weights(name, bits)]
            raw, whole = (sum(getattr(row, field) for row in rows) for field in ("raw", "conditional"))
            verdicts = ("reached", "out of reach", "missed")
            layers = [sum(row.verdict == verdict for row in rows) for verdict in verdicts]
            sizes = [sum(row.raw for row in rows if row.verdict == verdict) / raw for verdict in verdicts]
            ratios = [row.stored / row.conditional for row in rows if row.conditional]
            known = [sum(getattr(row, field) for row in rows) / whole for field in ("entropy", "possible")]
            title = f"{name}, trained" if name in TRAINED else name
            cells = [title, str(bits), f"{raw:,}", f"{whole:,.0f}", *(f"{one:.3f}" for one in known)]
            cells += [
                *_ratios(rows),
                f"{np.mean(ratios):.3f}",
                f"{max(ratios):.3f}",
                ", ".join(map(str, layers)),
            ]
            cells.append(", ".join(f"{100 * share:.1f} %" for share in sizes))
            print(f"| {' | '.join(cells)} |", flush=True)
            for row in rows if options.layers else ():
                print(
                    f"    {row.name[:40]:40s} {row.raw:9d} bytes, H(w) {row.entropy:11.1f}, H(w|v) {row.conditional:11.1f},"
                    f" possible {row.possible:11.1f}, stored {row.stored:9d}, {row.stored / max(row.conditional, 1):7.3f}"
                    f" {row.verdict}"
                )


if __name__ == "__main__":
    main()
