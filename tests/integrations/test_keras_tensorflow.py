"""npuc.keras.compile and npuc.tensorflow.compile: callables with the arguments and results of the original."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import npuc
from npuc import native
from npuc.calib.sources import open_data
from npuc.errors import InputDataError, MissingExtraError, UsageError
from npuc.flow import compile_network, network_to_quantize, quantize_on_data
from npuc.runtime import Runner
from npuc.target import load_target
from support import judges
from support.judges.tf_models import judge_python
from support.paths import ROOT, SHARED


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_live_models(backend: str) -> None:
    packages = Path(onnxruntime.__file__).parents[1]
    done = subprocess.run(
        [
            judge_python(),
            str(Path(judges.__file__).with_name("keras_session.py")),
            str(packages),
            str(SHARED),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "PYTHONPATH": str(ROOT / "src"),
            "NPUC_LIBRARY": str(
                native.find()
            ),  # an editable installation has it in the environment, not beside the sources
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert 0 < figures["sequential"] < 0.05 and figures["share"] == 1.0
    assert figures["tensor"] and figures["saved"]
    assert figures["trained"] < 1e-5
    assert 0 < figures["several"] < 0.05
    assert 0 < figures["lambda"] < 0.1 and "Lambda" in figures["way"]
    kind, unbuilt, empty, shape, option = figures["mistakes"]
    assert "takes a Keras model, not str" in kind and "no weights yet" in unbuilt
    assert "no calibration data" in empty and "samples of shape [4], not [5]" in shape
    assert "Did you mean 'target'?" in option
    if backend == "tensorflow":
        assert figures.get("resnet8", True)
        assert 0 < figures["saved_model"] < 0.05 and figures["saved_again"]
        assert figures["compared"] == "compared with TensorFlow on a sample"


def test_without_keras_the_message_says_so() -> None:
    with pytest.raises(MissingExtraError, match="Keras is not installed"):
        npuc.keras.compile(object(), [])


def test_a_saved_model_without_tensorflow(shared: Path, tmp_path: Path) -> None:
    folder = shared / "models/tensorflow/kws_savedmodel"
    data = np.random.default_rng(0).normal(0, 20, (6, 49, 10, 1)).astype(np.float32)
    compiled = npuc.tensorflow.compile(folder, data, target="edge-4t", method="max", level=0)
    target = load_target("edge-4t")
    graph = network_to_quantize(folder)
    source = open_data(graph, [{"input_1": data[row : row + 1]} for row in range(len(data))])
    quantized, _ = quantize_on_data(graph, source, target=target, method="max")
    runner = Runner(compile_network(quantized.graph, target).model)
    wanted = runner.run([data])
    found = compiled(input_1=data)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
    compiled.save(tmp_path / "kws.npu")
    again = npuc.tensorflow.load(tmp_path / "kws.npu")
    np.testing.assert_array_equal(next(iter(again(data).values())), next(iter(found.values())))
    assert compiled.report.npu_share > 0.9 and "not compared with TensorFlow" in str(compiled.report)
    with pytest.raises(InputDataError, match="compiled for other arguments"):
        compiled(sound=data)
    with pytest.raises(InputDataError, match="takes shape"):
        compiled(input_1=data[:, :40])
    with pytest.raises(UsageError, match="a sample has sound"):
        npuc.tensorflow.compile(folder, [{"sound": data}])
