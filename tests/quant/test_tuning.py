"""Quantizing with an eye on the result: never further from float than the plain way on the samples it looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npuc.calib.calibration import calibrate
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import import_model, quantize_on_data
from npuc.quant import quantize


def test_the_tuned_network_is_no_worse_than_the_plain_one(root: Path) -> None:
    graph = import_model(root / "examples/digits.onnx")
    samples = np.load(root / "examples/digits_samples.npz")
    images, labels = samples["image"], samples["label"]
    calibration = [{"image": image[None]} for image in images[:40]]
    tuned, table = quantize_on_data(graph, open_data(graph, calibration), threads=1)
    plain = quantize(graph, {name: (e.min, e.max) for name, e in calibrate(graph, calibration).items()})
    exact, first, second = FloatEngine(graph, threads=1), IntegerEngine(tuned.graph), IntegerEngine(plain)
    errors = np.zeros(2)
    hits = 0
    for image, label in zip(images[40:], labels[40:], strict=True):
        inputs = {"image": image[None]}
        wanted = exact.run(inputs)["logits"]
        got = first.run(inputs)["logits"]
        errors += [np.square(got - wanted).sum(), np.square(second.run(inputs)["logits"] - wanted).sum()]
        hits += int(got.argmax() == label)
    assert hits >= 0.97 * len(labels[40:])
    assert errors[0] <= 1.1 * errors[1]
    assert set(table) >= {"image", "logits"}
