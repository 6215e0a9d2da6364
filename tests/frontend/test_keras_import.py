"""Keras files, written by hand and judged by NumPy: layer rules, dialects, weights, options, and what is refused."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import (
    DynamicShapeError,
    FileFormatError,
    InvalidModelError,
    MissingExtraError,
    UnknownTensorError,
    UnsupportedOpError,
    UsageError,
)
from npuc.frontend.keras import import_keras
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, shape_of, top
from support.networks.keras_files import chain, functional, layer, source, write_h5, write_keras


def normal(*sizes: int) -> Array:
    """Random numbers."""
    return np.random.default_rng(sum(sizes)).normal(size=sizes).astype(np.float32)


def run(graph: Graph, *arrays: Array) -> list[Array]:
    """The outputs in order."""
    feed = {port.name: array for port, array in zip(graph.inputs, arrays, strict=True)}
    found = FloatEngine(graph, threads=1).run(feed)
    return [found[port.name] for port in graph.outputs]


def one(folder: Path, kind: str, x: Array, weights: list[Array] | None = None, /, **config: Any) -> Array:
    """A layer by itself, on one input."""
    model = chain(source(*x.shape[1:], dtype=str(x.dtype)), layer(kind, "y", **config))
    path = write_h5(folder / "m.h5", model, {"y": weights or []}, config.pop("version", "2.4.0"))
    return run(import_keras(path), x)[0]


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)"""
    return np.asarray(1 / (1 + np.exp(-x)))


@pytest.mark.parametrize("form", ["h5", "keras"])
def test_dense_layers_chain(tmp_path: Path, form: str) -> None:
    a, b, c, d = normal(5, 4), normal(4), normal(4, 3), normal(3)
    model = chain(
        source(5),
        layer("Dense", "one", units=4, activation="relu"),
        layer("Dropout", "drop", rate=0.5),
        layer("Dense", "two", units=3, activation="sigmoid"),
    )
    write = write_h5 if form == "h5" else write_keras
    graph = import_keras(write(tmp_path / f"m.{form}", model, {"one": [a, b], "two": [c, d]}))
    x = normal(1, 5)
    np.testing.assert_allclose(run(graph, x)[0], sigmoid(np.maximum(x @ a + b, 0) @ c + d), rtol=1e-5)
    assert [port.name for port in graph.outputs] == ["two"] and graph.find("one") is not None


def test_a_depthwise_convolution_with_several_results_a_channel(tmp_path: Path) -> None:
    x, kernel, bias = normal(1, 5, 5, 2), normal(3, 3, 2, 3), normal(6)
    found = one(tmp_path, "DepthwiseConv2D", x, [kernel, bias], strides=[1, 1], padding="valid")
    wanted = np.zeros((1, 3, 3, 6), np.float32)
    for i in range(3):
        for j in range(3):
            for channel in range(6):
                window = x[0, i : i + 3, j : j + 3, channel // 3]
                wanted[0, i, j, channel] = (window * kernel[:, :, channel // 3, channel % 3]).sum() + bias[
                    channel
                ]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_channels_first_gives_the_same_picture(tmp_path: Path) -> None:
    x, kernel = normal(1, 6, 5, 3), normal(3, 3, 3, 4)
    settings: dict[str, Any] = {"use_bias": False, "strides": [2, 2], "padding": "same"}
    last = one(tmp_path, "Conv2D", x, [kernel], **settings)
    first = one(
        tmp_path, "Conv2D", x.transpose(0, 3, 1, 2).copy(), [kernel], data_format="channels_first", **settings
    )
    np.testing.assert_allclose(first.transpose(0, 2, 3, 1), last, rtol=1e-5)
    flat = one(tmp_path, "Flatten", x.transpose(0, 3, 1, 2).copy(), data_format="channels_first")
    np.testing.assert_array_equal(flat, x.reshape(1, -1))


def test_pools_and_borders(tmp_path: Path) -> None:
    x = normal(1, 4, 6, 2)
    blocks = x.reshape(1, 2, 2, 3, 2, 2)
    np.testing.assert_allclose(one(tmp_path, "MaxPooling2D", x, pool_size=[2, 2]), blocks.max((2, 4)))
    np.testing.assert_allclose(
        one(tmp_path, "AveragePooling2D", x, pool_size=[2, 2]), blocks.mean((2, 4)), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(one(tmp_path, "GlobalMaxPooling2D", x), x.max((1, 2)))
    padded = np.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0)))
    np.testing.assert_array_equal(one(tmp_path, "ZeroPadding2D", x, padding=[[1, 2], [0, 3]]), padded)
    np.testing.assert_array_equal(one(tmp_path, "Cropping2D", x, cropping=[[1, 0], [2, 1]]), x[:, 1:, 2:-1])
    np.testing.assert_array_equal(one(tmp_path, "UpSampling2D", x, size=[2, 3]), x.repeat(2, 1).repeat(3, 2))


