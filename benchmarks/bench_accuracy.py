"""Post-training quantization to 8 bits at default settings: npuc, onnxruntime.quantization and NNCF on the same networks.

Every tool gets the same float file and the same calibration samples; every result is measured on the same other samples
against the float network. ONNX Runtime's quantizer is run per channel with MinMax, Entropy and Percentile calibration,
and the one with the highest SQNR is shown; NNCF has its own defaults (per channel, fast bias correction). Both results
are run by ONNX Runtime, npuc's by graph mode.

`top-1` is of labelled pictures; `same` is the share of samples whose first choice is that of float; `cosine` is the mean
over samples and outputs; `SQNR` is signal over error of all samples in decibels, the mean of the outputs. `less npuc's` is
the paired difference of top-1, or of the cosine, with its standard error. The text detector gets pictures with words written
on them. Results of the peers are kept under build/bench/accuracy: remove it to quantize anew.

    python benchmarks/bench_accuracy.py [--models mobilenet_v2,...] [--images 500] [--calibration 64] [--tools ort,nncf]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_letters, digits
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from peers import CACHE, DATA, MODELS, ROOT, SHARED, fixed, quantize_ort, session
from PIL import Image, ImageDraw, ImageFont

from npuc.calib.images import load_image
from npuc.ir.preprocess import Preprocess

Array = np.ndarray[Any, Any]

FOLDER = CACHE / "accuracy"
NNCF_VENV = ROOT / "build" / "bench-venv"
NNCF_PACKAGES = ("nncf==3.4.0", "openvino==2026.4.1", "onnx", "onnxruntime")
METHODS = ("MinMax", "Entropy", "Percentile")
THREADS = 2
_COCO_CALIBRATION = 40
"""The first pictures of a set without a part for calibration serve for that, the others for measuring."""


@dataclass(frozen=True)
class Network:
    """A network with its data."""

    name: str
    file: str
    shape: tuple[int, ...]
    data: str
    preprocess: Preprocess
    text: bool = False
    """Words are written on the pictures, for networks that look for them."""

    @property
    def labelled(self) -> bool:
        """Whether there are classes to count."""
        return (DATA / self.data / "val.txt").exists()

    def calibration(self, count: int) -> list[Array]:
        """Samples to calibrate with."""
        folder = DATA / self.data / ("calib" if self.labelled else "images")
        most = count if self.labelled else min(count, _COCO_CALIBRATION)
        return [self._read(path) for path in sorted(folder.iterdir())[:most]]

    def measured(self, count: int) -> list[tuple[Callable[[], Array], int]]:
        """Other samples, read on demand, with their classes (-1 without)."""
        folder = DATA / self.data
        if not self.labelled:
            files = sorted((folder / "images").iterdir())[_COCO_CALIBRATION:]
            return [(lambda path=path: self._read(path), -1) for path in files[:count]]  # type: ignore[misc]
        pairs = [line.split() for line in (folder / "val.txt").read_text().splitlines() if line.strip()]
        paths = [(folder / "val" / name, int(label)) for name, label in pairs]
        return [(lambda path=path: self._read(path), label) for path, label in paths[:count]]  # type: ignore[misc]

    def _read(self, path: Path) -> Array:
        return load_image(with_text(path) if self.text else path, self.preprocess, self.shape)


def with_text(path: Path) -> Path:
    """A picture with a few words on it, the same ones each time."""
    target = FOLDER / "text" / f"{path.stem}.png"
    if target.exists():
        return target
    rng = np.random.default_rng(crc32(path.name.encode()))
    picture = Image.open(path).convert("RGB")
    draw = ImageDraw.Draw(picture)
    for _ in range(6):
        word = "".join(rng.choice(list(ascii_letters + digits), rng.integers(4, 12)))
        font = ImageFont.load_default(int(rng.integers(picture.height // 16, picture.height // 7)))
        x, y = rng.random() * 0.6 * picture.width, rng.random() * 0.85 * picture.height
        colours = [tuple(int(c) for c in rng.integers(0, 256, 3)) for _ in range(2)]
        draw.text((x, y), word, colours[0], font, stroke_width=2, stroke_fill=colours[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.save(target)
    return target


_MEAN, _SCALE = (123.675, 116.28, 103.53), (1 / 58.395, 1 / 57.12, 1 / 57.375)
_CROPPED: dict[str, Any] = {"resize": (256, 256), "keep_aspect_ratio": True, "interpolation": "bicubic"}
_LETTERBOX: dict[str, Any] = {
    "keep_aspect_ratio": True,
    "pad_value": 114,
    "pad_type": "corner",
    "pixel_format": "bgr",
}

NETWORKS = {
    network.name: network
    for network in (
        Network(
            "mobilenet_v2", "mobilenet_v2", (1, 3, 224, 224), "imagenet",
            Preprocess(mean=_MEAN, scale=_SCALE, **_CROPPED),
        ),
        Network(
            "squeezenet", "squeezenet_v1.1", (1, 3, 227, 227), "imagenet",
            Preprocess(mean=(104.0, 117.0, 123.0), pixel_format="bgr", **_CROPPED),
        ),
        Network(
            "resnet20", "cifar10_resnet20", (1, 3, 32, 32), "cifar10", Preprocess(mean=_MEAN, scale=_SCALE)
        ),
        Network("yolox_nano", "yolox_nano", (1, 3, 416, 416), "coco", Preprocess(**_LETTERBOX)),
        Network(
            "fastestdet", "fastestdet", (1, 3, 352, 352), "coco",
            Preprocess(pixel_format="bgr", scale=(1 / 255,)),
        ),
        Network(
            "ultraface", "ultraface_rfb_320", (1, 3, 240, 320), "coco", Preprocess(mean=(127.0,), scale=(1 / 128,))
        ),
        Network("yunet", "yunet_n_320", (1, 3, 320, 320), "coco", Preprocess(pixel_format="bgr")),
        Network(
            "ppocr_det", "ppocrv3_text_det", (1, 3, 320, 320), "coco", Preprocess(mean=_MEAN, scale=_SCALE), text=True
        ),
    )
}  # fmt: skip


# Quantizing: each tool in a process of its own.


def float_file(network: Network) -> Path:
    """The file that all tools start from."""
    return fixed(MODELS / f"{network.file}.onnx", network.shape, FOLDER / f"{network.name}.float.onnx")


def result_file(network: Network, tool: str, calibration: int) -> Path:
    """Where a tool's result is."""
    suffix = ".mlir" if tool == "npuc" else ".onnx"
    return FOLDER / f"{network.name}.{tool}.{calibration}{suffix}"


