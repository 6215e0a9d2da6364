"""Every shared Keras and TensorFlow model, on real inputs, against TensorFlow, LiteRT, and the two modes of the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.engine import FloatEngine
from npuc.flow import ImportOptions, check_model, import_model
from npuc.frontend.formats import foreign
from npuc.frontend.keras.registry import supported as keras_layers
from npuc.frontend.sniff import describe_content
from npuc.frontend.tensorflow.registry import supported as tensorflow_ops
from npuc.ir import top
from support.judges.tf_models import MODELS, Array, cosine, judge_python, judged, path_of, require_equal_modes

_SAMPLES = 8


@pytest.mark.parametrize("name", MODELS)
def test_it_compiles_and_both_modes_agree(shared: Path, name: str) -> None:
    path, model = path_of(shared, name), MODELS[name]
    graph = import_model(path, model.options)
    assert not any(isinstance(op, top.Onnx) for op in graph.ops)
    require_equal_modes(graph, model.samples(shared, graph, 1)[0])


@pytest.mark.parametrize("name", ["resnet8", "vww"])
def test_the_tflite_twin_gives_the_same(shared: Path, name: str) -> None:
    path, model = path_of(shared, name), MODELS[name]
    graph = import_model(path, model.options)
    twin = import_model(shared / "models" / "tflite" / f"{name}_float.tflite")
    for sample in model.samples(shared, graph, _SAMPLES):
        (ours,) = FloatEngine(graph, threads=1).run(sample).values()
        (theirs,) = (
            FloatEngine(twin, threads=1).run({twin.inputs[0].name: next(iter(sample.values()))}).values()
        )
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.fixture(scope="module")
def verdicts(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Array, Array]]]:
    """What npuc and what TensorFlow give, for every model and sample, from one run of TensorFlow."""
    judge_python()
    folder = tmp_path_factory.mktemp("judge")
    jobs, ours = [], {}
    for name, model in MODELS.items():
        path = path_of(shared, name)
        graph = import_model(path, model.options)
        samples = model.samples(shared, graph, _SAMPLES)
        entries = {f"{i}/{key}": array for i, sample in enumerate(samples) for key, array in sample.items()}
        np.savez(folder / f"{name}.in.npz", **entries)
        jobs.append(
            {
                "model": str(path),
                "inputs": str(folder / f"{name}.in.npz"),
                "outputs": str(folder / f"{name}.npz"),
                "fetch": [port.name for port in graph.outputs],
            }
        )
        engine = FloatEngine(graph, threads=1)
        ours[name] = [next(iter(engine.run(sample).values())) for sample in samples]
    judged(jobs, folder)
    found = {}
    for name, results in ours.items():
        theirs = np.load(folder / f"{name}.npz")
        by_sample = {int(key.partition("/")[0]): theirs[key] for key in theirs}
        found[name] = [(result, by_sample[i]) for i, result in enumerate(results)]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_tensorflow_gives_the_same(verdicts: dict[str, list[tuple[Array, Array]]], name: str) -> None:
    pairs = verdicts[name]
    assert len(pairs) == _SAMPLES
    assert min(cosine(a, b) for a, b in pairs) >= 0.99999


def test_the_check_says_that_it_could_not_be_made(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "keras", None)
    path = path_of(shared, "ad")
    report = check_model(path, import_model(path), ImportOptions())
    assert not report.passed and "npuc[tensorflow]" in report.impossible


def test_files_are_known_by_their_content(shared: Path) -> None:
    kinds = {name: describe_content(path_of(shared, name)).kind for name in MODELS}
    assert kinds == {
        name: "keras" if model.path.startswith("keras") else "tensorflow" for name, model in MODELS.items()
    }
    assert describe_content(path_of(shared, "kws_savedmodel") / "saved_model.pb").kind == "tensorflow"
    assert foreign(path_of(shared, "cnn_s"))[1].layout == "nhwc"


def test_what_is_supported_says_its_limits() -> None:
    layers, ops = keras_layers(), tensorflow_ops()
    assert {"Conv2D", "LSTM", "MultiHeadAttention", "ops.Add", "Lambda"} <= set(layers)
    assert {"Conv2D", "FusedBatchNormV3", "While", "StatefulPartitionedCall", "TensorListStack"} <= set(ops)
    assert len(ops) >= 120 and len(layers) >= 110
    assert all(limits for limits in (*layers.values(), *ops.values()))