@pytest.mark.parametrize(("scale", "center"), [(False, True), (0, 1)])
def test_batch_normalization_without_scale(tmp_path: Path, scale: Any, center: Any) -> None:
    """Some writers put numbers for truth values."""
    x, beta, mean = normal(1, 3, 3, 4), normal(4), normal(4)
    variance = np.abs(normal(4)) + 0.5
    found = one(
        tmp_path,
        "BatchNormalization",
        x,
        [beta, mean, variance],
        axis=[3],
        scale=scale,
        center=center,
        epsilon=0.01,
    )
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance + 0.01) + beta, rtol=1e-4, atol=1e-5)


def _lstm(x: Array, kernel: Array, recurrent: Array, bias: Array) -> Array:
    """All states of an LSTM of Keras, whose gates are input, forget, cell, output."""
    units = recurrent.shape[0]
    h = c = np.zeros((x.shape[0], units), np.float32)
    states = []
    for step in range(x.shape[1]):
        i, f, g, o = np.split(x[:, step] @ kernel + h @ recurrent + bias, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states, 1)


def test_lstm_forwards_backwards_and_both(tmp_path: Path) -> None:
    x, kernel, recurrent, bias = normal(1, 5, 3), normal(3, 8), normal(2, 8), normal(8)
    weights = [kernel, recurrent, bias]
    settings: dict[str, Any] = {"units": 2, "return_sequences": True}
    forwards, backwards = _lstm(x, *weights), _lstm(x[:, ::-1], *weights)
    np.testing.assert_allclose(one(tmp_path, "LSTM", x, weights, **settings), forwards, rtol=1e-4, atol=1e-6)
    found = one(tmp_path, "LSTM", x, weights, go_backwards=True, **settings)
    np.testing.assert_allclose(found, backwards, rtol=1e-4, atol=1e-6)
    inner = {"class_name": "LSTM", "config": {"name": "i", **settings}}
    both = one(tmp_path, "Bidirectional", x, weights * 2, layer=inner, merge_mode="ave")
    np.testing.assert_allclose(both, (forwards + backwards[:, ::-1]) / 2, rtol=1e-4, atol=1e-6)


def test_gru_before_and_after_the_reset(tmp_path: Path) -> None:
    x, kernel, recurrent, bias = normal(1, 4, 3), normal(3, 6), normal(2, 6), normal(2, 6)
    for after in (True, False):
        b = bias if after else bias[:1]
        h = np.zeros((1, 2), np.float32)
        for step in range(4):
            xz, xr, xh = np.split(x[:, step] @ kernel + b[0], 3, axis=1)
            hz, hr, hh = np.split(h @ recurrent + (b[1] if after else 0), 3, axis=1)
            z, r = sigmoid(xz + hz), sigmoid(xr + hr)
            candidate = np.tanh(xh + (r * hh if after else (r * h) @ recurrent[:, 4:]))
            h = z * h + (1 - z) * candidate
        found = one(tmp_path, "GRU", x, [kernel, recurrent, b if after else b[0]], reset_after=after)
        np.testing.assert_allclose(found, h, rtol=1e-4, atol=1e-6)


