"""Live Keras models and SavedModels through npuc, in the Python of the judge: it prints one JSON object of figures.

    keras_session.py SITE_PACKAGES SHARED

`SITE_PACKAGES` has what npuc needs and the judge's Python has not. `KERAS_BACKEND` chooses the backend.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(sys.argv[1])

import keras
import numpy as np

import npuc
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine
from npuc.flow import compile_network, network_to_quantize, quantize_on_data
from npuc.runtime import Runner
from npuc.target import load_target

SHARED = Path(sys.argv[2])
LAYERS = keras.layers
RANDOM = np.random.default_rng(0)
FIGURES: dict[str, Any] = {}


def images(count: int, size: int = 8) -> Any:
    return RANDOM.uniform(size=(count, size, size, 3)).astype(np.float32)


def error(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def sequential() -> None:
    model = keras.Sequential(
        [
            LAYERS.Input((8, 8, 3)),
            LAYERS.Conv2D(4, 3, activation="relu"),
            LAYERS.BatchNormalization(),
            LAYERS.Flatten(),
            LAYERS.Dense(5),
        ]
    )
    data = images(32)
    compiled = npuc.keras.compile(model, data, target="edge-4t", level=0)
    FIGURES["sequential"] = error(compiled.predict(data[:3]), model.predict(data[:3], verbose=0))
    FIGURES["tensor"] = isinstance(
        compiled(keras.ops.convert_to_tensor(data[:2])), type(keras.ops.convert_to_tensor(data[:2]))
    )
    FIGURES["share"] = compiled.report.npu_share
    with tempfile.TemporaryDirectory() as folder:
        compiled.save(f"{folder}/model.npu")
        again = npuc.keras.load(f"{folder}/model.npu")
        FIGURES["saved"] = bool(np.array_equal(again.predict(data), compiled.predict(data)))


def several() -> None:
    left, right = keras.Input((6,), name="second_by_name"), keras.Input((6,), name="first_by_name")
    results = {"u": LAYERS.Dense(3)(left), "v": LAYERS.Dense(2)(LAYERS.Concatenate()([left, right]))}
    model = keras.Model([left, right], results)
    data = [[RANDOM.uniform(size=(1, 6)).astype(np.float32) for _ in range(2)] for _ in range(32)]
    compiled = npuc.keras.compile(model, data, level=0)
    wanted = model.predict(data[0], verbose=0)
    found = compiled.predict(data[0])
    FIGURES["several"] = max(error(found[name], wanted[name]) for name in wanted)


def code() -> None:
    model = keras.Sequential(
        [LAYERS.Input((8, 8, 3)), LAYERS.Lambda(lambda x: x * 2), LAYERS.Flatten(), LAYERS.Dense(5)]
    )
    data = images(16)
    compiled = npuc.keras.compile(model, [(data[:8], np.zeros(8)), (data[8:], np.zeros(8))], level=0)
    FIGURES["lambda"] = error(compiled.predict(data[:3]), model.predict(data[:3], verbose=0))
    FIGURES["way"] = compiled.report.notes[0]


def mistakes() -> None:
    words = []
    model = keras.Sequential([LAYERS.Input((4,)), LAYERS.Dense(2)])
    for call in (
        lambda: npuc.keras.compile("model.keras", images(2)),
        lambda: npuc.keras.compile(keras.Sequential([LAYERS.Dense(2)]), images(2)),
        lambda: npuc.keras.compile(model, []),
        lambda: npuc.keras.compile(model, np.zeros((3, 5), np.float32)),
        lambda: npuc.keras.compile(model, np.zeros((3, 4), np.float32), tarjet="edge-4t"),
    ):
        try:
            call()
            words.append("")
        except Exception as reason:
            words.append(f"{type(reason).__name__}: {reason}")
    FIGURES["mistakes"] = words


def shared() -> None:
    file = SHARED / "models/keras/resnet8.h5"
    if not file.exists() or keras.backend.backend() != "tensorflow":
        return
    model = keras.models.load_model(file, compile=False)
    data = 255 * images(16, 32)
    compiled = npuc.keras.compile(model, data, target="edge-4t")
    target = load_target("edge-4t")
    graph = network_to_quantize(file)
    source = open_data(graph, [{graph.inputs[0].name: data[row : row + 1]} for row in range(len(data))])
    runner = Runner(compile_network(quantize_on_data(graph, source, target=target)[0].graph, target).model)
    FIGURES["resnet8"] = bool(np.array_equal(compiled.predict(data), next(iter(runner.run([data]).values()))))


def saved_model() -> None:
    if keras.backend.backend() != "tensorflow":
        return
    model = keras.Sequential(
        [LAYERS.Input((8, 8, 3)), LAYERS.Conv2D(4, 3), LAYERS.Flatten(), LAYERS.Dense(5)]
    )
    data = images(16)
    with tempfile.TemporaryDirectory() as folder:
        model.export(f"{folder}/saved", verbose=False)
        compiled = npuc.tensorflow.compile(f"{folder}/saved", data, level=0)
        [found] = compiled(data[:3]).values()
        FIGURES["saved_model"] = error(found, model.predict(data[:3], verbose=0))
        FIGURES["compared"] = compiled.report.notes[0]
        compiled.save(f"{folder}/model.npu")
        [again] = npuc.tensorflow.load(f"{folder}/model.npu")(data[:3]).values()
        FIGURES["saved_again"] = bool(np.array_equal(again, found))


def trained() -> None:
    """Quantization-aware training of a live model, whose weights go back to Keras."""
    model = keras.Sequential(
        [
            LAYERS.Input((8, 8, 3)),
            LAYERS.Conv2D(8, 3, use_bias=False),
            LAYERS.BatchNormalization(),
            LAYERS.ReLU(),
            LAYERS.GlobalAveragePooling2D(),
            LAYERS.Dense(4, activation="softmax"),
        ]
    )
    data = images(32)
    labelled = data, np.arange(32) % 4
    qat = npuc.keras.prepare_qat(model, labelled, target="edge-4t")
    npuc.train.fit(qat.module, labelled, options=npuc.train.TrainingOptions(epochs=2, rate=0.05, batch=16))
    ours = FloatEngine(qat.module.to_float())
    name = qat.module.plan.source.inputs[0].name
    rows = [next(iter(ours.run({name: data[row : row + 1]}).values())) for row in range(4)]
    FIGURES["trained"] = error(np.concatenate(rows), qat.to_keras().predict(data[:4], verbose=0))


for part in (sequential, several, code, mistakes, shared, saved_model, trained):
    keras.utils.set_random_seed(0)
    part()
print(json.dumps(FIGURES))
