"""One job of the accuracy benchmark: a network, a scheme and one way of working of a tool, quantized and measured.

The result is a JSON file of its own, `NETWORK.SCHEME.ENTRY.json`, under benchmarks/results/accuracy, which is committed. It
states its protocol (samples, steps, device, seed); a job whose file has the same protocol is done, whatever the device was, so a
benchmark that was stopped goes on where it was. Hits of single images, or draws of mAP, are in the file, too: differences of any
two are paired.

    python benchmarks/accuracy_job.py mobilenet_v2 pow2 npuc [--calibration 64] [--images 250] [--device cuda] [--again]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_networks import FOLDER, NETWORKS, Case, Network
from accuracy_npuc import network_of, quantize_default, quantize_ladder
from accuracy_scores import Score
from peers import PEERS, quantize_ort, session

from npuc.arrays import Array
from npuc.compare import OutputFigures, find_slices, slice_squares
from npuc.files import write_atomically

RESULTS = Path(__file__).resolve().parent / "results" / "accuracy"
SCHEMES: dict[str, str | None] = {"w8a8": None, "pow2": "pow2", "w4a8": "int4-weights"}
"""The schemes, and the names that npuc has for them; None is its default."""
OWN = ("npuc", "ladder")
"""What npuc itself makes: its default, and its ladder."""
_SLICED = 64
"""The samples whose float outputs define the slices."""


@dataclass(frozen=True)
class Protocol:
    """What a result depends on besides the programs."""

    network: str
    scheme: str
    entry: str
    calibration: int
    images: int
    steps: str = ""
    """The steps of the ladder; empty for all."""
    device: str = "cpu"
    seed: int = 0

    @property
    def data(self) -> Network:
        """The network with its data."""
        return NETWORKS[self.network]

    @property
    def name(self) -> str:
        """The name of the result's file, without an ending."""
        seed = f".seed{self.seed}" if self.seed else ""
        return f"{self.network}.{self.scheme}.{self.entry}{seed}"

    @property
    def made(self) -> Path:
        """Where the quantized network is."""
        suffix = ".mlir" if self.entry in OWN else ".onnx"
        return FOLDER / f"{self.name}.{self.calibration}{suffix}"


def protocol(
    network: str,
    scheme: str,
    entry: str,
    calibration: int | None = None,
    images: int | None = None,
    **more: Any,
) -> Protocol:
    """A protocol with as many samples as there are: `calibration` and `images` are limits, without them all samples."""
    data = NETWORKS[network]
    calibrating = len(data.calibrating[:calibration])
    own = more if entry == "ladder" else {}
    return Protocol(network, scheme, entry, calibrating, len(data.measured(images)), **own)


def done(job: Protocol, folder: Path = RESULTS) -> dict[str, Any] | None:
    """The result of a job, if there is one of the same protocol; a ladder learns the same on a GPU, only sooner."""
    path = folder / f"{job.name}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result if {**result["protocol"], "device": job.device} == asdict(job) else None


def quantize(job: Protocol, tool: str, threads: int) -> dict[str, Any]:
    """Write the quantized network; what was done, and the seconds it took."""
    begun, worked = time.perf_counter(), time.process_time()
    notes: dict[str, Any] = {}
    if job.entry == "npuc":
        notes = quantize_default(job.data, SCHEMES[job.scheme], job.made, job.calibration, threads)
    elif job.entry == "ladder":
        steps = tuple(job.steps.split(",")) if job.steps else None
        notes = quantize_ladder(
            job.data, SCHEMES[job.scheme], job.made, job.calibration, threads, job.device, steps, job.seed
        )
    else:
        samples = job.data.calibration(job.calibration)
        if tool == "ort":
            bits = 4 if job.scheme == "w4a8" else 8
            quantize_ort(job.data.float_file, job.made, samples, job.entry, weight_bits=bits)
        else:
            PEERS[tool].quantize(job.data.float_file, job.made, samples, job.scheme, job.entry)
    seconds = {"wall": time.perf_counter() - begun, "cpu": time.process_time() - worked}
    return {**notes, "seconds": {name: round(value, 1) for name, value in seconds.items()}}


