"""Train the bundled demo model: a small residual CNN on scikit-learn's 8×8 handwritten digits.

The training is plain NumPy and takes a few seconds. It writes, beside this file:

- `digits.onnx`: input `image`, float32 1×1×8×8, raw pixel values 0..16 (the graph divides by 16 itself); output
  `logits`, float32 1×10. BatchNormalization nodes are left explicit, so that a compiler has something to fold.
- `digits_samples.npz`: 200 samples that were never trained on, `image` float32 200×1×8×8 and `label` int64 200.

A fixed seed and single-threaded BLAS make two runs on one machine write the same bytes.

    pip install npuc[train] && python examples/train_digits.py
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import npuc

Array = npt.NDArray[np.float32]

SEED = 20240517
HELD_OUT = 200
EPOCHS = 24
BATCH = 64
PEAK_LEARNING_RATE = 4e-3
WEIGHT_DECAY = 1e-4
PIXEL_SCALE = 1 / 16


# --- Layers -----------------------------------------------------------------------------------------------------
#
# Activations are channel-first, C×N×H×W, while training: a convolution over a whole batch is then one matrix product.
# The exported graph is N×C×H×W; no weight depends on the difference.


@dataclass(eq=False)
class Parameter:
    """A trained array, its gradient, and its two Adam moments."""

    value: Array
    gradient: Array = field(init=False)
    mean: Array = field(init=False)
    variance: Array = field(init=False)

    def __post_init__(self) -> None:
        self.gradient, self.mean, self.variance = (np.zeros_like(self.value) for _ in range(3))


class Layer(Protocol):
    """What a layer can do: compute, propagate a gradient, list its parameters, and become ONNX nodes."""

    def forward(self, x: Array, training: bool) -> Array:
        """Return the output, and remember what `backward` needs."""

    def backward(self, gradient: Array) -> Array:
        """Fill the gradients of the parameters and return the gradient of the input."""

    def parameters(self) -> Iterator[Parameter]:
        """Yield the trained arrays."""

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append this layer's nodes, reading tensor `x`, and return the name of the result."""


class Conv:
    """A `kernel`×`kernel` convolution of stride 1 that keeps the image size; no bias, a batch norm follows."""

    def __init__(self, name: str, rng: np.random.Generator, inputs: int, outputs: int, kernel: int) -> None:
        self.name, self.inputs, self.kernel = name, inputs, kernel
        fan_in = inputs * kernel * kernel
        weight = rng.standard_normal((outputs, fan_in)) * np.sqrt(2 / fan_in)
        self.weight = Parameter(weight.astype(np.float32))

    def forward(self, x: Array, training: bool) -> Array:
        """Multiply the weights by the unfolded image."""
        self.shape = x.shape
        self.columns = unfold(x, self.kernel).reshape(self.weight.value.shape[1], -1)
        return (self.weight.value @ self.columns).reshape(-1, *x.shape[1:])

    def backward(self, gradient: Array) -> Array:
        """Propagate through the matrix product, then fold."""
        flat = gradient.reshape(gradient.shape[0], -1)
        self.weight.gradient = flat @ self.columns.T
        columns = self.weight.value.T @ flat
        return fold(columns.reshape(self.inputs, self.kernel**2, *self.shape[1:]), self.kernel)

    def parameters(self) -> Iterator[Parameter]:
        """Yield the weights."""
        yield self.weight

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append a Conv."""
        return graph.conv(
            self.name, x, self.weight.value.reshape(-1, self.inputs, self.kernel, self.kernel), group=1
        )


class DepthwiseConv:
    """A `kernel`×`kernel` convolution of each channel by itself."""

    def __init__(self, name: str, rng: np.random.Generator, channels: int, kernel: int) -> None:
        self.name, self.kernel = name, kernel
        weight = rng.standard_normal((channels, kernel**2)) * np.sqrt(2 / kernel**2)
        self.weight = Parameter(weight.astype(np.float32))

    def forward(self, x: Array, training: bool) -> Array:
        """Weigh and add the shifted images."""
        self.shifted = unfold(x, self.kernel)
        result: Array = np.einsum("cknhw,ck->cnhw", self.shifted, self.weight.value)
        return result

    def backward(self, gradient: Array) -> Array:
        """Propagate through the weighted sum, then fold."""
        self.weight.gradient = np.einsum("cknhw,cnhw->ck", self.shifted, gradient)
        return fold(gradient[:, None] * self.weight.value[:, :, None, None, None], self.kernel)

    def parameters(self) -> Iterator[Parameter]:
        """Yield the weights."""
        yield self.weight

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append a grouped Conv."""
        channels = self.weight.value.shape[0]
        weight = self.weight.value.reshape(channels, 1, self.kernel, self.kernel)
        return graph.conv(self.name, x, weight, group=channels)


