"""Networks built with Keras and random weights, saved in every form that it has; run by a Python that has TensorFlow.

    python keras_zoo.py FOLDER [NAME ...]

writes FOLDER/NAME.keras, NAME.h5, NAME (a SavedModel) and NAME.npz with inputs and the outputs that Keras gives.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np
from keras import layers as L

NETWORKS: dict[str, Callable[[], Any]] = {}


def network(build: Callable[[], Any]) -> Callable[[], Any]:
    """Add a builder."""
    NETWORKS[build.__name__] = build
    return build


@network
def residual() -> Any:
    x = inputs = L.Input((16, 16, 3))
    x = L.Conv2D(8, 3, padding="same", activation="relu")(x)
    y = L.BatchNormalization()(L.Conv2D(8, 3, padding="same", use_bias=False)(x))
    x = L.Activation("relu")(L.Add()([x, y]))
    x = L.MaxPooling2D(3, 2, padding="same")(x)
    return keras.Model(inputs, L.Dense(5, activation="softmax")(L.GlobalAveragePooling2D()(x)))


@network
def sequential() -> Any:
    return keras.Sequential(
        [
            L.Input((20, 12, 2)),
            L.Rescaling(1 / 127.5, offset=-1.0),
            L.ZeroPadding2D(((1, 0), (2, 3))),
            L.SeparableConv2D(6, 3, strides=2, padding="same", activation="relu6"),
            L.Cropping2D(1),
            L.DepthwiseConv2D(3, depth_multiplier=2, padding="same", dilation_rate=2),
            L.LeakyReLU(0.1),
            L.AveragePooling2D(2, padding="same"),
            L.Dropout(0.5),
            L.Flatten(),
            L.Dense(4, activation="tanh"),
        ]
    )


@network
def inverted_residual() -> Any:
    x = inputs = L.Input((12, 12, 8))
    y = L.ReLU(6.0)(L.BatchNormalization()(L.Conv2D(24, 1, use_bias=False)(x)))
    y = L.ReLU(6.0)(
        L.BatchNormalization(scale=False)(L.DepthwiseConv2D(3, padding="same", use_bias=False)(y))
    )
    s = L.GlobalAveragePooling2D(keepdims=True)(y)
    s = L.Conv2D(24, 1, activation="sigmoid")(L.Conv2D(6, 1, activation="swish")(s))
    y = L.BatchNormalization(center=False)(L.Conv2D(8, 1, use_bias=False)(L.Multiply()([y, s])))
    return keras.Model(inputs, L.Add()([x, y]))


@network
def unet() -> Any:
    x = inputs = L.Input((16, 16, 1))
    a = L.Conv2D(4, 3, padding="same", activation="elu")(x)
    b = L.Conv2D(8, 3, strides=2, padding="same", activation="selu")(a)
    c = L.Conv2DTranspose(4, 3, strides=2, padding="same")(b)
    d = L.UpSampling2D(2, interpolation="bilinear")(b)
    e = L.UpSampling2D(2)(b)
    f = L.Conv2DTranspose(3, 2, strides=2, padding="valid", activation="relu")(b)
    g = L.Conv2DTranspose(2, 5, strides=3, padding="valid", output_padding=1)(b)
    joined = L.Concatenate()([a, c, d, e, f])
    return keras.Model(inputs, [L.Conv2D(1, 1, activation="sigmoid")(joined), g])


@network
def lstm() -> Any:
    x = inputs = L.Input((7, 5))
    x = L.LSTM(6, return_sequences=True)(x)
    x = L.Bidirectional(L.LSTM(4, return_sequences=True), merge_mode="sum")(x)
    y, h, c = L.LSTM(3, return_state=True, go_backwards=True)(x)
    return keras.Model(inputs, [y, L.Concatenate()([h, c])])


@network
def gru() -> Any:
    x = inputs = L.Input((6, 4))
    x = L.Bidirectional(L.GRU(5, return_sequences=True))(x)
    x = L.GRU(4, reset_after=False, return_sequences=True, go_backwards=True)(x)
    x = L.SimpleRNN(3, activation="relu", return_sequences=True)(x)
    x = L.TimeDistributed(L.Dense(4, activation="tanh"))(x)
    return keras.Model(inputs, L.GRU(2, recurrent_activation="hard_sigmoid")(x))


@network
def encoder() -> Any:
    x = inputs = L.Input((6,), dtype="int32")
    x = L.Embedding(11, 8)(x)
    y = L.LayerNormalization()(x)
    x = L.Add()([x, L.MultiHeadAttention(2, 4)(y, y)])
    y = L.Dense(16, activation="gelu")(L.LayerNormalization(epsilon=1e-6)(x))
    x = L.Add()([x, L.Dense(8)(y)])
    x = L.MultiHeadAttention(2, 3, value_dim=5, use_bias=False)(x, y, use_causal_mask=True)
    return keras.Model(inputs, L.GlobalMaxPooling1D()(x))


@network
def vit() -> Any:
    x = inputs = L.Input((16, 16, 3))
    x = L.Reshape((16, 8))(L.Conv2D(8, 4, strides=4)(x))
    x = L.Add()([x, L.Attention(use_scale=True)([x, x])])
    x = x + L.AdditiveAttention()([x, x])
    return keras.Model(inputs, L.Dense(3)(L.GlobalAveragePooling1D()(x)))


@network
def mixer() -> Any:
    x = inputs = L.Input((8, 6))
    y = L.Permute((2, 1))(L.LayerNormalization()(x))
    y = L.Permute((2, 1))(L.Dense(8, activation="gelu")(y))
    x = L.Add()([x, y])
    return keras.Model(inputs, L.UnitNormalization()(L.Dense(6, activation="mish")(x)))


@network
def tcn() -> Any:
    x = inputs = L.Input((20, 3))
    for rate in (1, 2, 4):
        x = L.Conv1D(6, 3, padding="causal", dilation_rate=rate, activation="relu")(x)
    x = L.SeparableConv1D(4, 3, padding="same")(L.ZeroPadding1D((1, 2))(x))
    x = L.MaxPooling1D(2)(L.UpSampling1D(2)(L.Cropping1D(1)(x)))
    x = L.Conv1DTranspose(3, 4, strides=2, padding="same")(x)
    return keras.Model(inputs, L.AveragePooling1D(3, 2, padding="same")(x))


@network
def merging() -> Any:
    a, b = L.Input((4, 6), name="left"), L.Input((4, 6), name="right")
    shared = L.Dense(6, activation="softsign")
    c, d = shared(a), shared(b)
    outputs = [
        L.Average()([c, d]),
        L.Maximum()([c, d]),
        L.Minimum()([c, d]),
        L.Subtract()([c, d]),
        L.Dot(axes=2)([c, d]),
        L.Dot(axes=(1, 1), normalize=True)([a, b]),
        L.Concatenate(axis=1)([c, d]),
    ]
    return keras.Model([a, b], outputs)


@network
def nested() -> Any:
    inner = keras.Sequential(
        [L.Input((8,)), L.Dense(5, activation="relu"), L.BatchNormalization()], name="inner"
    )
    h = L.Input((5,))
    head = keras.Model(h, [L.Dense(3)(h), L.Dense(2)(h)], name="head")
    x = inputs = L.Input((8,))
    y = inner(x)
    z = inner(L.Activation("tanh")(x))
    p, q = head(L.Add()([y, z]))
    return keras.Model(inputs, [q, L.RepeatVector(3)(p)])


@network
def normalizing() -> Any:
    x = inputs = L.Input((6, 6, 8))
    x = L.Normalization(mean=[0.1] * 8, variance=[0.5] * 8)(x)
    x = L.GroupNormalization(4)(x)
    x = L.PReLU(shared_axes=[1, 2])(L.Conv2D(8, 3)(x))
    x = L.LayerNormalization(axis=[1, 2, 3])(x)
    x = L.ReLU(max_value=2.0, negative_slope=0.1, threshold=0.2)(x)
    x = L.Resizing(7, 5)(x)
    x = L.Resizing(3, 9, interpolation="nearest")(x)
    return keras.Model(inputs, L.Softmax(axis=-1)(L.ELU(0.5)(x)))


@network
def operations() -> Any:
    x = inputs = L.Input((4, 6))
    y = (x * 2.0 - 1.0) / 3.0
    y = keras.ops.relu(y) + keras.ops.transpose(keras.ops.reshape(x, (-1, 6, 4)), (0, 2, 1))
    y = keras.ops.concatenate([y, keras.ops.expand_dims(keras.ops.mean(x, axis=1), 1)], axis=1)
    y = keras.ops.softmax(y[:, 1:, ::2], axis=-1)
    return keras.Model(inputs, keras.ops.sum(y * y, axis=2, keepdims=True))


@network
def activations() -> Any:
    x = inputs = L.Input((10,))
    names = (
        "relu relu6 leaky_relu elu celu selu sigmoid tanh softplus softsign exponential gelu silu mish hard_silu "
        "hard_sigmoid hard_tanh softmax log_softmax log_sigmoid tanh_shrink soft_shrink hard_shrink squareplus glu"
    )
    return keras.Model(inputs, L.Concatenate()([L.Activation(name)(x) for name in names.split()]))


@network
def volumes() -> Any:
    x = inputs = L.Input((6, 6, 6, 2))
    x = L.Conv3D(4, 3, padding="same", activation="relu")(x)
    x = L.MaxPooling3D(2)(L.ZeroPadding3D(1)(x))
    x = L.UpSampling3D(2)(L.AveragePooling3D(2)(x))
    x = L.TimeDistributed(L.Conv2D(3, 2))(x)
    return keras.Model(inputs, L.GlobalAveragePooling3D()(x))


@network
def einsum() -> Any:
    x = inputs = L.Input((5, 6))
    x = L.EinsumDense("abc,cde->abde", output_shape=(None, 2, 4), bias_axes="de")(x)
    x = L.EinsumDense("abde,def->abf", output_shape=(None, 7), bias_axes="f", activation="relu")(x)
    return keras.Model(inputs, x)


@network
def backbone() -> Any:
    return keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=4)


def _randomize(model: Any) -> None:
    """Weights that leave nothing at its default, as a trained network's are."""
    rng = np.random.default_rng(7)
    for weight in model.weights:
        shape = weight.shape
        fan = max(1, int(np.prod(shape[:-1])))
        if not str(weight.dtype).startswith("float"):
            continue
        if "variance" in weight.path:
            value = rng.uniform(0.5, 2.0, shape)
        elif "gamma" in weight.path:
            value = rng.uniform(0.5, 1.5, shape)
        else:
            value = rng.normal(0, 1 / np.sqrt(fan) if len(shape) > 1 else 0.1, shape)
        weight.assign(value.astype(np.float32))


def _inputs(model: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    inputs = []
    for tensor in model.inputs:
        shape = (1, *tensor.shape[1:])
        whole = str(tensor.dtype).startswith("int")
        inputs.append(
            rng.integers(0, 11, shape, np.int32) if whole else rng.normal(0, 1, shape).astype(np.float32)
        )
    return inputs


def main(folder: Path, names: list[str]) -> None:
    """Build and save."""
    for name in names or list(NETWORKS):
        keras.utils.set_random_seed(1)
        keras.backend.clear_session()
        model = NETWORKS[name]()
        _randomize(model)
        arrays = _inputs(model)
        outputs = model(arrays if len(arrays) > 1 else arrays[0], training=False)
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        entries = {f"in:{i}:{t.name}": x for i, (t, x) in enumerate(zip(model.inputs, arrays, strict=True))}
        entries |= {f"out:{i}": np.asarray(y) for i, y in enumerate(outputs)}
        np.savez(folder / f"{name}.npz", **entries)
        model.save(folder / f"{name}.keras")
        model.save(folder / f"{name}.h5")
        model.export(folder / name, verbose=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
