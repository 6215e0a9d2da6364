"""Networks from Keras files: trained, and written back as Keras weights that are the same float function."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import npuc
from npuc.arrays import Array
from npuc.cli.app import run_command
from npuc.engine import FloatEngine
from npuc.errors import MissingExtraError, TrainingError, UsageError
from npuc.flow import network_to_quantize
from npuc.frontend.keras.variables import read_variables
from npuc.ir import Graph, top
from npuc.runtime import Runner
from npuc.train.augmentation import augmented, padded
from npuc.train.keras import write_keras as write_back
from npuc.train.network import TrainableNetwork, before_softmax
from npuc.train.sparsity import sparsify
from support.networks.keras_files import chain, functional, layer, source, write_h5, write_keras

FORMS = {"h5": write_h5, "keras": write_keras}


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape) + len(shape)).normal(size=shape).astype(np.float32)


def norm(channels: int, *, zero: bool = False) -> list[Array]:
    """Gamma, beta, mean and variance."""
    gamma = 1 + 0.3 * normal(channels)
    if zero:
        gamma[1] = 0.0
    return [gamma, 0.1 * normal(channels), normal(channels + 1)[1:], 0.5 + normal(channels) ** 2]


def network(folder: Path, form: str, *, zero: bool = False, scale: bool = True) -> Path:
    """Every way in which weights change on import: folded batch norms, depthwise and separable kernels, a bias or none."""
    model = functional(
        [
            source(4, 4, 3),
            layer("Conv2D", "c", "x", kernel_size=[3, 3], filters=8, padding="same", use_bias=False),
            layer("BatchNormalization", "b", "c", axis=[3]),
            layer("ReLU", "r", "b"),
            layer("DepthwiseConv2D", "d", "r", kernel_size=[3, 3], padding="same"),
            layer("BatchNormalization", "e", "d", axis=[3], center=False),
            layer(
                "SeparableConv2D", "s", "e", kernel_size=[3, 3], filters=8, padding="same", activation="relu"
            ),
            layer("Add", "a", "s", "r"),
            layer("BatchNormalization", "n", "a", axis=[3], scale=scale),
            layer("GlobalAveragePooling2D", "g", "n"),
            layer("Dense", "y", "g", units=4, activation="softmax"),
        ],
        ["y"],
    )
    gamma, _, mean, variance = norm(8)
    weights = {
        "c": [normal(3, 3, 3, 8)],
        "b": norm(8, zero=zero),
        "d": [normal(3, 3, 8, 1), normal(8)],
        "e": [gamma, mean, variance],
        "s": [normal(3, 3, 8, 1), 0.2 * normal(1, 1, 8, 8), normal(8)],
        "n": norm(8)[0 if scale else 1 :],
        "y": [0.05 * normal(8, 4), normal(4)],
    }
    return FORMS[form](folder / f"m.{form}", model, weights)


def perturbed(graph: Graph) -> Graph:
    """The network after a step of some training."""
    module = TrainableNetwork(graph)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return module.to_graph()


def outputs(graph: Graph, images: Array) -> Array:
    engine = FloatEngine(graph)
    return np.concatenate([engine.run({"x": image[None]})["y"] for image in images])


@pytest.mark.parametrize(
    ("form", "zero"), [("h5", False), ("keras", True)], ids=["h5", "keras, a gamma is zero"]
)
def test_a_copy_is_the_trained_function(tmp_path: Path, form: str, zero: bool) -> None:
    path = network(tmp_path, form, zero=zero)
    trained = perturbed(network_to_quantize(path))
    copy = tmp_path / f"trained.{form}"
    write_back(path, trained, copy)
    images = normal(4, 4, 4, 3)
    expected = outputs(trained, images)
    np.testing.assert_allclose(outputs(network_to_quantize(copy), images), expected, rtol=1e-4, atol=1e-6)
    assert np.abs(outputs(network_to_quantize(path), images) - expected).max() > 1e-2
    # Statistics stay, so that Keras can go on training.
    old, new = read_variables(path), read_variables(copy)
    for mean in ("model_weights/b/b/w2:0", "model_weights/b/b/w3:0") if form == "h5" else ():
        np.testing.assert_array_equal(old[mean], new[mean])


def test_weights_that_no_variable_has_are_refused(tmp_path: Path) -> None:
    path = network(tmp_path, "h5", scale=False)
    graph = network_to_quantize(path)
    with pytest.raises(TrainingError, match=r"no variables of it give n \(operand 1\)"):
        write_back(path, perturbed(graph), tmp_path / "o.h5")
    other = perturbed(network_to_quantize(_wider(tmp_path)))
    with pytest.raises(TrainingError, match="shapes have changed"):
        write_back(path, other, tmp_path / "o.h5")
    with pytest.raises(UsageError, match=r"format \.h5"):
        write_back(path, graph, tmp_path / "o.keras")
    assert not (tmp_path / "o.h5").exists()


def _wider(folder: Path) -> Path:
    model = chain(source(3), layer("Dense", "y", units=5))
    return write_h5(folder / "wider.h5", model, {"y": [normal(3, 5), normal(5)]})


def test_a_layer_that_is_called_twice_stays_one(tmp_path: Path) -> None:
    model = functional(
        [source(3), layer("Dense", "d", "x", units=3), layer("Dense", "y", "d", units=3)], ["y"]
    )
    model["config"]["layers"][1]["inbound_nodes"].append([["d", 0, 0, {}]])
    model["config"]["layers"][2]["inbound_nodes"] = [[["d", 1, 0, {}]]]
    weights = {"d": [normal(3, 3), normal(3)], "y": [normal(3, 3), normal(3)]}
    path = write_h5(tmp_path / "m.h5", model, weights)
    trained = perturbed(network_to_quantize(path))
    write_back(path, trained, tmp_path / "o.h5")
    x = normal(2, 3)
    np.testing.assert_allclose(
        outputs(network_to_quantize(tmp_path / "o.h5"), x), outputs(trained, x), rtol=1e-4
    )


def test_qat_of_a_keras_file(tmp_path: Path) -> None:
    path = network(tmp_path, "keras")
    images = normal(64, 4, 4, 3)
    labels = np.arange(64) % 4
    qat = npuc.keras.prepare_qat(path, (images, labels), target="edge-4t")
    npuc.train.fit(
        qat.module,
        (images, labels),
        options=npuc.train.TrainingOptions(epochs=2, rate=0.05, batch=32, clip=1.0),
    )
    qat.write_back(tmp_path / "trained.keras")
    written = outputs(network_to_quantize(tmp_path / "trained.keras"), images)
    np.testing.assert_allclose(written, outputs(qat.module.to_float(), images), rtol=1e-4, atol=1e-6)
    program = qat.compile()
    with torch.no_grad():
        deployed = qat.module.eval()(torch.from_numpy(images[:4])).numpy()
    np.testing.assert_array_equal(Runner(program).run([images[:4]])["y"], deployed)
    # The written float network is what the integers approach.
    assert np.abs(written[:4] - deployed).max() < 0.15
    assert np.abs(written - outputs(network_to_quantize(path), images)).max() > 0.01


def test_qat_takes_a_keras_model(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match="Keras is not installed"):
        npuc.keras.prepare_qat(object(), normal(4, 4, 4, 3))
    onnx = tmp_path / "m.onnx"
    onnx.write_bytes(b"\x08\x08")
    with pytest.raises(UsageError, match="no Keras model"):
        npuc.keras.prepare_qat(onnx, normal(4, 4, 4, 3))


def test_the_command_writes_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy = network(tmp_path, "keras"), tmp_path / "t.keras"
    np.savez(tmp_path / "d.npz", x=normal(40, 4, 4, 3), labels=np.arange(40) % 4)
    words = ["train", "qat", str(path), "--data", str(tmp_path / "d.npz"), "--epochs", "1", "--batch", "20"]
    words += ["-o", str(tmp_path / "m.mlir")]
    assert run_command([*words, "--keras", str(copy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["keras"] == str(copy)
    assert read_variables(copy).keys() == read_variables(path).keys()
    assert run_command([*words, "--keras", str(tmp_path / "t.h5")]) == 2
    assert "format .keras" in capsys.readouterr().err


def test_sparse_weights_are_sparse_in_the_copy(tmp_path: Path) -> None:
    path, copy = network(tmp_path, "h5"), tmp_path / "s.h5"
    result = sparsify(network_to_quantize(path), pattern="2:4")
    write_back(path, result.graph, copy)
    shares = [np.mean(array == 0) for array in read_variables(copy).values() if array.shape == (1, 1, 8, 8)]
    assert shares == [0.5]


def test_a_loss_is_computed_before_the_softmax(tmp_path: Path) -> None:
    graph = network_to_quantize(network(tmp_path, "h5"))
    assert isinstance(graph.outputs[0].value.owner, top.Softmax)
    assert isinstance(before_softmax(graph).owner, top.MatMul)
    module = TrainableNetwork(graph).eval()
    images = torch.from_numpy(normal(2, 4, 4, 3))
    torch.testing.assert_close(module.logits(images).softmax(1), module(images))


def test_images_of_either_layout_are_cropped_alike() -> None:
    images, border = normal(3, 8, 8, 3), (1.0, 2.0, 3.0)
    second = np.ascontiguousarray(images.transpose(0, 3, 1, 2))

    def batch(array: Array) -> Array:
        whole = torch.from_numpy(padded(array, 2, border))
        return np.asarray(augmented(whole, 2, torch.Generator().manual_seed(3)).numpy())

    np.testing.assert_array_equal(batch(images).transpose(0, 3, 1, 2), batch(second))
    assert batch(images).shape == images.shape
