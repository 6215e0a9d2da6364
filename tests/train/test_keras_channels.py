"""Channels of live Keras models: groups, zeros that stay, models without them. Keras is a peer, in a process of its own."""

from __future__ import annotations

import pytest

from support.compat_examples import folder_of, run_program

_MODEL = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
from keras import layers
from npuc.errors import UsageError, TrainingError
from npuc.train.keras_channels import KerasChannels
rng = np.random.default_rng(0)
x = image = keras.Input((8, 8, 3))
x = layers.Conv2D(8, 3, padding="same", use_bias=False, name="stem")(x)
x = layers.BatchNormalization(name="norm")(x)
x = layers.ReLU()(x)
y = layers.DepthwiseConv2D(3, padding="same")(x)
y = layers.SeparableConv2D(8, 3, padding="same", activation="relu", name="separable")(y)
x = layers.Dropout(0.2)(layers.Add()([x, y]))
x = layers.Conv2DTranspose(6, 2, strides=2, name="up")(x)
x = layers.PReLU(shared_axes=[1, 2])(x)
{tail}
model = keras.Model(image, layers.Dense(4, name="head")(x))
model.set_weights([value + rng.uniform(0.1, 0.3, value.shape) for value in model.get_weights()])
images = rng.normal(size=(20, 8, 8, 3)).astype(np.float32)
"""
_FLAT = 'x = layers.Dense(10, activation="relu", name="hidden")(layers.Flatten()(x))'


def _run(program: str, tail: str = _FLAT) -> str:
    done = run_program(_MODEL.replace("{tail}", tail) + program, [], [str(folder_of("keras"))])
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_slim_model_computes_what_the_masked_one_does_and_zeros_stay_while_it_is_trained() -> None:
    """Each layer in another order of axes; a flatten spreads the channels of a deconvolution over a dense layer."""
    said = _run("""
channels = KerasChannels(model)
print([(group.name, group.size, group.layers) for group in channels.dependencies.groups])
selection = {"stem": [0, 5], "up": [1, 2], "hidden/matmul": [3]}
masked, slim = channels.masked(selection), channels.slim(selection)
print("near", np.allclose(slim.predict(images, verbose=0), masked.predict(images, verbose=0), 1e-4))
print([tuple(slim.get_layer(name).kernel.shape) for name in ("stem", "up", "hidden", "head")])
zeros = [value == 0 for value in masked.get_weights()]
before = masked.get_weights()
masked.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
masked.fit(images, rng.integers(0, 4, 20), epochs=2, verbose=0)
after = masked.get_weights()
print("zeros", sum(int(zero.sum()) for zero in zeros) > 0, all((value[zero] == 0).all() for value, zero in zip(after, zeros)))
print("learns", all(np.abs(a - b).max() > 0 for a, b in zip(after, before)))
again = KerasChannels(masked).slim(selection)
print("near", np.allclose(again.predict(images, verbose=0), masked.predict(images, verbose=0), 1e-4))
print("half", round(channels.macs(channels.widths(0.5)) / channels.costs.whole, 2) <= 0.5)
""")
    assert "('stem', 8, ('stem', 'norm', 'depthwise_conv2d', 'separable/conv', 'separable/conv.1'))" in said
    assert "[(3, 3, 3, 6), (2, 2, 4, 6), (1024, 9), (9, 4)]" in said
    assert said.count("near True") == 2 and "zeros True True" in said and "learns True" in said
    assert "half True" in said


@pytest.mark.slow
def test_what_cannot_be_cut_says_why() -> None:
    said = _run(
        """
channels = KerasChannels(model)
print({group.name: group.reason for group in channels.dependencies.frozen})
try:
    channels.slim({"up": [0]})
except TrainingError as error:
    print(error)
print(KerasChannels(model, exclude=["separable"]).dependencies.group("stem").reason)
class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = layers.Dense(4)
    def call(self, x):
        return self.head(x)
own = Own()
own(np.zeros((1, 4), np.float32))
for wrong in (own, 3):
    try:
        KerasChannels(wrong)
    except UsageError as error:
        print(error)
""",
        "x = layers.Flatten()(layers.Dense(3, name='rows')(layers.Reshape((256, 6))(x)))",
    )
    assert "'head': \"'head' is an output of the network\"" in said
    assert "the model without its channels cannot be built" in said and "exclude the layer before it" in said
    assert "excluded by the user" in said
    assert "is no functional or sequential model" in said and "a Keras model, not int" in said
