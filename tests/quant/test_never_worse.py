"""The default against `--method max --no-tune`, by slice, on networks that are quick: never behind on the calibration data.

On samples that neither has seen it may be behind by half a decibel, for those are other samples.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.compare import NOTHING
from npuc.flow import import_model, quantize_by_method, quantize_on_data
from npuc.ir import shape_of
from npuc.quant.config import QuantizationConfig
from npuc.quant.validation import SLACK, OutputValidator
from support.paths import ROOT

EXAMPLES, MODELS = ROOT / "examples", ROOT.parent / "shared" / "models"
CALIBRATION, UNSEEN = 16, 32
UNSEEN_SLACK = 0.5
"""Decibels that the default may lose to plain ranges on samples that neither has seen."""


def digits(count: int) -> list[Array]:
    return list(np.load(EXAMPLES / "digits_samples.npz")["image"][:count].astype(np.float32))


def normal(shape: tuple[int, ...]) -> Callable[[int], list[Array]]:
    return lambda count: list(np.random.default_rng(1).standard_normal((count, *shape)).astype(np.float32))


def smooth(shape: tuple[int, ...]) -> Callable[[int], list[Array]]:
    """Random walks along the second axis, each from another level: something like the features of speech."""

    def make(count: int) -> list[Array]:
        rng = np.random.default_rng(2)
        steps = 0.4 * rng.standard_normal((count, *shape)).cumsum(axis=2)
        return list((steps + 6 * rng.standard_normal((count, *(1 for _ in shape)))).astype(np.float32))

    return make


NETWORKS: dict[str, tuple[Path, Callable[[int], list[Array]]]] = {
    "digits": (EXAMPLES / "digits.onnx", digits),
    "mnist": (MODELS / "onnx" / "mnist.onnx", normal((1, 1, 28, 28))),
    "resnet20": (MODELS / "onnx" / "cifar10_resnet20.onnx", normal((1, 3, 32, 32))),
    "kws_float": (MODELS / "tflite" / "kws_float.tflite", smooth((1, 49, 10, 1))),
    "resnet8_float": (MODELS / "tflite" / "resnet8_float.tflite", normal((1, 32, 32, 3))),
    "ad_float": (MODELS / "tflite" / "ad_float.tflite", normal((1, 640))),
}


@pytest.mark.parametrize("scheme", [None, "pow2", "int4-weights"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_default_is_never_worse_than_plain_ranges(name: str, scheme: str | None) -> None:
    path, make = NETWORKS[name]
    if not path.exists():
        pytest.skip(f"{path} is not there")
    graph = import_model(path)
    entry = graph.inputs[0]
    shape = shape_of(entry.value)
    data = [{entry.name: sample.reshape(shape)} for sample in make(CALIBRATION + UNSEEN)]
    calibration, unseen = data[:CALIBRATION], data[CALIBRATION:]
    config = None if scheme is None else QuantizationConfig(scheme=scheme)
    default, _ = quantize_on_data(graph, open_data(graph, calibration), config, threads=1)
    plain, _ = quantize_by_method(graph, open_data(graph, calibration), config, method="max", threads=1)
    for samples, slack in ((calibration, SLACK), (unseen, UNSEEN_SLACK)):
        validator = OutputValidator(graph, samples)
        ours, theirs = (validator.figures(made.graph) for made in (default, plain))
        assert ours.mean >= theirs.mean - slack, (ours.mean, theirs.mean)
        # A slice whose error is larger than its signal is lost in both.
        least, other = (
            max(figures.worst_slice[1], NOTHING) for figures in (ours, theirs) if figures.worst_slice
        )
        assert least >= other - slack, (ours.worst_slice, theirs.worst_slice)
        if samples is calibration:
            assert ours.worst is not None and theirs.worst is not None
            assert ours.worst.sqnr >= theirs.worst.sqnr - slack, (ours.worst, theirs.worst)
