"""npuc beside SOPHGO's own compiler on the BM1684X: cycles by the vendor's estimate, DDR bytes, CPU time, accuracy, file size.

    .venv/bin/python benchmarks/bench_sophgo.py                        all networks; docs/bm1684x.md has the table
    .venv/bin/python benchmarks/bench_sophgo.py resnet20 --samples 100

Needs the libraries of `make peers-sophgo` and the toolchain of `make peers-tpumlir` (`--toolchain` names another folder of it).
Both tools begin with the same ONNX file and the same calibration samples, and each calibrates by its own default:
`run_calibration.py` and `npuc calibrate`. Programs of both run in the vendor's functional model on further samples. Cycles are
the total that the vendor's library prints: for its own program the one that `model_deploy.py` leaves behind, for npuc's that of
the same library for npuc's commands (`tests/support/bm1684x/timelines.py`). Times are CPU seconds of the commands.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from accuracy_networks import NETWORKS, Case, Network
from accuracy_scores import Score
from peers import ROOT

from npuc.arrays import Array
from npuc.engine.floating import FloatEngine
from npuc.flow import import_model
from npuc.program.bm1684x.bmodel import read_bmodel
from npuc.program.file import load_compiled
from npuc.program.model import ChipSubgraph, CpuSubgraph
from npuc.runtime import Runner
from npuc.runtime.bm1684x import VendorProcess
from support.bm1684x.timelines import program_time, vendor_totals
from support.sophgo import libraries

NAMES = ("digits", "resnet20", "mobilenet_v2", "squeezenet", "ultraface", "yolox_nano", "ppocr_det")


@dataclass
class Result:
    """What one compiler made of a network."""

    cycles: int
    moved: int
    compile_seconds: float
    calibrate_seconds: float
    file: int
    score: Score
    on_cpu: int = 0
    waits: int = 0
    """Cycles with waits for single commands, which only npuc's timeline knows."""


class Demo:
    """The demo network, with the samples that lie beside it: the first to calibrate, the others to measure."""

    shape = (1, 1, 8, 8)
    float_file = ROOT / "examples" / "digits.onnx"

    def __init__(self) -> None:
        with np.load(ROOT / "examples" / "digits_samples.npz") as data:
            self._images, self._labels = data["image"], data["label"]

    def calibration(self, count: int) -> list[Array]:
        """Samples to calibrate with."""
        return [self._images[i : i + 1] for i in range(count)]

    def measured(self, count: int) -> list[Case]:
        """Others."""
        last = len(self._images)
        return [
            Case(partial(self._images.__getitem__, slice(i, i + 1)), int(self._labels[i]))
            for i in range(last - count, last)
        ]


