"""Post-training quantization: npuc's default and its whole ladder against four other quantizers, on the same data.

Every tool gets the same float file and the same calibration samples; every result is measured on the same other samples
against the float network. A row is a network under a scheme: `w8a8` (8 bits, weights with a scale each channel), `pow2` (8 bits,
powers of two, per tensor) or `w4a8` (weights of 4 bits). A tool with several ways of working is run in each, and the one
with the highest SQNR is shown. Peers' results are run by ONNX Runtime, npuc's by graph mode.

`figure` is top-1 of labelled images, or mAP of detectors on COCO's; `to float` its paired difference with a standard
error; `same` the share of samples whose first choice is that of float; `cosine` the mean over samples and outputs; `SQNR` the
mean over the slices of the outputs in decibels, `worst` that of the worst slice. All samples are used: those that there are to
calibrate with, and all others. A row ends with whether npuc's ladder is
first, or by how much not. The text detector gets images with words written on them.

Each way of working is a job of its own (accuracy_job.py) with its result under benchmarks/results/accuracy: jobs that are done
are not run again, so the benchmark can be stopped and goes on. Networks that were made lie under build/bench/accuracy.

    python benchmarks/bench_accuracy.py [--models mobilenet_v2,...] [--schemes w8a8,pow2,w4a8] [--images 250]
        [--calibration 64] [--tools ort,nncf,aimet,quark] [--steps equalize,...] [--device cuda] [--seeds 3] [--slow] [--again]
        [--only-table] [--write-docs]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from accuracy_job import OWN, RESULTS, SCHEMES, Protocol, done, protocol
from accuracy_networks import NETWORKS
from accuracy_report import print_row, table
from peers import PEERS, ROOT, SHARED

_DOCS = ROOT / "docs" / "quantization.md"
_MARKS = ("<!-- rows of make bench-accuracy -->\n", "<!-- end of the rows -->\n")


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


def run(job: Protocol, tool: str, again: bool) -> str | None:
    """Run a job in a process of its own; why it failed, or None."""
    options = ["--calibration", str(job.calibration), "--images", str(job.images), "--tool", tool]
    options += [
        "--device",
        job.device,
        "--seed",
        str(job.seed),
        *(["--steps", job.steps] if job.steps else []),
    ]
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "accuracy_job.py"),
        job.network,
        job.scheme,
        job.entry,
    ]
    start = time.perf_counter()
    ended = subprocess.run(
        [*command, *options, *(["--again"] if again else [])], capture_output=True, text=True, cwd=ROOT
    )
    failure = None
    if ended.returncode:
        failure = (ended.stderr.strip() or f"status {ended.returncode}").splitlines()[-1]
    words = f"{job.name}: {time.perf_counter() - start:.0f} s" + (f", failed: {failure}" if failure else "")
    print(words, file=sys.stderr, flush=True)
    return failure


def rows(results: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Results by network and scheme, in the order of the benchmark; a row has one number of samples: that of the last result."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name in NETWORKS:
        for scheme in SCHEMES:
            row = [
                r for r in results if (r["protocol"]["network"], r["protocol"]["scheme"]) == (name, scheme)
            ]
            if row:
                found[name, scheme] = row
    return found


def committed() -> list[dict[str, Any]]:
    """All results that there are."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def write_docs(text: str) -> None:
    """Put the table where docs/quantization.md has it."""
    page = _DOCS.read_text()
    before, rest = page.split(_MARKS[0])
    _, after = rest.split(_MARKS[1])
    _DOCS.write_text(f"{before}{_MARKS[0]}\n{text}\n{_MARKS[1]}{after}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--schemes", default=",".join(SCHEMES), help=f"of {', '.join(SCHEMES)}")
    parser.add_argument("--images", type=int, help="at most so many; without it, all")
    parser.add_argument("--calibration", type=int, help="at most so many samples; without it, all")
    parser.add_argument("--tools", default="ort,nncf,aimet,quark", help="peers; empty for none")
    parser.add_argument("--steps", default="", help="steps of the ladder; without it, all")
    parser.add_argument("--device", default="cpu", help="where the ladder learns: cpu or cuda")
    parser.add_argument(
        "--seeds", type=int, default=1, help="how often the ladder is run, each with its seed"
    )
    parser.add_argument("--slow", action="store_true", help="also the peers' learned roundings")
    parser.add_argument("--again", action="store_true", help="also jobs that have a result")
    parser.add_argument(
        "--only-table", action="store_true", help="run nothing, show the results that there are"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/quantization.md")
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
    wanted = [
        (name, scheme) for name in arguments.models.split(",") for scheme in arguments.schemes.split(",")
    ]
    if not arguments.only_table:
        if not SHARED.is_dir():
            print(f"skipped: {SHARED} with the models and images is not there")
            return
        _run_all(arguments, wanted)
    text = table(rows(committed()), [(name, scheme) for name in NETWORKS for scheme in SCHEMES])
    print(text)
    if arguments.write_docs:
        write_docs(text)


def _run_all(arguments: argparse.Namespace, wanted: list[tuple[str, str]]) -> None:
    tools = [tool for tool in arguments.tools.split(",") if tool]
    installed = {tool: PEERS[tool].install() for tool in tools if tool in PEERS}
    troubles = {tool: trouble for tool, trouble in installed.items() if trouble}
    for name, scheme in wanted:
        failures: dict[str, str] = {}
        for entry in ENTRIES:
            if entry.tool not in (*OWN, *tools) or scheme not in entry.schemes:
                continue
            if entry.tool in troubles:
                failures[entry.key] = f"not installed: {troubles[entry.tool]}"
                continue
            for seed in range(arguments.seeds if entry.key == "ladder" else 1):
                job = protocol(
                    name, scheme, entry.key, arguments.calibration, arguments.images,
                    steps=arguments.steps, device=arguments.device, seed=seed,
                )  # fmt: skip
                if (entry.slow and not arguments.slow) or (done(job) is not None and not arguments.again):
                    continue
                failure = run(job, entry.tool, arguments.again)
                if failure:
                    failures[entry.key] = failure
        print_row(rows(committed()).get((name, scheme), []), failures)


if __name__ == "__main__":
    main()
