"""The default of quantization against plain `max` ranges, by slice, on all shared float networks under three schemes.

The default lets several range methods compete, corrects biases, and takes quick steps where a scheme asks for them. On its
calibration data it is never to be behind `npuc quantize --method max --no-tune`, neither in the mean of the slices nor in the
worst slice of the worst sample (by more than 0.1 dB), and on other samples not by more than half a decibel in the mean and in
the worst slice. A slice whose error is larger than its signal is lost in both.

Networks of the accuracy benchmark have their own images. Others, from all formats, get photographs of the size that they take,
walks that look like spectra, or digits. Each network under each scheme is a job with its result in benchmarks/results/default;
jobs that are done are not run again.

    python benchmarks/bench_default.py [--networks resnet20,...] [--schemes w8a8,pow2,w4a8] [--calib 24] [--samples 40] [--again]
        [--only-table] [--write-docs]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_job import SCHEMES
from accuracy_networks import NETWORKS
from accuracy_npuc import network_of
from peers import DATA, MODELS, ROOT
from PIL import Image

from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.compare import NOTHING, OutputFigures
from npuc.files import write_atomically
from npuc.flow import ImportOptions, network_to_quantize, quantize_by_method, quantize_on_data
from npuc.ir import Graph, shape_of
from npuc.quant.config import QuantizationConfig
from npuc.quant.validation import SLACK, OutputValidator

RESULTS = Path(__file__).resolve().parent / "results" / "default"
BEHIND = 0.5
"""Decibels that the default may lose to plain ranges on unseen data."""
_DOCS = ROOT / "docs" / "quantization.md"
_MARKS = ("<!-- rows of make bench-default -->\n", "<!-- end of the default -->\n")


@dataclass(frozen=True)
class Other:
    """A network that the accuracy benchmark does not have."""

    file: str
    """Below the folder of shared models."""
    data: str
    """What it reads: a norm of photographs, `spectra`, `walks` or `digits`."""
    shape: tuple[int, ...] = ()
    """The shape of its input where the file does not say it."""


OTHERS = {
    "mnist": Other("onnx/mnist.onnx", "digits:255"),
    "super_resolution": Other("onnx/super_resolution.onnx", "unit"),
    "face_landmark": Other("onnx/mediapipe_face_landmark.onnx", "unit"),
    "resnet8.tflite": Other("tflite/resnet8_float.tflite", "raw"),
    "vww.tflite": Other("tflite/vww_float.tflite", "unit"),
    "kws.tflite": Other("tflite/kws_float.tflite", "spectra"),
    "ad.tflite": Other("tflite/ad_float.tflite", "walks"),
    "face_short.tflite": Other("tflite/mediapipe_face_short_f16.tflite", "signed"),
    "palm_lite.tflite": Other("tflite/mediapipe_palm_lite_f16.tflite", "unit"),
    "resnet8.h5": Other("keras/resnet8.h5", "raw"),
    "vww.h5": Other("keras/vww.h5", "unit"),
    "ad.h5": Other("keras/ad.h5", "walks"),
    "lenet.caffe": Other("caffe/lenet.caffemodel", "digits:1"),
    "ultraface.caffe": Other("caffe/ultraface_rfb_320.prototxt", "signed"),
    "squeezenet.caffe": Other("caffe/squeezenet_v1.1.prototxt", "caffe", (1, 3, 227, 227)),
    "wechat_sr.caffe": Other("caffe/wechat_sr.prototxt", "unit"),
    "yolov3_nano.darknet": Other("darknet/mbv2_yolov3_nano_voc.cfg", "unit"),
    "yoloface.darknet": Other("darknet/yoloface_50k.cfg", "unit"),
    "kws.savedmodel": Other("tensorflow/kws_savedmodel", "spectra"),
    "resnet20.torchscript": Other("pytorch/cifar10_resnet20.torchscript.pt", "imagenet", (1, 3, 32, 32)),
}


def graph_of(name: str) -> Graph:
    """The float network as the command quantizes it."""
    if name in NETWORKS:
        return network_of(NETWORKS[name])
    other = OTHERS[name]
    path = MODELS.parent / other.file
    if not other.shape:
        return network_to_quantize(path)
    entry = "data" if ".caffe" in name else "x"
    return network_to_quantize(path, ImportOptions(input_shapes={entry: other.shape}))


def samples_of(name: str, shape: tuple[int, ...], calib: int, count: int) -> tuple[list[Array], list[Array]]:
    """Samples to calibrate with, and others."""
    if name in NETWORKS:
        network = NETWORKS[name]
        return network.calibration(calib), [case.read() for case in network.measured(count)]
    made = [_sample(OTHERS[name].data, shape, index) for index in range(calib + count)]
    return made[:calib], made[calib:]


def _sample(data: str, shape: tuple[int, ...], index: int) -> Array:
    rng = np.random.default_rng(index)
    if data.startswith("digits"):
        images = np.load(ROOT / "examples" / "digits_samples.npz")["image"]
        pixels = np.kron(images[index].reshape(8, 8), np.ones((3, 3)))
        return (
            (np.pad(pixels, 2) / pixels.max() * float(data.partition(":")[2]))
            .astype(np.float32)
            .reshape(shape)
        )
    if data in ("spectra", "walks"):
        steps = 0.4 * rng.standard_normal(shape).cumsum(axis=1)
        level = 6 * rng.standard_normal() if data == "spectra" else 0.0
        return (steps + level).astype(np.float32)
    return _photograph(data, shape, index)


def _photograph(norm: str, shape: tuple[int, ...], index: int) -> Array:
    last = shape[-1] in (1, 3)
    height, width, channels = shape[1:] if last else (*shape[2:], shape[1])
    paths = sorted((DATA / "coco" / "images").iterdir())
    with Image.open(paths[index % len(paths)]) as image:
        image = image.convert("L" if channels == 1 else "RGB").resize(
            (width, height), Image.Resampling.BILINEAR
        )
    pixels = np.asarray(image, np.float32).reshape(height, width, channels)
    if norm == "unit":
        pixels = pixels / 255
    elif norm == "signed":
        pixels = pixels / 127.5 - 1
    elif norm == "imagenet":
        pixels = (pixels / 255 - np.float32((0.485, 0.456, 0.406))) / np.float32((0.229, 0.224, 0.225))
    elif norm == "caffe":
        pixels = pixels[..., ::-1] - np.float32((104, 117, 123))
    return np.ascontiguousarray((pixels if last else pixels.transpose(2, 0, 1))[None], np.float32)


def _row(figures: OutputFigures) -> list[float]:
    """The mean of the slices, the worst slice, and the worst slice of the worst sample."""
    slice_, sample = figures.worst_slice, figures.worst
    return [
        figures.mean,
        *(
            figures.mean if worst is None else worst
            for worst in (slice_ and slice_[1], sample and sample.sqnr)
        ),
    ]


def work(name: str, scheme: str, calib: int, count: int, folder: Path) -> dict[str, Any]:
    """Quantize both ways, measure both on both sets of samples, and write the result."""
    begun = time.process_time()
    graph = graph_of(name)
    entry = graph.inputs[0]
    calibration, unseen = samples_of(name, shape_of(entry.value), calib, count)
    stated = SCHEMES[scheme]
    config = None if stated is None else QuantizationConfig(scheme=stated)
    default, _ = quantize_on_data(graph, open_data(graph, calibration), config, threads=1)
    plain, _ = quantize_by_method(graph, open_data(graph, calibration), config, method="max", threads=1)
    result: dict[str, Any] = {
        "network": name, "scheme": scheme, "calibration": len(calibration), "unseen": len(unseen),
    }  # fmt: skip
    for part, arrays in (("on calibration", calibration), ("on unseen", unseen)):
        validator = OutputValidator(graph, [{entry.name: array} for array in arrays])
        result[part] = {
            key: _row(validator.figures(made.graph)) for key, made in (("default", default), ("max", plain))
        }
    result["notes"] = list(default.graph.notes)
    result["seconds"] = round(time.process_time() - begun, 1)
    folder.mkdir(parents=True, exist_ok=True)
    with write_atomically(folder / f"{name}.{scheme}.json") as file:
        file.write((json.dumps(result, indent=1) + "\n").encode())
    return result


def violations(result: dict[str, Any]) -> list[str]:
    """What of the promise a result breaks, in words."""
    broken = []
    kinds = ("mean", "worst slice", "worst slice of the worst sample")
    for part, slack, judged in (("on calibration", SLACK, 3), ("on unseen", BEHIND, 2)):
        pairs = zip(kinds[:judged], result[part]["default"], result[part]["max"], strict=False)
        for kind, ours, theirs in pairs:
            ours, theirs = (value if kind == "mean" else max(value, NOTHING) for value in (ours, theirs))
            if ours < theirs - slack:
                broken.append(f"{kind} {part} data {ours:.1f} dB, not {theirs:.1f}")
    return broken


def table(folder: Path = RESULTS) -> str:
    """All results in the form of the documentation, and what breaks the promise."""
    lines = [
        "| network, scheme (samples, calibration) | on calibration data: default | `max` | on others: default | `max` |",
        "|---|---|---|---|---|",
    ]
    broken, results = [], {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    for name in (*NETWORKS, *OTHERS):
        for scheme in SCHEMES:
            result = results.get(f"{name}.{scheme}")
            if result is None:
                continue
            cells = [
                ", ".join(f"{value:.1f}" for value in result[part][key])
                for part in ("on calibration", "on unseen")
                for key in ("default", "max")
            ]
            lines.append(
                f"| {name} {scheme} ({result['unseen']}, {result['calibration']}) | {' | '.join(cells)} |"
            )
            broken += [f"- {name} {scheme}: {words}" for words in violations(result)]
    kept = f"The promise holds in {len(lines) - 2 - len({line.split(':')[0] for line in broken})} of {len(lines) - 2} rows."
    return (
        "\n\n".join(
            [
                "\n".join(lines),
                kept + (" It is broken in these:" if broken else ""),
                *["\n".join(broken)] * bool(broken),
            ]
        )
        + "\n"
    )


def main() -> None:
    """Run what is not there, and print all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", default=",".join((*NETWORKS, *OTHERS)))
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--calib", type=int, default=24)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--again", action="store_true", help="also jobs that have a result")
    parser.add_argument(
        "--only-table", action="store_true", help="run nothing, show the results that there are"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/quantization.md")
    given = parser.parse_args()
    for name in given.networks.split(",") if not given.only_table else ():
        for scheme in given.schemes.split(","):
            if given.again or not (given.to / f"{name}.{scheme}.json").exists():
                result = work(name, scheme, given.calib, given.samples, given.to)
                words = "; ".join(violations(result)) or "as promised"
                print(f"{name} {scheme}: {words} ({result['seconds']:.0f} s)", flush=True)
    text = table(given.to)
    if given.only_table:
        print(text)
    if given.write_docs:
        before, rest = _DOCS.read_text().split(_MARKS[0])
        _DOCS.write_text(f"{before}{_MARKS[0]}\n{text}\n{_MARKS[1]}{rest.split(_MARKS[1])[1]}")


if __name__ == "__main__":
    main()
