"""Hold compiled models against the float network that they were made of, by slice, on held-out samples; JSON on stdout.

The float network is npuc's own, which `npuc import` has compared with the original file. Slices are those of
`npuc.compare.slices`. Of an output of integers (a class, a token), the share of equal elements is told.

    python benchmarks/zoo_compare.py NETWORK.mlir SAMPLES_FOLDER COMPILED.npu ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compare import find_slices, measure_outputs
from npuc.engine import FloatEngine
from npuc.ir import load_graph
from npuc.program.file import load_compiled
from npuc.sim import Simulator


def figures(network: Path, folder: Path, compiled: Sequence[Path]) -> dict[str, Any]:
    """Decibels of every slice, by compiled file."""
    graph = load_graph(network)
    engine = FloatEngine(graph, threads=1)
    samples = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            samples.append({name: arrays[name] for name in arrays.files})
    exact = [dict(engine.run(sample)) for sample in samples]
    slices = find_slices(graph, exact)
    return {path.name: _one(path, samples, exact, slices) for path in compiled}


def _one(
    path: Path, samples: Sequence[Mapping[str, Array]], exact: Sequence[Mapping[str, Array]], slices: Any
) -> dict[str, Any]:
    machine = Simulator(load_compiled(path), 1)
    outputs = [dict(machine.run(sample)) for sample in samples]
    again = iter(outputs)
    compared = measure_outputs(lambda _: next(again), samples, exact, slices)
    worst = compared.worst
    same = {}
    for name in exact[0]:
        if name not in slices or exact[0][name].dtype.kind in "iub":
            pairs = [(output[name], true[name]) for output, true in zip(outputs, exact, strict=True)]
            same[name] = float(np.mean([np.mean(output == true) for output, true in pairs]))
    return {
        "slices": {str(part): round(value, 2) for part, value in compared.by_slice.items()},
        "tensors": sorted(slices),
        "mean": round(compared.mean, 2),
        "worst_of_a_sample": None if worst is None else round(worst.sqnr, 2),
        "equal": same,
        "silent": [str(part) for parts in slices.values() for part in parts if part not in compared.by_slice],
    }


if __name__ == "__main__":
    print(json.dumps(figures(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])))