def run(words: Sequence[str | Path], folder: Path, **environment: str) -> float:
    """A command; the CPU time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*map(str, words)], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def calibration(network: Network | Demo, folder: Path, title: str, count: int) -> Path:
    """Samples as files that both tools read."""
    place = folder / "calibration"
    place.mkdir()
    for number, sample in enumerate(network.calibration(count)):
        np.savez(place / f"{number}.npz", **{title: sample})
    return place


def by_npuc(
    network: Network | Demo,
    folder: Path,
    data: Path,
    samples: list[tuple[Array, int]],
    floats: list[dict[str, Array]],
) -> Result:
    """Import, calibrate, quantize, compile; run in the functional model."""
    npuc, title = Path(sys.executable).with_name("npuc"), next(iter(np.load(next(data.iterdir()))))
    calibrated = run([npuc, "calibrate", network.float_file, "--data", data, "-o", "ours.cali"], folder)
    words = [
        npuc,
        "compile",
        network.float_file,
        "--target",
        "bm1684x",
        "-t",
        "ours.cali",
        "-o",
        "ours.npu",
    ]
    compiled = run(words, folder)
    model = load_compiled(folder / "ours.npu")
    chips = [part for part in model.subgraphs if isinstance(part, ChipSubgraph)]
    times = [program_time(read_bmodel(part.program)) for part in chips]
    score = Score()
    with Runner(model, "bm1684x-model", workers=1) as runner:
        for (sample, label), exact in zip(samples, floats, strict=True):
            score.add(exact, runner.run({title: sample}), label)
    on_cpu = sum(len(part.reasons) for part in model.subgraphs if isinstance(part, CpuSubgraph))
    return Result(
        sum(t.steps for t in times), sum(t.moved for t in times), compiled, calibrated,
        (folder / "ours.npu").stat().st_size, score, on_cpu, sum(t.waits for t in times),
    )  # fmt: skip


def by_vendor(
    network: Network | Demo,
    toolchain: Path,
    folder: Path,
    data: Path,
    samples: list[tuple[Array, int]],
    floats: list[dict[str, Array]],
) -> Result:
    """model_transform.py, run_calibration.py, model_deploy.py; run in the same functional model."""
    tools = {"PATH": f"{toolchain / 'bin'}:{os.environ['PATH']}"}
    shape = json.dumps([list(network.shape)]).replace(" ", "")
    files = sorted(str(path) for path in data.iterdir())
    (folder / "list.txt").write_text("\n".join(files) + "\n")
    transform = [
        "model_transform.py",
        "--model_name",
        "net",
        "--model_def",
        network.float_file,
        "--input_shapes",
        shape,
    ]
    seconds = run([*transform, "--mlir", "net.mlir"], folder, **tools)
    words = [
        "run_calibration.py",
        "net.mlir",
        "--data_list",
        "list.txt",
        "--input_num",
        str(len(files)),
        "-o",
        "net.cali",
    ]
    calibrated = run(words, folder, **tools)
    deploy = ["model_deploy.py", "--mlir", "net.mlir", "--quantize", "INT8", "--chip", "bm1684x"]
    seconds += run([*deploy, "--calibration_table", "net.cali", "--model", "net.bmodel"], folder, **tools)
    cycles, moved = vendor_totals((folder / "compiler_profile_0.txt").read_text())
    score = Score()
    process = VendorProcess(libraries())
    process.load((folder / "net.bmodel").read_bytes())
    sizes = [value.nbytes for value in floats[0].values()]
    for (sample, label), exact in zip(samples, floats, strict=True):
        found = process.run("net", [sample], sizes)
        values = [np.frombuffer(part, np.float32) for part in found]
        score.add(exact, dict(zip(exact, values, strict=True)), label)
    process.close()
    return Result(cycles, moved, seconds, calibrated, (folder / "net.bmodel").stat().st_size, score)


def line(name: str, tool: str, result: Result) -> str:
    """A row of the table."""
    top = f"{100 * np.mean(result.score.hits):.1f}" if result.score.hits else ""
    cycles = f"{result.cycles:,}" + (f" ({result.waits:,})" if result.waits else "")
    return (
        f"| {name} | {tool} | {cycles} | {result.moved:,} | {result.compile_seconds:.1f} | {result.calibrate_seconds:.1f} | "
        f"{result.file:,} | {top} | {result.score.sqnr:.1f} | {result.on_cpu} |"
    )


def main() -> None:
    """Print a table, two rows for a network."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", default=NAMES)
    parser.add_argument("--samples", type=int, default=20, help="measured on, of each network")
    parser.add_argument("--calibration", type=int, default=16)
    parser.add_argument("--toolchain", type=Path, default=ROOT / "build" / "peers" / "tpumlir")
    arguments = parser.parse_args()
    print(f"{arguments.calibration} samples to calibrate, {arguments.samples} others to measure")
    print(
        "| network | compiler | cycles (single waits) | DDR bytes | compile s | calibrate s | file | top-1 | SQNR dB | on CPU |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.networks:
        network = Demo() if name == "digits" else NETWORKS[name]
        graph = import_model(network.float_file)
        title = graph.inputs[0].name
        cases = network.measured(arguments.samples)
        samples = [(case.read(), case.label) for case in cases]
        engine = FloatEngine(graph)
        floats = [dict(engine.run({title: sample})) for sample, _ in samples]
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            data = calibration(network, folder, title, arguments.calibration)
            print(line(name, "npuc", by_npuc(network, folder, data, samples, floats)), flush=True)
            print(
                line(
                    name,
                    "model_deploy",
                    by_vendor(network, arguments.toolchain, folder, data, samples, floats),
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