def test_the_hard_sigmoid_is_that_of_the_version(tmp_path: Path) -> None:
    x = normal(1, 9)
    for version, slope in (("2.15.0", 0.2), ("3.5.0", 1 / 6)):
        model = chain(source(9), layer("Activation", "y", activation="hard_sigmoid"))
        graph = import_keras(write_h5(tmp_path / "m.h5", model, {}, version))
        np.testing.assert_allclose(run(graph, x)[0], np.clip(slope * x + 0.5, 0, 1), atol=1e-6)


def test_shared_layers_and_several_ports(tmp_path: Path) -> None:
    kernel = normal(3, 3)
    shared = layer("Dense", "d", "a", use_bias=False, activation="linear")
    shared["inbound_nodes"] = [[["a", 0, 0, {}]], [["b", 0, 0, {}]]]
    total = layer("Subtract", "s")
    total["inbound_nodes"] = [[["d", 0, 0, {}], ["d", 1, 0, {}]]]
    model = functional([source(3, name="a"), source(3, name="b"), shared, total], ["s", "d"])
    path = write_h5(tmp_path / "m.h5", model, {"d": [kernel]})
    a, b = normal(1, 3), normal(1, 3) + 1
    first, second = run(import_keras(path), a, b)
    np.testing.assert_allclose(first, (a - b) @ kernel, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(second, a @ kernel, rtol=1e-5)
    fixed = import_keras(path, ImportOptions(constants={"b": "0.5"}))
    assert [port.name for port in fixed.inputs] == ["a"]
    np.testing.assert_allclose(run(fixed, a)[0], (a - 0.5) @ kernel, rtol=1e-4, atol=1e-6)


def test_models_inside_models_keep_their_names(tmp_path: Path) -> None:
    inner = chain(layer("Dense", "deep", use_bias=False, activation="tanh"))
    entry = {
        **inner,
        "name": "inner",
        "config": {**inner["config"], "name": "inner"},
        "inbound_nodes": [[["x", 0, 0, {}]]],
    }
    model = functional([source(3), entry], ["inner"])
    path = tmp_path / "m.h5"
    write_h5(path, model, {"inner": []})
    kernel = normal(3, 2)
    with h5py.File(path, "a") as file:
        group = file["model_weights/inner"]
        group.attrs["weight_names"] = [b"deep/kernel:0"]
        group["deep/kernel:0"] = kernel
    graph = import_keras(path)
    np.testing.assert_allclose(run(graph, normal(1, 3))[0], np.tanh(normal(1, 3) @ kernel), rtol=1e-5)
    assert graph.find("inner/deep") is not None
    cut = import_keras(path, ImportOptions(outputs=("inner/deep",)))
    assert [port.name for port in cut.outputs] == ["inner/deep"]
    begun = import_keras(path, ImportOptions(inputs=("inner/deep",)))
    assert [port.name for port in begun.inputs] == ["inner/deep"]


def test_functions_of_tensorflow_that_keras_2_wrote_by_name(tmp_path: Path) -> None:
    add = layer("TFOpLambda", "tf.math.add", function="math.add")
    add["inbound_nodes"] = [["x", 0, 0, {"y": 3.0, "name": None}]]
    relu = layer("TFOpLambda", "tf.nn.relu6", function="nn.relu6")
    relu["inbound_nodes"] = [["tf.math.add", 0, 0, {"name": None}]]
    mul = layer("TFOpLambda", "tf.math.multiply", function="math.multiply")
    mul["inbound_nodes"] = [["tf.nn.relu6", 0, 0, {"y": ["x", 0, 0], "name": None}]]
    graph = import_keras(
        write_h5(tmp_path / "m.h5", functional([source(5), add, relu, mul], ["tf.math.multiply"]), {})
    )
    x = 4 * normal(1, 5)
    np.testing.assert_allclose(run(graph, x)[0], np.clip(x + 3, 0, 6) * x, rtol=1e-5)


def test_attention_with_its_value_as_a_keyword(tmp_path: Path) -> None:
    q, k, v, o = normal(4, 2, 3), normal(4, 2, 3) + 0.1, normal(4, 2, 3) - 0.1, normal(2, 3, 4)
    attend = layer("MultiHeadAttention", "a", num_heads=2, key_dim=3, use_bias=False)
    attend["inbound_nodes"] = [[["x", 0, 0, {"value": ["y", 0, 0]}]]]
    model = functional([source(5, 4), source(6, 4, name="y"), attend], ["a"])
    graph = import_keras(write_h5(tmp_path / "m.h5", model, {"a": [q, k, v, o]}))
    x, y = normal(1, 5, 4), normal(1, 6, 4)
    heads = [np.einsum("bsf,fhk->bhsk", tensor, kernel) for tensor, kernel in ((x, q), (y, k), (y, v))]
    scores = np.einsum("bhqk,bhsk->bhqs", heads[0], heads[1]) / np.sqrt(3)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    wanted = np.einsum("bhqs,bhsk,hkf->bqf", weights, heads[2], o)
    np.testing.assert_allclose(run(graph, x, y)[0], wanted, rtol=1e-4, atol=1e-5)


def test_keras_1_wrote_sequences_as_lists(tmp_path: Path) -> None:
    first = layer("Dense", "d", output_dim=2, activation="relu", batch_input_shape=[None, 3])
    model = {"class_name": "Sequential", "config": [first, layer("Activation", "a", activation="tanh")]}
    graph = import_keras(write_h5(tmp_path / "m.h5", model, {"d": [normal(3, 2), normal(2)]}, "1.2.2"))
    wanted = np.tanh(np.maximum(normal(1, 3) @ normal(3, 2) + normal(2), 0))
    np.testing.assert_allclose(run(graph, normal(1, 3))[0], wanted, rtol=1e-5, atol=1e-6)


def test_cuts_and_shapes(tmp_path: Path) -> None:
    model = chain(source(None, 3), layer("Dense", "d", use_bias=False), layer("ReLU", "r", max_value=1.0))
    path = write_h5(tmp_path / "m.h5", model, {"d": [normal(3, 2)]})
    with pytest.raises(DynamicShapeError, match="--input-shape 'x=1,64,3'"):
        import_keras(path)
    graph = import_keras(path, ImportOptions(input_shapes={"x": (2, 4, 3)}, outputs=("d",)))
    assert shape_of(graph.outputs[0].value) == (2, 4, 2)
    tail = import_keras(path, ImportOptions(inputs=("d",), input_shapes={"d": (1, 5, 2)}))
    assert shape_of(tail.outputs[0].value) == (1, 5, 2)
    with pytest.raises(UsageError, match="axis 2 of 'x' is 3"):
        import_keras(path, ImportOptions(input_shapes={"x": (2, 4, 7)}))
    with pytest.raises(UnknownTensorError, match="Did you mean 'd'"):
        import_keras(path, ImportOptions(input_shapes={"x": (2, 4, 3)}, outputs=("dd",)))


def test_lambda_layers_are_refused(tmp_path: Path) -> None:
    code = {"class_name": "__lambda__", "config": {"code": "4wEAAAA=", "defaults": None, "closure": None}}
    for bad in (layer("Lambda", "y", function=code), layer("Dense", "y", units=2, activation=code)):
        model = chain(source(3), bad)
        with pytest.raises(UnsupportedOpError, match="never run"):
            import_keras(write_h5(tmp_path / "m.h5", model, {"y": [normal(3, 2), normal(2)]}))


def test_masks_that_matter_are_refused(tmp_path: Path) -> None:
    words = layer("Embedding", "e", mask_zero=True)
    weights = {"e": [normal(7, 3)], "l": [normal(3, 8), normal(2, 8), normal(8)]}
    heard = chain(source(4, dtype="int32"), words, layer("Dropout", "o"), layer("LSTM", "l", units=2))
    with pytest.raises(UnsupportedOpError, match="mask_zero=False"):
        import_keras(write_h5(tmp_path / "m.h5", heard, weights))
    unheard = chain(source(4, dtype="int32"), words, layer("Flatten", "f"))
    graph = import_keras(write_h5(tmp_path / "m.h5", unheard, weights))
    x = np.array([[1, 0, 6, 2]], np.int32)
    np.testing.assert_array_equal(run(graph, x)[0], normal(7, 3)[x].reshape(1, -1))


def test_an_unknown_layer_becomes_a_custom_op(tmp_path: Path) -> None:
    model = chain(source(3), layer("MyPackage>Wobble", "w", depth=2, mode="odd"))
    graph = import_keras(write_h5(tmp_path / "m.h5", model, {"w": [normal(3)]}))
    (op,) = [op for op in graph.ops if isinstance(op, top.Onnx)]
    assert op.domain == "npuc.keras" and op.op_type == "Wobble" and len(op.operands) == 2
    assert set(op.onnx_attributes) == {"depth", "mode"}
    assert any("Wobble" in note for note in graph.notes)


def test_what_a_user_may_get_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        file.create_group("model_weights")
    with pytest.raises(FileFormatError, match=r"model.save\('model.keras'\)"):
        import_keras(path)
    with pytest.raises(UnsupportedOpError, match="class of its own"):
        import_keras(write_h5(path, {"class_name": "MyModel", "config": {"units": 3}}, {}))
    with pytest.raises(InvalidModelError, match="it has 0 weights in the file, not 2"):
        import_keras(write_h5(path, chain(source(3), layer("Dense", "d")), {}))
    with pytest.raises(UnsupportedOpError, match="its activation 'swoosh'"):
        import_keras(write_h5(path, chain(source(3), layer("Activation", "d", activation="swoosh")), {}))
    loop = functional([source(3), layer("ReLU", "a", "b"), layer("ReLU", "b", "a")], ["b"])
    with pytest.raises(InvalidModelError, match="depends on itself"):
        import_keras(write_h5(path, loop, {}))
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "h5py":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"npuc\[keras\]"):
        import_keras(path)