def runner(network: Network, made: Path, threads: int) -> Callable[[Array], Mapping[str, Array]]:
    """A function that runs a network: integers by graph mode, others by ONNX Runtime."""
    if made.suffix == ".mlir":
        from npuc.engine import IntegerEngine
        from npuc.ir import load_graph

        graph = load_graph(made)
        engine = IntegerEngine(graph, threads=threads)
        return lambda x: engine.run({graph.inputs[0].name: x})
    run = session(made, threads, spinning=False)
    names, entry = [port.name for port in run.get_outputs()], run.get_inputs()[0].name
    return lambda x: dict(zip(names, run.run(None, {entry: x}), strict=True))


def measure(network: Network, made: Sequence[tuple[Path, Sequence[Case]]], threads: int) -> dict[str, Any]:
    """The figures of quantized networks, each on its samples, and of float on the same, in the form of the result's file."""
    exact_run = runner(network, network.float_file, threads)
    exact, score, rows = Score(), Score(), []
    slices: list[Any] = []
    pairs = [
        (run, case)
        for run, cases in ((runner(network, path, threads), cases) for path, cases in made)
        for case in cases
    ]
    held = [exact_run(case.read()) for _, case in pairs[:_SLICED]]
    for parts in find_slices(network_of(network), held).values():
        slices += parts
    for index, (run, case) in enumerate(pairs):
        x = case.read()
        reference = held[index] if index < len(held) else exact_run(x)
        # Some tools rename outputs; all keep their order.
        outputs = dict(zip(reference, run(x).values(), strict=True))
        rows.append(slice_squares(outputs, reference, slices))
        for one, values in ((exact, reference), (score, outputs)):
            one.add(reference, values, case.label)
            if network.decoder:
                one.found.append(network.found(case, values))
                one.truths.append(case.boxes)
    figures = OutputFigures(tuple(slices), np.array(rows, np.float64))
    least, worst = figures.worst_slice, figures.worst
    return {
        "float": exact.figure,
        "figure": score.figure,
        "to float": score.less(exact),
        "same": 100 * float(np.mean(score.same)) if score.same else None,
        "cosine": score.cosine,
        "sqnr": score.sqnr,
        "slices": {
            "mean": figures.mean,
            "worst": None if least is None else [least[0].name, least[1]],
            "worst sample": None if worst is None else worst.sqnr,
        },
        "hits": np.packbits(np.array(score.hits, bool)).tobytes().hex() if score.hits else None,
        "draws": [round(float(value), 3) for value in score.drawn] if score.found else None,
    }


def work(
    job: Protocol, tool: str, threads: int, folder: Path = RESULTS, *, keep: bool = False
) -> dict[str, Any]:
    """Do a job and write its result; with `keep`, a quantized network that is there is measured as it is."""
    network = job.data
    _ = network.float_file
    notes = {} if keep and job.made.exists() else quantize(job, tool, threads)
    result = {
        "protocol": asdict(job),
        "tool": tool,
        "metric": network.metric,
        **measure(network, [(job.made, network.measured(job.images))], threads),
        "notes": notes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with write_atomically(folder / f"{job.name}.json") as file:
        file.write((json.dumps(result, indent=1) + "\n").encode())
    return result


def main() -> None:
    """Do one job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", choices=list(NETWORKS))
    parser.add_argument("scheme", choices=list(SCHEMES))
    parser.add_argument("entry", help="npuc, ladder, or a peer's way of working")
    parser.add_argument("--tool", default="", help="whose way of working it is; npuc's own need none")
    parser.add_argument("--calibration", type=int)
    parser.add_argument("--images", type=int)
    parser.add_argument("--steps", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of the result")
    parser.add_argument("--keep", action="store_true", help="measure a quantized network that is there")
    parser.add_argument("--again", action="store_true", help="also if there is a result")
    given = parser.parse_args()
    job = protocol(
        given.network, given.scheme, given.entry, given.calibration, given.images,
        steps=given.steps, device=given.device, seed=given.seed,
    )  # fmt: skip
    if done(job, given.to) is not None and not given.again:
        print(f"{job.name}: done before", file=sys.stderr)
        return
    result = work(job, given.tool or job.entry, given.threads, given.to, keep=given.keep)
    lost = result["to float"]
    words = "" if lost is None else f"{result['figure']:.2f} ({lost[0]:+.2f} ± {lost[1]:.2f}), "
    print(
        f"{job.name}: {words}{result['slices']['mean']:.1f} dB, {result['notes'].get('seconds', {})}",
        flush=True,
    )


if __name__ == "__main__":
    main()