def quantize_with(tool: str, network: Network, calibration: int) -> None:
    """Write a tool's result."""
    source, target = float_file(network), result_file(network, tool, calibration)
    samples = network.calibration(calibration)
    if tool == "npuc":
        from npuc.calib.sources import open_data
        from npuc.flow import ImportOptions, import_model, quantize_on_data, save_graph

        name = onnx.load(source, load_external_data=False).graph.input[0].name
        options = ImportOptions(input_shapes={name: network.shape})
        graph = import_model(MODELS / f"{network.file}.onnx", options)
        done, _ = quantize_on_data(graph, open_data(graph, samples), threads=THREADS)
        print("\n".join(done.graph.notes), file=sys.stderr)
        save_graph(done.graph, target)
    elif tool == "nncf":
        stacked = FOLDER / f"{network.name}.samples.npy"
        np.save(stacked, np.concatenate(samples))
        script = Path(__file__).with_name("peer_nncf.py")
        command = [str(NNCF_VENV / "bin" / "python"), str(script), str(source), str(stacked), str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        stacked.unlink()
        if done.returncode:
            raise SystemExit(done.stderr.strip().splitlines()[-1])
    else:
        quantize_ort(source, target, samples, tool)


def install_nncf() -> str | None:
    """Make NNCF's venv if it is not there; what went wrong, or None."""
    if (NNCF_VENV / "installed").exists():
        return None
    print("installing NNCF in build/bench-venv", file=sys.stderr)
    pip = [str(NNCF_VENV / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(NNCF_VENV)], [*pip, *NNCF_PACKAGES]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return (done.stderr.strip() or "no message").splitlines()[-1]
    (NNCF_VENV / "installed").touch()
    return None


def make_results(network: Network, tools: list[str], calibration: int) -> dict[str, str]:
    """Run each tool that has no result yet (npuc always); the failures by tool."""
    failures = {}
    float_file(network)
    for tool in tools:
        target = result_file(network, tool, calibration)
        if tool != "npuc" and target.exists():
            continue
        start = time.perf_counter()
        command = [sys.executable, __file__, "--quantize", tool, "--models", network.name]
        done = subprocess.run(
            [*command, "--calibration", str(calibration)], capture_output=True, text=True, cwd=ROOT
        )
        seconds = time.perf_counter() - start
        print(f"{network.name}: {tool} took {seconds:.0f} s", file=sys.stderr, flush=True)
        if tool == "npuc" and not done.returncode and done.stderr.strip():
            print(f"  {done.stderr.strip()}".replace("\n", "\n  "), file=sys.stderr, flush=True)
        if done.returncode:
            failures[tool] = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
    return failures


# Measuring.


@dataclass
class Score:
    """How one result compares with float."""

    hits: list[bool] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    cosines: list[float] = field(default_factory=list)
    signal: dict[str, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)

    def add(self, reference: Mapping[str, Array], found: Mapping[str, Array], label: int) -> None:
        """Take in one sample."""
        for name, exact in reference.items():
            x, y = exact.astype(np.float64).reshape(-1), found[name].astype(np.float64).reshape(-1)
            norm = float(np.linalg.norm(x) * np.linalg.norm(y))
            self.cosines.append(float(x @ y) / norm if norm else float(not (x.any() or y.any())))
            self.signal[name] = self.signal.get(name, 0.0) + float(x @ x)
            self.error[name] = self.error.get(name, 0.0) + float((x - y) @ (x - y))
        if label >= 0:
            exact, got = (next(iter(values.values())).reshape(-1) for values in (reference, found))
            self.hits.append(int(got.argmax()) == label)
            self.same.append(int(got.argmax()) == int(exact.argmax()))

    @property
    def sqnr(self) -> float:
        """Decibels."""
        return float(
            np.mean([10 * np.log10(s / max(self.error[n], 1e-30)) for n, s in self.signal.items() if s])
        )

    @property
    def cosine(self) -> float:
        """The mean of samples and outputs."""
        return float(np.mean(self.cosines))


def runner(network: Network, tool: str, calibration: int) -> Callable[[Array], Mapping[str, Array]]:
    """A function that runs a result."""
    if tool == "npuc":
        from npuc.engine import IntegerEngine
        from npuc.ir import load_graph

        graph = load_graph(result_file(network, tool, calibration))
        engine = IntegerEngine(graph, threads=THREADS)
        return lambda x: engine.run({graph.inputs[0].name: x})
    path = float_file(network) if tool == "float" else result_file(network, tool, calibration)
    run = session(path, THREADS)
    names, entry = [port.name for port in run.get_outputs()], run.get_inputs()[0].name
    return lambda x: dict(zip(names, run.run(None, {entry: x}), strict=True))


def measure(network: Network, tools: list[str], calibration: int, images: int) -> dict[str, Score]:
    """All results on the same samples."""
    runs = {tool: runner(network, tool, calibration) for tool in ("float", *tools)}
    scores = {tool: Score() for tool in runs}
    for read, label in network.measured(images):
        x = read()
        reference = runs["float"](x)
        for tool, run in runs.items():
            scores[tool].add(reference, reference if tool == "float" else run(x), label)
    return scores


def report(network: Network, scores: dict[str, Score], failures: dict[str, str]) -> None:
    """The lines of one network."""
    count = len(scores["float"].cosines) // max(1, len(scores["float"].signal))
    shown = {"float": "float", "npuc": "npuc"}
    ort = [method for method in METHODS if method in scores]
    if ort:
        best = max(ort, key=lambda method: scores[method].sqnr)
        shown[best] = f"ORT {best}"
    shown["nncf"] = "NNCF"
    print(f"{network.name} ({count} samples)")
    ours = scores.get("npuc")
    for tool, words in shown.items():
        if tool not in scores:
            continue
        score = scores[tool]
        line = f"  {words:<16}"
        line += f"{np.mean(score.hits):>8.1%}{np.mean(score.same):>8.1%}" if score.hits else " " * 16
        line += f"{score.cosine:>10.5f}{score.sqnr:>8.1f}" if tool != "float" else ""
        if ours is not None and tool not in ("float", "npuc"):
            kept = score.hits and ours.hits
            pairs = (score.hits, ours.hits) if kept else (score.cosines, ours.cosines)
            difference = np.array(pairs[0], float) - np.array(pairs[1], float)
            error = difference.std() / len(difference) ** 0.5
            if kept:
                line += f"   top-1 {difference.mean() * 100:+.1f} ± {error * 100:.1f}"
            else:
                line += f"   cosine {difference.mean():+.5f} ± {error:.5f}"
        print(line)
    others = [f"{method} {scores[method].sqnr:.1f}" for method in ort if method not in shown]
    if others:
        print(f"  {'':<16}(ORT's others, SQNR: {', '.join(others)})")
    for tool, reason in failures.items():
        print(f"  {tool}: no result: {reason}")
    sys.stdout.flush()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--images", type=int, help="at most so many; without it 500, or 1,000 small ones")
    parser.add_argument("--calibration", type=int, default=64, help="samples to calibrate with")
    parser.add_argument("--tools", default="ort,nncf", help="peers: ort, nncf")
    parser.add_argument("--quantize", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    networks = [NETWORKS[name] for name in arguments.models.split(",")]
    if not SHARED.is_dir():
        print(f"skipped: {SHARED} with the models and pictures is not there")
        return
    if arguments.quantize:
        quantize_with(arguments.quantize, networks[0], arguments.calibration)
        return
    peers = arguments.tools.split(",")
    tools = ["npuc", *(METHODS if "ort" in peers else ()), *(("nncf",) if "nncf" in peers else ())]
    trouble = install_nncf() if "nncf" in tools else None
    print(f"{arguments.calibration} calibration samples (coco: {_COCO_CALIBRATION}), all tools the same")
    print(f"{'':<18}{'top-1':>8}{'same':>8}{'cosine':>10}{'SQNR':>8}   less npuc's")
    for network in networks:
        failures = make_results(
            network, [t for t in tools if not (t == "nncf" and trouble)], arguments.calibration
        )
        if "nncf" in tools and trouble:
            failures["nncf"] = f"not installed: {trouble}"
        working = [tool for tool in tools if tool not in failures]
        images = arguments.images or (1000 if network.data == "cifar10" else 500)
        report(network, measure(network, working, arguments.calibration, images), failures)


if __name__ == "__main__":
    main()
