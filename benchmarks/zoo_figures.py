"""Networks x targets on one page: accuracy where there is data, cycles, bound, bytes, on-chip memory, compile time.

Each network on each target is a job of its own in this process: the integer network (networks.py; a TFLite file keeps its own
integers) is compiled at the default level without a cache of schedules, and the program is played. A result is a file of
benchmarks/results/zoo, which is part of the repository; jobs that have one are not done again, so that a run that was stopped
goes on where it was, small networks first. Accuracy is that of benchmarks/results/accuracy (bench_accuracy.py, W8A8 without
training): it depends on the integers, not on the target. `--write-docs` writes docs/zoo-figures.md from the files.

    python benchmarks/zoo_figures.py [--networks A,B] [--targets edge-1t,edge-4t] [--minutes 10] [--again] [--write-docs]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "zoo-figures.md"
TARGETS = ("edge-1t", "edge-4t", "server-32t", "ethos-u65-256-like")
TFLITE = (
    "micro_speech_int8", "kws_int8", "ad_int8", "resnet8_int8", "vww_int8", "mobilenet_v1_025_128_uint8",
    "mobilenet_v2_224_ptq",
)  # fmt: skip
ONNX = (
    "mnist", "cifar10_resnet20", "fastestdet", "ultraface_rfb_320", "yunet_n_320", "squeezenet_v1.1", "shufflenet_v2_int8",
    "mobilenet_v2", "mediapipe_face_landmark", "super_resolution", "yolox_nano", "ppocrv3_text_det", "efficientnet_lite0",
    "resnet50", "vit_s16", "yolov5s",
)  # fmt: skip
RANDOM = ("efficientnet_lite0", "resnet50", "vit_s16", "yolov5s")
"""Networks with random weights."""
MEASURED = {
    "cifar10_resnet20": "resnet20",
    "mobilenet_v2": "mobilenet_v2",
    "squeezenet_v1.1": "squeezenet",
    "yolox_nano": "yolox_nano",
}
"""Networks with an accuracy, and its name in benchmarks/results/accuracy."""


def jobs() -> Iterator[tuple[str, str]]:
    """All networks on all targets, small networks first. The machine like Ethos-U has the arithmetic of TFLite files."""
    for network in (*TFLITE, *ONNX):
        for target in TARGETS:
            if network in TFLITE or target != "ethos-u65-256-like":
                yield network, target


def file_of(network: str, target: str) -> Path:
    """Where a result is."""
    return RESULTS / "zoo" / f"{network}.{target}.json"


def measured(network: str, target: str) -> dict[str, Any]:
    """Compile and play."""
    import networks
    from bench_schedule import limits_of, moved

    from npuc.codegen.compile_model import CompileOptions, compile_program
    from npuc.flow import import_model, quantize_network
    from npuc.sim import simulate
    from npuc.target import load_target

    if network in TFLITE:
        path = networks.MODELS.parent / "tflite" / f"{network}.tflite"
        graph = quantize_network(import_model(path)).graph
    else:
        graph = networks.integer(network)
    machine = load_target(target)
    limits = limits_of(graph, machine)
    began = time.process_time()
    done = compile_program(graph, machine, CompileOptions())
    seconds = time.process_time() - began
    layers = Counter(part.device for part in done.partition.parts for _ in part.ops)
    return {
        "network": network,
        "target": target,
        "commit": _commit(),
        "layers": layers["npu"],
        "layers on the CPU": layers["cpu"],
        "cycles": simulate(done.model).total,
        "buffered bound": limits.buffered,
        "bytes": moved(done.model),
        "compulsory bytes": limits.bytes,
        "on-chip bytes": max((part.scheduled.memory for part in done.parts), default=0),
        "seconds": round(seconds, 2),
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=RESULTS, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def accuracy(network: str) -> str:
    """The figure with 8 bits and that of float; none where there is no data."""
    path = RESULTS / "accuracy" / f"{MEASURED.get(network, '')}.w8a8.npuc.json"
    if network not in MEASURED or not path.is_file():
        return "–"
    found = json.loads(path.read_text())
    return f"{found['metric']} {found['figure']:.1f} (float {found['float']:.1f})"


def page() -> str:
    """The page, from the files."""
    rows = {job: json.loads(file_of(*job).read_text()) for job in jobs() if file_of(*job).is_file()}
    missing = [job for job in jobs() if job not in rows]
    commits = Counter(row["commit"] for row in rows.values()).most_common()
    text = [_HEAD, f"Results by commit: {', '.join(f'{count} at {commit}' for commit, count in commits)}."]
    for target in TARGETS:
        text.append(f"\n## {target}\n")
        text.append(
            "| network | accuracy, 8 bits | layers: NPU + CPU | cycles | bound / cycles | MB moved | over compulsory |"
            " KiB on chip | s |"
        )
        text.append("|---|---|--:|--:|--:|--:|--:|--:|--:|")
        for network in (*TFLITE, *ONNX):
            if (network, target) in rows:
                text.append(_line(rows[network, target]))
    text.append("\n## What is missing\n")
    names = ", ".join(f"{network} on {target}" for network, target in missing)
    text.append(
        f"Not measured yet: {names}." if missing else "All networks of the list are measured on all targets."
    )
    text.append(
        "The networks of `benchmarks/zoo.yaml`, which have to be fetched first, are on [a page of their own](zoo.md): two"
        " targets, with decibels by slice in place of an accuracy. Networks without a data set at hand have no accuracy."
    )
    return "\n".join(text) + "\n"


_HEAD = """# Networks and targets

