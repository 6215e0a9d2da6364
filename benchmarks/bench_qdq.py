"""How far QDQ files are from graph mode in ONNX Runtime, in steps: by op and arithmetic.

    .venv/bin/python benchmarks/bench_qdq.py            the table of docs/export-onnx.md
    .venv/bin/python benchmarks/bench_qdq.py --openvino build/peers/openvino/bin/python
                                                        also whether OpenVINO loads the QDQ files, and how far it is

Every case is a network of about one op (tests/support/networks/quantized.py), quantized with the ranges of random inputs, and run
on further random inputs. A step is the scale of the output. A cell has the largest difference with all optimizations (integer
kernels), and behind a stroke that without any (float kernels), if it is another. Nothing is timed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.engine import IntegerEngine
from npuc.errors import NpucError
from npuc.export.qdq import export_quantized_onnx
from npuc.ir import Graph, npu
from npuc.ir.dtypes import quant_of
from support.judges.onnx_runtime import run_in_onnx_runtime
from support.networks.quantized import ARITHMETICS, CASES, case_network, quantized_on_random_data

OPENVINO = """
import sys, numpy as np, openvino
core = openvino.Core()
for path in sys.argv[1:]:
    try:
        model = core.compile_model(core.read_model(path + ".onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        with np.load(path + ".npz") as held:
            samples = int(held["samples"])
            for sample in range(samples):
                given = {port.any_name: held[f"{port.any_name}@{sample}"] for port in model.inputs}
                np.save(f"{path}.{sample}.npy", model(given)[0])
    except Exception as error:
        print(path, str(error).splitlines()[0][:150])
"""


def step_of(graph: Graph) -> float | None:
    """The step of the output; None where it has integers, or stayed float."""
    owner: Any = graph.outputs[0].value.owner
    kind = quant_of(owner.operands[0]) if isinstance(owner, npu.Dequantize) else None
    return None if kind is None else kind.scale


def main() -> None:
    """Print a line for each op: the largest difference under each arithmetic."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--arithmetics", nargs="*", default=list(ARITHMETICS))
    parser.add_argument("--openvino", metavar="PYTHON", help="a Python that has OpenVINO")
    args = parser.parse_args()
    print("| op | " + " | ".join(args.arithmetics) + " |")
    print("|---|" + "---:|" * len(args.arithmetics))
    with tempfile.TemporaryDirectory() as folder:
        for case in args.cases:
            cells = [measured(case, name, args.samples, folder) for name in args.arithmetics]
            print(f"| {case} | " + " | ".join(cells) + " |", flush=True)
        if args.openvino:
            openvino(args.openvino, folder, args.cases, args.arithmetics)


def measured(case: str, arithmetic: str, samples: int, folder: str) -> str:
    """The largest difference, in steps, with ONNX Runtime's integer kernels and with its float ones."""
    graph = quantized_on_random_data(case_network(case), ARITHMETICS[arithmetic])
    step = step_of(graph)
    if step is None and graph.outputs[0].value.owner.name != "top.arg":  # type: ignore[union-attr]
        return "float"
    path = place(folder, case, arithmetic)
    try:
        export_quantized_onnx(graph, path.with_suffix(".onnx"))
    except NpucError:
        return "–"
    engine, held = IntegerEngine(graph), {}
    worst = [0.0, 0.0]
    for sample in range(samples):
        inputs = random_inputs(graph, seed=100 + sample)
        expected = engine.run(inputs)["y"].astype(np.float64)
        held |= {f"{name}@{sample}": array for name, array in inputs.items()} | {
            f"expected@{sample}": expected
        }
        for index, optimized in enumerate((True, False)):
            theirs = run_in_onnx_runtime(path.with_suffix(".onnx"), inputs, optimized=optimized)["y"]
            worst[index] = max(worst[index], away(theirs, expected, step))
    np.savez(path.with_suffix(".npz"), samples=samples, step=step or 1.0, **held)
    integers, floats = (f"{value:.0f}" for value in worst)
    return integers if integers == floats else f"{integers} / {floats}"


def away(theirs: Array, expected: Array, step: float | None) -> float:
    """The largest difference in steps."""
    return float(np.abs(theirs.astype(np.float64) - expected).max(initial=0) / (step or 1.0))


def place(folder: str, case: str, arithmetic: str) -> Path:
    """Where the files of a case lie, without a suffix."""
    return Path(folder) / f"{case} {arithmetic}".replace(" ", "_").replace(",", "")


def openvino(python: str, folder: str, cases: list[str], arithmetics: list[str]) -> None:
    """Load every file in OpenVINO, and compare."""
    paths = [place(folder, case, name) for case in cases for name in arithmetics]
    paths = [path for path in paths if path.with_suffix(".npz").exists()]
    done = subprocess.run(
        [python, "-c", OPENVINO, *map(str, paths)], check=False, text=True, capture_output=True
    )
    print(done.stdout + done.stderr[-2000:])
    loaded, distances = 0, {}
    for path in paths:
        with np.load(path.with_suffix(".npz")) as held:
            results = [Path(f"{path}.{sample}.npy") for sample in range(int(held["samples"]))]
            if all(result.exists() for result in results):
                loaded += 1
                distances[path.name] = max(
                    away(np.load(result), held[f"expected@{sample}"], float(held["step"]))
                    for sample, result in enumerate(results)
                )
    print(f"OpenVINO: {loaded} of {len(paths)} files load and run")
    for name in arithmetics:
        own = [
            distances[path.name] for case in cases if (path := place(folder, case, name)).name in distances
        ]
        print(f"  {name}: {sum(distance < 1.01 for distance in own)} of {len(own)} within one step")
    for name, distance in sorted(distances.items(), key=lambda item: -item[1])[:12]:
        print(f"  {name}: {distance:.1f} steps")


if __name__ == "__main__":
    main()