def test_weights_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    model = chain(source(3), layer("Dense", "d", use_bias=False))
    first = write_h5(tmp_path / "m.h5", model, {"d": [normal(3, 2)]})
    second = write_h5(tmp_path / "w.h5", model, {"d": [np.ones((3, 2), np.float32)]})
    graph = import_keras(first, ImportOptions(weights=second))
    np.testing.assert_allclose(run(graph, np.ones((1, 3), np.float32))[0], [[3.0, 3.0]])


def test_sizes_that_a_model_fixes_can_be_replaced(tmp_path: Path) -> None:
    """A fully convolutional network takes pictures of any size, whatever size its file states."""
    kernel = normal(3, 3, 2, 4)
    model = chain(
        source(8, 8, 2), layer("Conv2D", "y", filters=4, kernel_size=[3, 3], padding="same", use_bias=False)
    )
    path = write_h5(tmp_path / "m.h5", model, {"y": [kernel]})
    graph = import_keras(path, ImportOptions(input_shapes={"x": (1, 12, 6, 2)}))
    assert run(graph, normal(1, 12, 6, 2))[0].shape == (1, 12, 6, 4)
    assert any("axis 1 of 'x' is 8 in the model, not 12, as asked" in note for note in graph.notes)
    dense = chain(source(8), layer("Dense", "y", units=3, use_bias=False))
    path = write_h5(tmp_path / "d.h5", dense, {"y": [normal(8, 3)]})
    with pytest.raises(
        UsageError, match="axis 1 of 'x' is 8 in the model, not 9, and its layers do not take that"
    ):
        import_keras(path, ImportOptions(input_shapes={"x": (1, 9)}))