Written by `python benchmarks/zoo_figures.py --write-docs` from `benchmarks/results/zoo`; do not edit. `make zoo` measures what is
missing and writes the page.

Integer networks compiled at the default level, and played by the [cycle model](cycles.md). *Bound / cycles* is the part of
the [buffered bound](scheduling.md) that is reached, *over compulsory* the bytes moved over weights, inputs and outputs
once, *KiB on chip* the local memory of a core up to its highest byte in use, *s* the CPU seconds of the compilation without
import and quantization. Ranges of activations come from random samples here, since cycles and bytes do not depend on them;
accuracy is that of the same network quantized on real data, 8-bit weights and activations, in graph mode, whose
bits programs give. `*` marks networks with random weights, which have none.

    npuc compile MODEL --target TARGET --data IMAGES -o model.npu    # a network of your own
    npuc profile model.npu                                           # cycles, bound and bytes
    python benchmarks/zoo_figures.py --networks yolox_nano --targets edge-1t --again --write-docs
"""


def _line(row: dict[str, Any]) -> str:
    title = row["network"] + ("*" if row["network"] in RANDOM else "")
    bound = row["buffered bound"] / row["cycles"] if row["cycles"] else 0.0
    compulsory = row["bytes"] / row["compulsory bytes"] if row["compulsory bytes"] else 0.0
    cells = (
        title, accuracy(row["network"]), f"{row['layers']} + {row['layers on the CPU']}", f"{row['cycles']:,}", f"{bound:.2f}",
        f"{row['bytes'] / 1e6:.2f}", f"{compulsory:.2f}", f"{row['on-chip bytes'] / 1024:,.0f}", f"{row['seconds']:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", default="")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no job after as many")
    parser.add_argument("--again", action="store_true", help="also jobs that have a result")
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args()
    chosen, targets = options.networks.split(",") if options.networks else None, options.targets.split(",")
    (RESULTS / "zoo").mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for network, target in jobs():
        wanted = (chosen is None or network in chosen) and target in targets
        if not wanted or (file_of(network, target).is_file() and not options.again):
            continue
        if time.monotonic() - began > 60 * options.minutes:
            break
        row = measured(network, target)
        path = file_of(network, target)
        path.with_suffix(".part").write_text(json.dumps(row, indent=1) + "\n")
        path.with_suffix(".part").replace(path)
        print(_line(row), target, flush=True)
    if options.write_docs:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