class BatchNorm:
    """Batch statistics while training, running statistics after it."""

    epsilon = 1e-5
    momentum = 0.9

    def __init__(self, name: str, channels: int) -> None:
        self.name = name
        self.scale = Parameter(np.ones(channels, np.float32))
        self.bias = Parameter(np.zeros(channels, np.float32))
        self.running_mean = np.zeros(channels, np.float32)
        self.running_variance = np.ones(channels, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        """Normalize each channel, then scale and shift it."""
        if training:
            mean, variance = x.mean((1, 2, 3)), x.var((1, 2, 3))
            keep = np.float32(self.momentum)
            self.running_mean = keep * self.running_mean + (1 - keep) * mean
            self.running_variance = keep * self.running_variance + (1 - keep) * variance
        else:
            mean, variance = self.running_mean, self.running_variance
        self.inverse = per_channel(1 / np.sqrt(variance + np.float32(self.epsilon)))
        self.normal = (x - per_channel(mean)) * self.inverse
        return self.normal * per_channel(self.scale.value) + per_channel(self.bias.value)

    def backward(self, gradient: Array) -> Array:
        """Propagate through the batch statistics too."""
        self.scale.gradient = (gradient * self.normal).sum((1, 2, 3))
        self.bias.gradient = gradient.sum((1, 2, 3))
        count = np.float32(gradient[0].size)
        centred = gradient - per_channel(self.bias.gradient) / count
        centred -= self.normal * per_channel(self.scale.gradient) / count
        return centred * self.inverse * per_channel(self.scale.value)

    def parameters(self) -> Iterator[Parameter]:
        """Yield scale and bias."""
        yield self.scale
        yield self.bias

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append a BatchNormalization."""
        arrays = {
            "scale": self.scale.value,
            "bias": self.bias.value,
            "mean": self.running_mean,
            "variance": self.running_variance,
        }
        weights = [graph.weight(f"{self.name}/{key}", array) for key, array in arrays.items()]
        return graph.node("BatchNormalization", self.name, [x, *weights], epsilon=self.epsilon)


class Relu:
    """max(x, 0)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def forward(self, x: Array, training: bool) -> Array:
        """Clip below zero."""
        self.positive = x > 0
        return x * self.positive

    def backward(self, gradient: Array) -> Array:
        """Pass where the input was positive."""
        return gradient * self.positive

    def parameters(self) -> Iterator[Parameter]:
        """Yield nothing."""
        yield from ()

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append a Relu."""
        return graph.node("Relu", self.name, [x])


class MaxPool:
    """The largest of each 2×2 window."""

    def __init__(self, name: str) -> None:
        self.name = name

    def forward(self, x: Array, training: bool) -> Array:
        """Halve height and width."""
        channels, batch, height, width = x.shape
        windows = x.reshape(channels, batch, height // 2, 2, width // 2, 2)
        largest: Array = windows.max((3, 5))
        winners = windows == largest[:, :, :, None, :, None]
        self.share = winners / winners.sum((3, 5), keepdims=True, dtype=np.float32)
        return largest

    def backward(self, gradient: Array) -> Array:
        """Divide the gradient among the winners of each window."""
        channels, batch, height, width = gradient.shape
        spread: Array = self.share * gradient[:, :, :, None, :, None]
        return spread.reshape(channels, batch, height * 2, width * 2)

    def parameters(self) -> Iterator[Parameter]:
        """Yield nothing."""
        yield from ()

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append a MaxPool."""
        return graph.node("MaxPool", self.name, [x], kernel_shape=[2, 2], strides=[2, 2])


class Residual:
    """x + branch(x)."""

    def __init__(self, name: str, branch: Sequence[Layer]) -> None:
        self.name, self.branch = name, Chain(branch)

    def forward(self, x: Array, training: bool) -> Array:
        """Add the branch to its input."""
        return x + self.branch.forward(x, training)

    def backward(self, gradient: Array) -> Array:
        """Add the gradients of both paths."""
        return gradient + self.branch.backward(gradient)

    def parameters(self) -> Iterator[Parameter]:
        """Yield those of the branch."""
        yield from self.branch.parameters()

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append the branch and an Add."""
        return graph.node("Add", self.name, [self.branch.export(graph, x), x])


class Classifier:
    """Average over the image, then one linear layer; the result is N×classes."""

    def __init__(self, name: str, rng: np.random.Generator, inputs: int, classes: int) -> None:
        self.name = name
        weight = rng.standard_normal((classes, inputs)) / np.sqrt(inputs)
        self.weight = Parameter(weight.astype(np.float32))
        self.bias = Parameter(np.zeros(classes, np.float32))

    def forward(self, x: Array, training: bool) -> Array:
        """Average, multiply, add."""
        self.shape = x.shape
        self.average: Array = x.mean((2, 3))
        result: Array = (self.weight.value @ self.average).T + self.bias.value
        return result

    def backward(self, gradient: Array) -> Array:
        """Propagate through the product, then spread evenly over the image."""
        self.weight.gradient = gradient.T @ self.average.T
        self.bias.gradient = gradient.sum(0)
        average = (gradient @ self.weight.value).T / np.float32(self.shape[2] * self.shape[3])
        return np.broadcast_to(average[:, :, None, None], self.shape)

    def parameters(self) -> Iterator[Parameter]:
        """Yield weights and bias."""
        yield self.weight
        yield self.bias

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append a GlobalAveragePool, a Flatten and a Gemm."""
        pooled = graph.node("GlobalAveragePool", f"{self.name}/pool", [x])
        flat = graph.node("Flatten", f"{self.name}/flatten", [pooled], axis=1)
        weight = graph.weight(f"{self.name}/gemm/weight", self.weight.value)
        bias = graph.weight(f"{self.name}/gemm/bias", self.bias.value)
        return graph.node("Gemm", f"{self.name}/gemm", [flat, weight, bias], result="logits", transB=1)


class Chain:
    """Layers one after another."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = list(layers)

    def forward(self, x: Array, training: bool) -> Array:
        """Run the layers in order."""
        for layer in self.layers:
            x = layer.forward(x, training)
        return x

    def backward(self, gradient: Array) -> Array:
        """Run the layers in reverse order."""
        for layer in reversed(self.layers):
            gradient = layer.backward(gradient)
        return gradient

    def parameters(self) -> Iterator[Parameter]:
        """Yield those of every layer."""
        for layer in self.layers:
            yield from layer.parameters()

    def export(self, graph: "GraphWriter", x: str) -> str:
        """Append every layer."""
        for layer in self.layers:
            x = layer.export(graph, x)
        return x


def unfold(x: Array, kernel: int) -> Array:
    """Return C×(kernel²)×N×H×W: the image shifted under each tap of a kernel, zeros outside it."""
    margin = kernel // 2
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    taps = [padded[:, :, i : i + height, j : j + width] for i in range(kernel) for j in range(kernel)]
    return np.stack(taps, axis=1)


def fold(taps: Array, kernel: int) -> Array:
    """Add the shifted images of `unfold` back together: its transpose."""
    margin = kernel // 2
    channels, _, batch, height, width = taps.shape
    padded = np.zeros((channels, batch, height + 2 * margin, width + 2 * margin), np.float32)
    for tap in range(kernel**2):
        i, j = divmod(tap, kernel)
        padded[:, :, i : i + height, j : j + width] += taps[:, tap]
    return padded[:, :, margin : margin + height, margin : margin + width]


def per_channel(values: Array) -> Array:
    """Shape a vector of channels to broadcast over C×N×H×W."""
    return values[:, None, None, None]


# --- The network and its training ---------------------------------------------------------------------------------


def build_network(rng: np.random.Generator) -> Chain:
    """Return the untrained network: a stem, a depthwise-separable block, a pool, a full block, a classifier."""
    separable: list[Layer] = [
        DepthwiseConv("block1/depthwise/conv", rng, 16, 3),
        BatchNorm("block1/depthwise/norm", 16),
        Relu("block1/depthwise/relu"),
        Conv("block1/pointwise/conv", rng, 16, 16, 1),
        BatchNorm("block1/pointwise/norm", 16),
    ]
    full: list[Layer] = [Conv("block2/conv", rng, 32, 32, 3), BatchNorm("block2/norm", 32)]
    return Chain(
        [
            Conv("stem/conv", rng, 1, 16, 3),
            BatchNorm("stem/norm", 16),
            Relu("stem/relu"),
            Residual("block1/add", separable),
            Relu("block1/relu"),
            MaxPool("pool"),
            Conv("widen/conv", rng, 16, 32, 3),
            BatchNorm("widen/norm", 32),
            Relu("widen/relu"),
            Residual("block2/add", full),
            Relu("block2/relu"),
            Classifier("head", rng, 32, 10),
        ]
    )


def train(network: Chain, images: Array, labels: npt.NDArray[np.int64], rng: np.random.Generator) -> None:
    """Train with Adam, a one-cycle learning rate, and random shifts of one pixel."""
    parameters = list(network.parameters())
    batches = len(images) // BATCH
    steps = EPOCHS * batches
    for step in range(steps):
        if step % batches == 0:
            order = rng.permutation(len(images))
        chosen = order[step % batches * BATCH :][:BATCH]
        x = shifted(images[chosen], rng)[None] * np.float32(PIXEL_SCALE)
        probabilities = softmax(network.forward(x, training=True))
        probabilities[np.arange(BATCH), labels[chosen]] -= 1
        network.backward(probabilities / np.float32(BATCH))
        adam(parameters, learning_rate(step / steps), step + 1)


def learning_rate(progress: float) -> float:
    """Rise linearly for the first fifth of the training, then fall along a cosine."""
    if progress < 0.2:
        return PEAK_LEARNING_RATE * (0.05 + 0.95 * progress / 0.2)
    return PEAK_LEARNING_RATE * 0.5 * (1 + float(np.cos(np.pi * (progress - 0.2) / 0.8)))


def adam(parameters: Sequence[Parameter], rate: float, step: int) -> None:
    """Take one AdamW step; only matrices decay, not biases and norms."""
    first, second = 0.9, 0.99
    for parameter in parameters:
        parameter.mean += np.float32(1 - first) * (parameter.gradient - parameter.mean)
        parameter.variance += np.float32(1 - second) * (parameter.gradient**2 - parameter.variance)
        mean = parameter.mean / np.float32(1 - first**step)
        variance = parameter.variance / np.float32(1 - second**step)
        if parameter.value.ndim > 1:
            parameter.value *= np.float32(1 - rate * WEIGHT_DECAY)
        parameter.value -= np.float32(rate) * mean / (np.sqrt(variance) + np.float32(1e-8))


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Move each N×8×8 image by -1, 0 or 1 pixel in each direction, zeros coming in."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    offsets = rng.integers(0, 3, (len(images), 2))
    return np.stack([image[i : i + 8, j : j + 8] for image, (i, j) in zip(padded, offsets, strict=True)])


def softmax(logits: Array) -> Array:
    """Turn N×classes scores into probabilities."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: Array = powers / powers.sum(1, keepdims=True)
    return probabilities


# --- Export -------------------------------------------------------------------------------------------------------


class GraphWriter:
    """Collects ONNX nodes and weights; a node's result has the node's own name unless told otherwise."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(
        self, op_type: str, name: str, inputs: list[str], result: str | None = None, **attributes: Any
    ) -> str:
        """Append a node and return the name of its result."""
        result = result or name
        self.nodes.append(helper.make_node(op_type, inputs, [result], name=name, **attributes))
        return result

    def conv(self, name: str, x: str, weight: Array, group: int) -> str:
        """Append a Conv of stride 1 that keeps the image size."""
        kernel = weight.shape[2]
        return self.node(
            "Conv",
            name,
            [x, self.weight(f"{name}/weight", weight)],
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            group=group,
        )

    def weight(self, name: str, values: Array) -> str:
        """Append an initializer and return its name."""
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name


def to_onnx(network: Chain) -> onnx.ModelProto:
    """Return the trained network as a checked ONNX model of opset 17."""
    writer = GraphWriter()
    scale = writer.weight("scale/factor", np.array(PIXEL_SCALE, np.float32))
    network.export(writer, writer.node("Mul", "scale", ["image", scale]))
    graph = helper.make_graph(
        writer.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        initializer=writer.weights,
        doc_string="Handwritten digits, 8x8 pixels of 0..16, to ten class scores.",
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="npuc",
        producer_version=npuc.__version__,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, report the accuracy on the held-out samples, and write both files."""
    parser = argparse.ArgumentParser(description="Train the demo model on scikit-learn's digits.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent, help="where to write")
    directory: Path = parser.parse_args().output

    digits = load_digits()
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(digits.target))
    images, labels = digits.images[order].astype(np.float32), digits.target[order].astype(np.int64)
    held_images, held_labels = images[:HELD_OUT], labels[:HELD_OUT]

    network = build_network(rng)
    start = time.perf_counter()
    with threadpool_limits(1):
        train(network, images[HELD_OUT:], labels[HELD_OUT:], rng)
        logits = network.forward(held_images[None] * np.float32(PIXEL_SCALE), training=False)
    correct = int((logits.argmax(1) == held_labels).sum())
    print(f"trained on {len(images) - HELD_OUT} samples in {time.perf_counter() - start:.1f} s")
    print(f"held out: {correct} of {HELD_OUT} right ({correct / HELD_OUT:.1%})")

    directory.mkdir(parents=True, exist_ok=True)
    onnx.save(to_onnx(network), directory / "digits.onnx")
    np.savez(directory / "digits_samples.npz", image=held_images[:, None], label=held_labels)
    print(f"wrote {directory / 'digits.onnx'} and {directory / 'digits_samples.npz'}")


if __name__ == "__main__":
    main()
