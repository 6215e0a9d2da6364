"""Post-training quantization: npuc's default and its whole ladder against four other quantizers, on the same data.

Every tool gets the same float file and the same calibration samples; every result is measured on the same other samples
against the float network. A row is a network under a scheme: `w8a8` (8 bits, weights with a scale each channel), `pow2` (8 bits,
powers of two, per tensor) or `w4a8` (weights of 4 bits). A tool with several ways of working is run in each, and the one
with the highest SQNR is shown. What a tool does not offer is n/a. Peers' results are run by ONNX Runtime, npuc's by graph mode.

`figure` is top-1 of labelled images, or mAP of detectors on COCO's; `to float` its paired difference with a standard
error; `same` the share of samples whose first choice is that of float; `cosine` the mean over samples and outputs; `SQNR` signal
over error of all samples in decibels, the mean of the outputs. A row ends with whether npuc's ladder is first, or by how much
not. The text detector gets images with words written on them.

Results lie under build/bench/accuracy: the networks that peers made (remove them to quantize anew), the figures of every row
in results.json as soon as they are known, and all rows as a table in table.md.

    python benchmarks/bench_accuracy.py [--models mobilenet_v2,...] [--schemes w8a8,pow2,w4a8] [--images 500]
        [--calibration 64] [--tools ort,nncf,aimet,quark] [--steps equalize,...] [--device cuda] [--slow] [--keep]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accuracy_networks import COCO_CALIBRATION, FOLDER, NETWORKS, Network
from accuracy_npuc import quantize_default, quantize_ladder
from accuracy_report import print_row, row_of, table
from accuracy_scores import Score
from peers import PEERS, ROOT, SHARED, quantize_ort, session

from npuc.arrays import Array

THREADS = 2
SCHEMES: dict[str, str | None] = {"w8a8": None, "pow2": "pow2", "w4a8": "int4-weights"}
"""The rows, and the names that npuc has for them; None is its default."""


@dataclass(frozen=True)
class Entry:
    """One way of working of a tool."""

    key: str
    tool: str
    schemes: tuple[str, ...]
    slow: bool = False
    """It learns for a quarter of an hour and more, even with a small network."""


ENTRIES = (
    Entry("npuc", "npuc", tuple(SCHEMES)),
    Entry("ladder", "ladder", tuple(SCHEMES)),
    *(Entry(method, "ort", ("w8a8", "w4a8")) for method in ("MinMax", "Entropy", "Percentile")),
    *(Entry(key, "nncf", ("w8a8",)) for key in ("nncf", "nncf-exact")),
    *(Entry(key, "aimet", ("w8a8", "w4a8")) for key in ("aimet", "aimet-minmax")),
    Entry("aimet-seqmse", "aimet", ("w4a8",)),
    Entry("aimet-adaround", "aimet", ("w4a8",), slow=True),
    Entry("quark", "quark", ("w8a8", "pow2")),
    Entry("quark-affine", "quark", ("w8a8",)),
    Entry("quark-equalized", "quark", ("pow2",)),
    Entry("quark-adaround", "quark", ("pow2",), slow=True),
)
"""Powers of two: ONNX Runtime, NNCF and AIMET have none. Weights of 4 bits: neither NNCF nor Quark has them for ONNX."""
OWN = ("npuc", "ladder")


@dataclass(frozen=True)
class Job:
    """A row and how it is made."""

    network: Network
    scheme: str
    calibration: int
    images: int
    device: str
    steps: str
    keep: bool

    def file(self, key: str) -> Path:
        """Where a result is."""
        suffix = ".mlir" if key in OWN else ".onnx"
        return FOLDER / f"{self.network.name}.{self.scheme}.{key}.{self.calibration}{suffix}"

    @property
    def options(self) -> list[str]:
        """For a process that does a part of it."""
        own = [
            "--models",
            self.network.name,
            "--schemes",
            self.scheme,
            "--calibration",
            str(self.calibration),
        ]
        return [*own, "--device", self.device, *(["--steps", self.steps] if self.steps else [])]


# Quantizing: each tool in a process of its own.


def quantize_with(key: str, job: Job) -> None:
    """Write a result."""
    network, target = job.network, job.file(key)
    if key == "npuc":
        quantize_default(network, SCHEMES[job.scheme], target, job.calibration, THREADS)
    elif key == "ladder":
        steps = job.steps.split(",") if job.steps else None
        quantize_ladder(network, SCHEMES[job.scheme], target, job.calibration, THREADS, job.device, steps)
    else:
        samples, tool = network.calibration(job.calibration), next(e.tool for e in ENTRIES if e.key == key)
        if tool == "ort":
            bits = 4 if job.scheme == "w4a8" else 8
            quantize_ort(network.float_file, target, samples, key, weight_bits=bits)
        else:
            PEERS[tool].quantize(network.float_file, target, samples, job.scheme, key)


def make_results(job: Job, entries: list[Entry]) -> dict[str, str]:
    """Run every entry that has no result yet (npuc's always, unless kept); the failures by key."""
    failures = {}
    _ = job.network.float_file
    for entry in entries:
        target = job.file(entry.key)
        if target.exists() and (entry.key not in OWN or job.keep):
            continue
        start = time.perf_counter()
        command = [sys.executable, __file__, "--quantize", entry.key, *job.options]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        seconds = time.perf_counter() - start
        words = f"{job.network.name} {job.scheme}: {entry.key} took {seconds:.0f} s"
        if done.returncode:
            failures[entry.key] = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
            words += f" and failed: {failures[entry.key]}"
        print(words, file=sys.stderr, flush=True)
    return failures


# Measuring.


def runner(job: Job, key: str) -> Callable[[Array], Mapping[str, Array]]:
    """A function that runs a result."""
    if key in OWN:
        from npuc.engine import IntegerEngine
        from npuc.ir import load_graph

        graph = load_graph(job.file(key))
        engine = IntegerEngine(graph, threads=THREADS)
        return lambda x: engine.run({graph.inputs[0].name: x})
    run = session(job.network.float_file if key == "float" else job.file(key), THREADS, spinning=False)
    names, entry = [port.name for port in run.get_outputs()], run.get_inputs()[0].name
    return lambda x: dict(zip(names, run.run(None, {entry: x}), strict=True))


def measure(job: Job, keys: list[str]) -> tuple[dict[str, Score], dict[str, str]]:
    """All results on the same samples; also those that cannot run."""
    runs, failures = {}, {}
    for key in ("float", *keys):
        try:
            runs[key] = runner(job, key)
        except Exception as error:  # a peer's file that ONNX Runtime refuses is a finding, not the end
            failures[key] = f"its result does not run: {str(error).splitlines()[0]}"
    scores = {key: Score() for key in runs}
    for case in job.network.measured(job.images):
        x = case.read()
        reference = runs["float"](x)
        for key, run in runs.items():
            # Some tools rename outputs; all keep their order.
            outputs = reference if key == "float" else dict(zip(reference, run(x).values(), strict=True))
            scores[key].add(reference, outputs, case.label)
            if job.network.decoder:
                scores[key].found.append(job.network.found(case, outputs))
                scores[key].truths.append(case.boxes)
    return scores, failures


def work(job: Job, tools: list[str], slow: bool, troubles: dict[str, str]) -> None:
    """One row: quantize, measure, write down, print."""
    entries = [e for e in ENTRIES if e.tool in (*OWN, *tools) and job.scheme in e.schemes]
    entries = [e for e in entries if slow or not e.slow or job.file(e.key).exists()]
    failures = {e.key: f"not installed: {troubles[e.tool]}" for e in entries if e.tool in troubles}
    entries = [e for e in entries if e.tool not in troubles]
    failures |= make_results(job, entries)
    scores, broken = measure(job, [e.key for e in entries if e.key not in failures])
    tool_of = {e.key: e.tool for e in entries}
    notes = {key: json.loads(job.file(key).with_suffix(".json").read_text()) for key in OWN if key in scores}
    row = row_of(
        job.network.name, job.network.metric, job.scheme, job.calibration, scores, tool_of, failures | broken, notes
    )  # fmt: skip
    path = FOLDER / "results.json"
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows[f"{job.network.name} {job.scheme}"] = row
    path.write_text(json.dumps(rows, indent=1))
    (FOLDER / "table.md").write_text(table(rows.values()))
    print_row(row)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--schemes", default=",".join(SCHEMES), help=f"of {', '.join(SCHEMES)}")
    parser.add_argument("--images", type=int, help="at most so many; without it 500, or 1,000 small ones")
    parser.add_argument("--calibration", type=int, default=64, help="samples to calibrate with")
    parser.add_argument("--tools", default="ort,nncf,aimet,quark", help="peers; empty for none")
    parser.add_argument("--steps", default="", help="steps of the ladder; without it, all")
    parser.add_argument("--device", default="cpu", help="where the ladder learns: cpu or cuda")
    parser.add_argument("--slow", action="store_true", help="also the peers' learned roundings")
    parser.add_argument("--keep", action="store_true", help="measure npuc's results that are there")
    parser.add_argument("--quantize", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    peers = ("ort", *PEERS)
    for given, known in (
        (arguments.models, NETWORKS),
        (arguments.schemes, SCHEMES),
        (arguments.tools, peers),
    ):
        for name in given.split(","):
            if name not in known and (name or known is not peers):
                parser.error(f"there is no '{name}': give some of {', '.join(known)}")
    if not SHARED.is_dir():
        print(f"skipped: {SHARED} with the models and images is not there")
        return
    jobs = []
    for name in arguments.models.split(","):
        images = arguments.images or (1000 if NETWORKS[name].data == "cifar10" else 500)
        for scheme in arguments.schemes.split(","):
            sizes = (arguments.calibration, images)
            jobs.append(
                Job(NETWORKS[name], scheme, *sizes, arguments.device, arguments.steps, arguments.keep)
            )
    if arguments.quantize:
        quantize_with(arguments.quantize, jobs[0])
        return
    tools = [tool for tool in arguments.tools.split(",") if tool]
    installed = {tool: PEERS[tool].install() for tool in tools if tool in PEERS}
    troubles = {tool: trouble for tool, trouble in installed.items() if trouble}
    print(f"{arguments.calibration} calibration samples (coco: {COCO_CALIBRATION}), all tools the same")
    for job in jobs:
        work(job, tools, arguments.slow, troubles)
    print((FOLDER / "table.md").read_text())


if __name__ == "__main__":
    main()
