"""Calibration time and peak memory against onnxruntime.quantization, on the same model, images and threads.

    python benchmarks/bench_calib.py              everything (`make bench-calib`)
    python benchmarks/bench_calib.py --rounds 1 --flat 0

Every measurement is a process of its own. Its time is that of the whole job: load the program (npuc's `.mlir`, which an
import wrote before; the peer's `.onnx`), read and preprocess the images (with the same code for all), run them, and
find the ranges; loading libraries is left out. Peak memory is
the largest resident size of the process, libraries and all. npuc records everything that its methods need (a histogram
of every tensor, averages, tails) in one pass, whichever method follows.

The bars: time at most 1.2 x that of MinMax, peak memory at most a third of Entropy's, and flat from 100 to 1,000
images.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SHARED = Path(__file__).resolve().parents[2] / "shared"
MODEL = _SHARED / "models" / "onnx" / "mobilenet_v2.onnx"
IMAGES = _SHARED / "data" / "imagenet" / "calib"
SHAPE = (1, 3, 224, 224)
TIME_BAR, MEMORY_BAR, FLAT_BAR = 1.2, 1 / 3, 1.05


def preprocess() -> Any:
    """What the model was trained with."""
    from npuc.images.preprocess import Preprocess

    return Preprocess(
        resize=(256, 256),
        crop=(224, 224),
        keep_aspect_ratio=True,
        mean=(123.675, 116.28, 103.53),
        scale=(1 / 58.395, 1 / 57.12, 1 / 57.375),
    )


def images(count: int) -> list[Path]:
    """`count` images; they repeat if there are not enough."""
    files = sorted(IMAGES.iterdir())
    return [files[index % len(files)] for index in range(count)]


# --- what a process does ------------------------------------------------------------------------------------------


def run_npuc(method: str, count: int, threads: int, program: Path) -> int:
    """npuc: one pass, ranges; returns the number of tensors."""
    from npuc.calib.calibration import calibrate
    from npuc.flow import load_model
    from npuc.images.loading import load_image

    graph = load_model(program)
    how = preprocess()

    def data() -> Iterator[Any]:
        return (load_image(path, how, SHAPE) for path in images(count))

    return len(calibrate(graph, data, method, threads=threads))


def run_peer(method: str, count: int, threads: int, model: Path) -> int:
    """onnxruntime.quantization's own calibrator, its sessions on the threads asked for."""
    import onnxruntime
    from onnxruntime.quantization import calibrate

    from npuc.images.loading import load_image

    original = onnxruntime.SessionOptions

    def options() -> Any:
        reader = original()
        reader.intra_op_num_threads = threads
        return reader

    onnxruntime.SessionOptions = options
    how = preprocess()

    class Reader(calibrate.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.files = iter(images(count))

        def get_next(self) -> Any:
            path = next(self.files, None)
            return None if path is None else {"input": load_image(path, how, SHAPE)}

    with tempfile.TemporaryDirectory() as folder:
        calibrator = calibrate.create_calibrator(
            model,
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=getattr(calibrate.CalibrationMethod, method),
        )
        calibrator.collect_data(Reader())
        return len(calibrator.compute_data().data)


def worker(tool: str, method: str, count: int, threads: int, model: Path) -> None:
    """One measurement; prints it as JSON."""
    import onnx  # noqa: F401
    import onnxruntime.quantization.calibrate  # noqa: F401
    from PIL import Image  # noqa: F401

    import npuc.calib.calibration
    import npuc.flow  # noqa: F401

    start = time.perf_counter()
    with open(os.devnull, "w") as nowhere:
        stdout, sys.stdout = sys.stdout, nowhere
        tensors = (run_npuc if tool == "npuc" else run_peer)(method, count, threads, model)
        sys.stdout = stdout
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "tensors": tensors}))


# --- measuring ----------------------------------------------------------------------------------------------------


def measure(tool: str, method: str, count: int, threads: int, program: Path) -> dict[str, Any]:
    """One measurement in a process of its own."""
    model = program if tool == "npuc" else MODEL
    command = [sys.executable, __file__, "--worker", tool, method, str(count), str(threads), str(model)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{tool} {method} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def report(label: str, runs: list[dict[str, Any]]) -> None:
    """One line of figures."""
    times = [run["seconds"] for run in runs]
    peak = max(run["peak"] for run in runs)
    best, middle = min(times), statistics.median(times)
    print(f"{label:28} {best:8.2f} {middle:8.2f} {peak / 1e6:10.0f} {runs[0]['tensors']:8}", flush=True)


def main() -> int:
    """Measure, print, and say which bars are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--worker", nargs=5, metavar=("TOOL", "METHOD", "COUNT", "THREADS", "MODEL"), help=argparse.SUPPRESS
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often npuc and MinMax take turns")
    parser.add_argument("--count", type=int, default=100, help="images")
    parser.add_argument("--flat", type=int, default=1000, help="images of the long run; 0 leaves it out")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    if arguments.worker:
        tool, method, count, threads, model = arguments.worker
        worker(tool, method, int(count), int(threads), Path(model))
        return 0
    if not MODEL.is_file() or not IMAGES.is_dir():
        print(f"the model and images are not here: {MODEL}, {IMAGES}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        from npuc.flow import import_model, save_graph

        program = Path(folder) / "program.mlir"
        save_graph(import_model(MODEL), program)
        return compare(arguments.count, arguments.flat, arguments.rounds, arguments.threads, program)


def compare(count: int, many: int, rounds: int, threads: int, program: Path) -> int:
    """Measure all contenders; 1 if a bar is not met."""
    print(f"{MODEL.name}, {count} images, {threads} threads\n")
    print(f"{'':28} {'best s':>8} {'median s':>8} {'peak MB':>10} {'tensors':>8}")
    contenders = [("npuc", "mse"), ("peer", "MinMax"), ("npuc", "max"), ("npuc", "kl")]
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {key: [] for key in contenders}
    for _ in range(rounds):
        for key in contenders:
            runs[key].append(measure(*key, count, threads, program))
    for key in (("peer", "Entropy"), ("peer", "Percentile")):
        runs[key] = [measure(*key, count, threads, program)]
    for (tool, method), figures in runs.items():
        report(f"{'npuc' if tool == 'npuc' else 'onnxruntime'} {method}", figures)
    ours, theirs = runs["npuc", "mse"], runs["peer", "MinMax"]
    best = min(r["seconds"] for r in ours) / min(r["seconds"] for r in theirs)
    middle = statistics.median(r["seconds"] for r in ours) / statistics.median(r["seconds"] for r in theirs)
    memory = max(r["peak"] for r in ours) / runs["peer", "Entropy"][0]["peak"]
    verdicts = [
        (f"time / MinMax: best {best:.2f}, median {middle:.2f}", best <= TIME_BAR, f"{TIME_BAR}"),
        (f"peak memory / Entropy: {memory:.3f}", memory <= MEMORY_BAR, "1/3"),
    ]
    if many:
        long = measure("npuc", "mse", many, threads, program)
        report(f"npuc mse, {many} images", [long])
        growth = long["peak"] / max(r["peak"] for r in ours)
        verdicts.append(
            (f"peak memory at {many} / at {count}: {growth:.3f}", growth <= FLAT_BAR, f"{FLAT_BAR}")
        )
    print()
    for text, good, bar in verdicts:
        print(f"{text} (at most {bar}): {'met' if good else 'NOT MET'}")
    return 0 if all(good for _, good, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
