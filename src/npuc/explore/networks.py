"""The networks of an exploration as integers, written once to a folder from which every worker reads them.

A network with integers of its own keeps them. A float network, and any network where `bits` is a parameter, gets the bits that
are asked for, with ranges of random samples: cycles and bytes depend on types, shapes and weights, not on ranges. How accurate
the result is, is not asked here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuc.calib.random_inputs import random_inputs
from npuc.engine.floating import FloatEngine
from npuc.errors import UsageError
from npuc.files import existing_model, make_folder
from npuc.flow import ImportOptions, load_model, network_to_quantize, quantize_network
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph, load_graph, save_graph
from npuc.ir.target_rewrites import rewritten_for
from npuc.quant.config import QuantizationConfig
from npuc.quant.prequantized import is_quantized
from npuc.quant.report import is_integer
from npuc.target import Target

_SAMPLES = 2


@dataclass(frozen=True)
class ExploredNetwork:
    """A model and how much it counts."""

    path: Path
    weight: float = 1.0
    options: ImportOptions | None = None

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return self.path.name


@dataclass(frozen=True)
class PreparedNetwork:
    """The integer networks of a model, one for each choice of bits."""

    name: str
    weight: float
    files: tuple[Path, ...]
    digest: str

    def graphs(self) -> list[Graph]:
        """The networks, read again."""
        return [load_graph(file) for file in self.files]


def prepare(
    network: ExploredNetwork, number: int, bit_widths: tuple[str, ...], base: Target, folder: Path
) -> PreparedNetwork:
    """Quantize a network for every choice of bits, and write it to the folder."""
    make_folder(folder)
    digest = hashlib.sha256()
    files: list[Path] = []
    for bits in bit_widths:
        graph = _integers(network, bits, base)
        file = folder / f"{number}{'-' if bits else ''}{bits}.mlir"
        save_graph(graph, file)
        for part in (file, file.with_suffix(".safetensors")):
            digest.update(part.read_bytes() if part.exists() else b"")
        files.append(file.absolute())
    return PreparedNetwork(network.name, network.weight, tuple(files), digest.hexdigest())


def _integers(network: ExploredNetwork, bits: str, base: Target) -> Graph:
    path = existing_model(network.path)
    if describe_content(path).kind == "mlir" and is_integer(graph := load_model(path)):
        if bits:
            raise UsageError(
                f"{path} is an integer network, and bits are a parameter",
                fix="Give the float network, or leave bits out",
            )
        return graph
    graph = rewritten_for(network_to_quantize(path, network.options, force_float=bool(bits)), base, "float")
    if is_quantized(graph):
        return quantize_network(graph, None, None, base).graph
    if not bits:
        return quantize_network(graph, _ranges(graph), QuantizationConfig(scheme="int8"), base).graph
    activations, weights = bits.split("x")
    scheme = {"8": "int8", "16": "int16"}[activations]
    config = QuantizationConfig(scheme=scheme, options={"weight": f"i{weights}"})
    return quantize_network(graph, _ranges(graph), config, base).graph


def _ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    engine = FloatEngine(graph, "all tensors")
    ranges: dict[str, tuple[float, float]] = {}
    for seed in range(_SAMPLES):
        inputs = random_inputs(graph, seed)
        for tensor, array in {**inputs, **engine.run(inputs)}.items():
            if array.dtype == np.float32 and array.size:
                low, high = ranges.get(tensor, (0.0, 0.0))
                ranges[tensor] = min(low, float(array.min())), max(high, float(array.max()))
    return ranges
