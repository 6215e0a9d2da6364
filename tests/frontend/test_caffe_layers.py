"""Caffe's layers one by one: against OpenCV where it has them, against plain NumPy where it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.errors import InvalidModelError
from npuc.frontend.caffe import supported
from support.networks.caffe import Array, Shapes, assert_close, judged, layer, net, run, sample

pytest.importorskip("cv2", reason="OpenCV, the judge of Caffe's layers, is not installed")

X: Shapes = {"x": (2, 6, 9, 8)}
XZ: Shapes = {**X, "z": (2, 6, 9, 8)}


def _conv(parameters: str, kind: str = "Convolution", outputs: int = 8) -> list[str]:
    return [layer(kind, parameters=f"convolution_param {{ num_output: {outputs} {parameters} }}")]


def _pool(parameters: str) -> list[str]:
    return [layer("Pooling", parameters=f"pooling_param {{ {parameters} }}")]


def _correlation(parameters: str) -> list[str]:
    return [layer("Correlation", "x z", parameters=f"correlation_param {{ {parameters} }}")]


def _prior(parameters: str) -> list[str]:
    return [layer("PriorBox", "x data", parameters=f"prior_box_param {{ {parameters} }}")]


OPENCV: dict[str, tuple[Shapes, list[str]]] = {
    "convolution": (X, _conv("kernel_size: 3")),
    "convolution, stride and pad": (X, _conv("kernel_size: 3 stride: 2 pad: 1")),
    "convolution, not square": (
        X,
        _conv("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0"),
    ),
    "convolution, groups": (X, _conv("kernel_size: 3 group: 2 bias_term: false")),
    "convolution, dilation": (X, _conv("kernel_size: 3 dilation: 2 pad: 2")),
    "depthwise": (X, _conv("kernel_size: 3 pad: 1", "ConvolutionDepthwise", 6)),
    "deconvolution": (X, _conv("kernel_size: 4 stride: 2 pad: 1", "Deconvolution")),
    "deconvolution, groups": (
        X,
        _conv("kernel_size: 3 stride: 3 group: 6 bias_term: false", "Deconvolution", 6),
    ),
    "inner product": (X, [layer("InnerProduct", parameters="inner_product_param { num_output: 5 }")]),
    "inner product, axis": (
        X,
        [layer("InnerProduct", parameters="inner_product_param { num_output: 5 axis: 2 bias_term: false }")],
    ),
    "max": (X, _pool("kernel_size: 3 stride: 2")),
    "max, pad": (X, _pool("kernel_size: 3 stride: 2 pad: 1")),
    "max, sizes round down": (X, _pool("kernel_size: 2 stride: 2 ceil_mode: false")),
    "max, not square": (X, _pool("kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 3 pad_h: 0 pad_w: 1")),
    "max, global": (X, _pool("pool: MAX global_pooling: true")),
    "average": (X, _pool("pool: AVE kernel_size: 3 stride: 2")),
    "average, pad": (X, _pool("pool: AVE kernel_size: 3 stride: 2 pad: 1")),
    "average, windows beyond the padding": (X, _pool("pool: AVE kernel_size: 4 stride: 3 pad: 2")),
    "average, global": (X, _pool("pool: AVE global_pooling: true")),
    "LRN": (X, [layer("LRN", parameters="lrn_param { local_size: 5 alpha: 0.3 beta: 0.7 }")]),
    "LRN, within": (
        X,
        [
            layer(
                "LRN",
                parameters="lrn_param { local_size: 3 alpha: 0.3 beta: 0.7 norm_region: WITHIN_CHANNEL }",
            )
        ],
    ),
    "ReLU": (X, [layer("ReLU")]),
    "ReLU, slope": (X, [layer("ReLU", parameters="relu_param { negative_slope: 0.2 }")]),
    "ReLU6": (X, [layer("ReLU6")]),
    "PReLU": (X, [layer("PReLU")]),
    "PReLU, shared": (X, [layer("PReLU", parameters="prelu_param { channel_shared: true }")]),
    "ELU": (X, [layer("ELU", parameters="elu_param { alpha: 0.7 }")]),
    "Sigmoid": (X, [layer("Sigmoid")]),
    "TanH": (X, [layer("TanH")]),
    "AbsVal": (X, [layer("AbsVal")]),
    "BNLL": (X, [layer("BNLL")]),
    "Mish": (X, [layer("Mish")]),
    "Swish": (X, [layer("Swish")]),
    "HardSwish": (X, [layer("HardSwish")]),
    "Power": (X, [layer("Power", parameters="power_param { power: 2 scale: 0.5 shift: 3 }")]),
    "Power, linear": (X, [layer("Power", parameters="power_param { scale: 0.5 shift: 3 }")]),
    "Exp": (X, [layer("Exp", parameters="exp_param { base: 2 scale: 0.5 shift: 0.3 }")]),
    "Softmax": (X, [layer("Softmax")]),
    "Softmax, axis": (X, [layer("Softmax", parameters="softmax_param { axis: 3 }")]),
    "BatchNorm": (X, [layer("BatchNorm", parameters="batch_norm_param { eps: 0.01 }")]),
    "BatchNorm, Scale and ReLU in place": (
        X,
        [
            layer("Convolution", tops="c", parameters="convolution_param { num_output: 4 kernel_size: 1 }"),
            layer("BatchNorm", "c", "c", name="bn"),
            layer("Scale", "c", "c", "scale_param { bias_term: true }", name="scale"),
            layer("ReLU", "c", "c", name="relu"),
            layer("Pooling", "c", "y", "pooling_param { kernel_size: 2 stride: 2 }"),
        ],
    ),
    "Scale": (X, [layer("Scale")]),
    "Scale, every element": (
        X,
        [layer("Scale", parameters="scale_param { axis: 0 num_axes: -1 bias_term: true }")],
    ),
    "Scale by another tensor": (
        {**X, "s": (2, 6)},
        [layer("Scale", "x s", parameters="scale_param { axis: 0 }")],
    ),
    "MVN": (X, [layer("MVN")]),
    "MVN, across channels": (
        X,
        [layer("MVN", parameters="mvn_param { across_channels: true normalize_variance: false }")],
    ),
    "Normalize": (X, [layer("Normalize")]),
    "Normalize, pixels": (
        X,
        [layer("Normalize", parameters="norm_param { across_spatial: false channel_shared: false }")],
    ),
    "Eltwise, coefficients": (
        XZ,
        [layer("Eltwise", "x z x", parameters="eltwise_param { coeff: 0.5 coeff: -2 coeff: 1 }")],
    ),
    "Eltwise, product": (XZ, [layer("Eltwise", "x z", parameters="eltwise_param { operation: PROD }")]),
    "Eltwise, maximum": (XZ, [layer("Eltwise", "x z", parameters="eltwise_param { operation: MAX }")]),
    "Concat": ({**X, "z": (2, 3, 9, 8)}, [layer("Concat", "x z")]),
    "Concat, axis": (
        {**X, "z": (2, 6, 2, 8)},
        [layer("Concat", "x z", parameters="concat_param { axis: 2 }")],
    ),
    "Slice": (X, [layer("Slice", tops="a b c", parameters="slice_param { slice_point: 1 slice_point: 4 }")]),
    "Split": (
        X,
        [
            layer("ReLU", tops="r"),
            layer("Split", "r", "a b"),
            layer("TanH", "a", "p"),
            layer("Sigmoid", "b", "q"),
        ],
    ),
    "Dropout in place": (
        X,
        [layer("ReLU", tops="r"), layer("Dropout", "r", "r", name="d"), layer("TanH", "r", "y")],
    ),
    "Flatten": (X, [layer("Flatten")]),
    "Flatten, axes": (X, [layer("Flatten", parameters="flatten_param { axis: 2 end_axis: 3 }")]),
    "Reshape": (
        X,
        [layer("Reshape", parameters="reshape_param { shape { dim: 0 dim: 3 dim: -1 dim: 8 } }")],
    ),
    "Reshape, axes": (
        X,
        [layer("Reshape", parameters="reshape_param { axis: 1 num_axes: 2 shape { dim: -1 } }")],
    ),
    "Permute": (X, [layer("Permute", parameters="permute_param { order: 0 order: 2 order: 3 order: 1 }")]),
    "Crop": (
        {**X, "z": (2, 6, 5, 4)},
        [layer("Crop", "x z", parameters="crop_param { axis: 2 offset: 2 offset: 3 }")],
    ),
    "ShuffleChannel": (X, [layer("ShuffleChannel", parameters="shuffle_channel_param { group: 3 }")]),
    "Correlation": (
        XZ,
        _correlation("pad: 3 kernel_size: 1 max_displacement: 3 stride_1: 2 stride_2: 2"),
    ),
    "Interp": (X, [layer("Interp", parameters="interp_param { height: 17 width: 30 }")]),
    "Interp, zoom": (X, [layer("Interp", parameters="interp_param { zoom_factor: 3 }")]),
    "PriorBox": (
        {**X, "data": (1, 3, 72, 64)},
        _prior(
            "min_size: 10 max_size: 20 aspect_ratio: 2 aspect_ratio: 3 flip: true clip: true "
            "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
        ),
    ),
    "PriorBox, step": (
        {**X, "data": (1, 3, 72, 64)},
        _prior(
            "min_size: 10 min_size: 30 aspect_ratio: 2 flip: false clip: false step: 8 offset: 0.4 variance: 0.1"
        ),
    ),
}


@pytest.mark.parametrize("name", OPENCV)
def test_a_layer_is_as_in_opencv(tmp_path: Path, name: str) -> None:
    shapes, layers = OPENCV[name]
    assert_close(*judged(tmp_path, net(shapes, *layers), sample(shapes)))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    kind=st.sampled_from(["MAX", "AVE"]),
    size=st.tuples(st.integers(3, 11), st.integers(3, 11)),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 4),
    pad=st.integers(0, 3),
)
def test_pooling_rounds_as_caffe_does(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    size: tuple[int, int],
    kernel: int,
    stride: int,
    pad: int,
) -> None:
    # Where windows lie wholly outside of the picture, Caffe's own result is of no use to anybody.
    stride, pad = min(stride, kernel), min(pad, kernel - 1)
    kernel = min(kernel, *(n + 2 * pad for n in size))
    shapes = {"x": (1, 2, *size)}
    text = net(shapes, *_pool(f"pool: {kind} kernel_size: {kernel} stride: {stride} pad: {pad}"))
    assert_close(*judged(tmp_path_factory.mktemp("pool"), text, sample(shapes)))


def _steps(
    x: Array, blobs: dict[int, Array], marks: Array | None = None, static: Array | None = None
) -> Array:
    """Caffe's LSTM as its documentation says it."""
    weight, bias = blobs[0], blobs[1]
    beside, recurrence = (blobs[2], blobs[3]) if static is not None else (None, blobs[2])
    steps, batch = x.shape[:2]
    hidden = recurrence.shape[1]
    h, c = np.zeros((batch, hidden)), np.zeros((batch, hidden))
    found = []

    def sigmoid(v: Array) -> Array:
        return 1 / (1 + np.exp(-v))

    for t in range(steps):
        mark = np.ones((batch, 1)) if marks is None else marks[t][:, None]
        gates = x[t].reshape(batch, -1) @ weight.T + bias + (mark * h) @ recurrence.T
        if static is not None and beside is not None:
            gates = gates + static @ beside.T
        i, f, o, g = np.split(gates, 4, axis=1)
        c = mark * sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return np.stack(found)


def _rnn(x: Array, blobs: dict[int, Array]) -> Array:
    h = np.zeros((x.shape[1], blobs[2].shape[-1]))
    found = []
    for step in x:
        h = np.tanh(step @ blobs[0].T + blobs[1] + h @ blobs[2].reshape(h.shape[1], -1).T)
        found.append(np.tanh(h @ blobs[3].T + blobs[4]))
    return np.stack(found)


def _largest(x: Array, k: int) -> tuple[Array, Array]:
    order = np.argsort(-x, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(x, order, 1)


def _cost_volume(
    a: Array, b: Array, kernel: int, pad: int, reach: int, stride: int, step: int, subtract: bool = False
) -> Array:
    """The correlation of FlowNet, element by element."""
    a, b = (np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))) for x in (a, b))
    radius, border = reach // step, reach + kernel // 2
    rows, columns = (-(-(n - 2 * border) // stride) for n in a.shape[2:])
    width = 2 * radius + 1
    volume = np.zeros((len(a), width * width, rows, columns))
    for channel, i, j in np.ndindex(width * width, rows, columns):
        y, x = i * stride + reach, j * stride + reach
        dy, dx = (channel // width - radius) * step, (channel % width - radius) * step
        here = a[:, :, y : y + kernel, x : x + kernel]
        there = b[:, :, y + dy : y + dy + kernel, x + dx : x + dx + kernel]
        cost = np.abs(here - there) if subtract else here * there
        volume[:, channel, i, j] = cost.mean((1, 2, 3))
    return volume


Oracle = Callable[[dict[str, Array], dict[int, Array]], Array]
RECURRENT = "recurrent_param { num_output: 5 }"
MARKS = np.array([[0, 0], [1, 1], [1, 0], [1, 1]], np.float32)
NUMPY: dict[str, tuple[Shapes, list[str], Oracle]] = {
    "Correlation, patches": (
        XZ,
        _correlation("pad: 2 kernel_size: 3 max_displacement: 2 stride_1: 2"),
        lambda x, w: _cost_volume(x["x"], x["z"], 3, 2, 2, 2, 1),
    ),
    "Correlation, differences": (
        XZ,
        _correlation("kernel_size: 1 max_displacement: 1 correlation_type: SUBTRACT"),
        lambda x, w: _cost_volume(x["x"], x["z"], 1, 0, 1, 1, 1, subtract=True),
    ),
    "inner product, transposed": (
        X,
        [layer("InnerProduct", parameters="inner_product_param { num_output: 5 transpose: true }")],
        lambda x, w: x["x"].reshape(2, -1) @ w[0] + w[1],
    ),
    "LRN, k": (
        {"x": (1, 2, 1, 1)},
        [layer("LRN", parameters="lrn_param { local_size: 3 alpha: 0.6 beta: 0.5 k: 2 }")],
        lambda x, w: x["x"] / np.sqrt(2 + 0.2 * (x["x"] ** 2).sum(1, keepdims=True)),
    ),
    "Log": (
        X,
        [
            layer("AbsVal", tops="a"),
            layer("Log", "a", parameters="log_param { base: 10 scale: 0.5 shift: 0.3 }"),
        ],
        lambda x, w: np.log10(0.3 + 0.5 * np.abs(x["x"])),
    ),
    "Exp, natural": (
        X,
        [layer("Exp", parameters="exp_param { scale: 0.5 }")],
        lambda x, w: np.exp(0.5 * x["x"]),
    ),
    "Swish, beta": (
        X,
        [layer("Swish", parameters="swish_param { beta: 2 }")],
        lambda x, w: x["x"] / (1 + np.exp(-2 * x["x"])),
    ),
    "HardSigmoid": (X, [layer("HSigmoid")], lambda x, w: np.clip(x["x"] / 6 + 0.5, 0, 1)),
    "LogSoftmax": (
        X,
        [layer("LogSoftmax")],
        lambda x, w: x["x"] - np.log(np.exp(x["x"]).sum(1, keepdims=True)),
    ),
    "Clip": (
        X,
        [layer("Clip", parameters="clip_param { min: -0.5 max: 0.7 }")],
        lambda x, w: x["x"].clip(-0.5, 0.7),
    ),
    "Threshold": (
        X,
        [layer("Threshold", parameters="threshold_param { threshold: 0.2 }")],
        lambda x, w: (x["x"] > 0.2).astype(np.float32),
    ),
    "Bias": (X, [layer("Bias")], lambda x, w: x["x"] + w[0].reshape(6, 1, 1)),
    "Axpy": (
        {"s": (2, 6, 1, 1), **XZ},
        [layer("Axpy", "s x z")],
        lambda x, w: x["s"] * x["x"] + x["z"],
    ),
    "BN of forks": (
        X,
        [layer("BN", parameters="bn_param { eps: 0.01 }")],
        lambda x, w: (
            (x["x"] - w[2].reshape(6, 1, 1)) / np.sqrt(w[3].reshape(6, 1, 1) + 0.01) * w[0].reshape(6, 1, 1)
            + w[1].reshape(6, 1, 1)
        ),
    ),
    "depthwise, another name": (
        X,
        _conv("kernel_size: 1 bias_term: false", "DepthwiseConvolution", 6),
        lambda x, w: x["x"] * w[0].reshape(6, 1, 1),
    ),
    "Slice, equal parts": (
        X,
        [layer("Slice", tops="a y", parameters="slice_param { axis: 3 }")],
        lambda x, w: x["x"][..., 4:],
    ),
    "Tile": (
        X,
        [layer("Tile", parameters="tile_param { tiles: 3 }")],
        lambda x, w: np.tile(x["x"], (1, 3, 1, 1)),
    ),
    "Reverse": (
        X,
        [layer("Reverse", parameters="reverse_param { axis: 2 }")],
        lambda x, w: x["x"][:, :, ::-1],
    ),
    "Reduction, mean": (
        X,
        [layer("Reduction", parameters="reduction_param { operation: MEAN axis: 2 coeff: 2 }")],
        lambda x, w: 2 * x["x"].mean((2, 3)),
    ),
    "Reduction, absolute": (
        X,
        [layer("Reduction", parameters="reduction_param { operation: ASUM axis: 1 }")],
        lambda x, w: np.abs(x["x"]).sum((1, 2, 3)),
    ),
    "Reduction, squares": (
        X,
        [layer("Reduction", parameters="reduction_param { operation: SUMSQ }")],
        lambda x, w: np.asarray((x["x"] ** 2).sum()),
    ),
    "ArgMax": (
        X,
        [layer("ArgMax", parameters="argmax_param { axis: 1 }")],
        lambda x, w: x["x"].argmax(1)[:, None].astype(np.float32),
    ),
    "ArgMax of a sample, with values": (
        X,
        [layer("ArgMax", parameters="argmax_param { top_k: 3 out_max_val: true }")],
        lambda x, w: np.stack(_largest(x["x"].reshape(2, -1), 3), 1),
    ),
    "Eltwise, minimum": (
        XZ,
        [layer("Eltwise", "x z", parameters="eltwise_param { operation: MIN }")],
        lambda x, w: np.minimum(x["x"], x["z"]),
    ),
    "Upsample": (
        X,
        [layer("Upsample", parameters="upsample_param { scale: 2 }")],
        lambda x, w: x["x"].repeat(2, 2).repeat(2, 3),
    ),
    "Interp, shrink": (
        X,
        [layer("Interp", parameters="interp_param { shrink_factor: 2 pad_end: -1 }")],
        # 8 x 7 pixels to 4 x 4 between corners.
        lambda x, w: _bilinear(x["x"][:, :, :8, :7], 4, 4),
    ),
    "Embed": (
        {"x": (2, 3)},
        [
            layer("Threshold", tops="t", parameters="threshold_param { threshold: 0 }"),
            layer("Embed", "t", parameters="embed_param { num_output: 5 input_dim: 10 }"),
        ],
        lambda x, w: w[0][(x["x"] > 0).astype(int)] + w[1],
    ),
    "LSTM": ({"x": (4, 2, 6)}, [layer("LSTM", parameters=RECURRENT)], lambda x, w: _steps(x["x"], w)),
    "LSTM with marks": (
        {"x": (4, 2, 3, 2), "cont": (4, 2)},
        [layer("LSTM", "x cont", parameters=RECURRENT)],
        lambda x, w: _steps(x["x"], w, x["cont"]),
    ),
    "LSTM with marks and a constant input": (
        {"x": (4, 2, 6), "cont": (4, 2), "s": (2, 3)},
        [layer("LSTM", "x cont s", parameters=RECURRENT)],
        lambda x, w: _steps(x["x"], w, x["cont"], x["s"]),
    ),
    "LSTM with the marks of a layer": (
        {"x": (4, 2, 6)},
        [
            layer(
                "ContinuationIndicator",
                "",
                "cont",
                "continuation_indicator_param { time_step: 4 batch_size: 2 }",
            ),
            layer("LSTM", "x cont", parameters=RECURRENT),
        ],
        lambda x, w: _steps(x["x"], w),
    ),
    "Lstm of caffe-lstm": (
        {"x": (8, 3, 2)},
        [layer("Lstm", parameters="lstm_param { num_output: 5 batch_size: 2 clipping_threshold: 0.1 }")],
        lambda x, w: _steps(x["x"].reshape(4, 2, 3, 2), {0: w[0], 1: w[2], 2: w[1]}).reshape(8, 5),
    ),
    "RNN": ({"x": (4, 2, 6)}, [layer("RNN", parameters=RECURRENT)], lambda x, w: _rnn(x["x"], w)),
}


def _bilinear(x: Array, rows: int, columns: int) -> Array:
    for axis, count in ((2, rows), (3, columns)):
        size = x.shape[axis]
        at = np.arange(count) * (size - 1) / (count - 1)
        low = np.minimum(at.astype(int), size - 2)
        part = (at - low).reshape([-1 if i == axis else 1 for i in range(4)])
        x = x.take(low, axis) * (1 - part) + x.take(low + 1, axis) * part
    return x


@pytest.mark.parametrize("name", NUMPY)
def test_a_layer_is_as_in_numpy(tmp_path: Path, name: str) -> None:
    shapes, layers, oracle = NUMPY[name]
    inputs = sample(shapes)
    if "cont" in shapes:
        inputs["cont"] = MARKS
    ours, blobs = run(tmp_path, net(shapes, *layers), inputs)
    wanted = np.asarray(oracle(inputs, blobs.get("y", {})), np.float32)
    assert_close({"y": ours["y"]}, {"y": wanted})


def test_the_marks_of_a_layer_begin_a_sequence_as_torch_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    shapes: Shapes = {"x": (7, 2, 6)}
    inputs = sample(shapes)
    marks = "continuation_indicator_param { time_step: 7 batch_size: 2 }"
    text = net(
        shapes,
        layer("ContinuationIndicator", "", "cont", marks),
        layer("LSTM", "x cont", parameters=RECURRENT),
    )
    ours, blobs = run(tmp_path, text, inputs)
    hidden = blobs["y"][2].shape[1]
    order = np.concatenate(
        [np.arange(hidden) + gate * hidden for gate in (0, 1, 3, 2)]
    )  # torch's gates: i f g o
    judge = torch.nn.LSTM(6, hidden)
    with torch.no_grad():
        for name, array in zip(
            ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0"), (blobs["y"][i] for i in range(3)), strict=True
        ):
            getattr(judge, name).copy_(torch.tensor(array[order]))
        judge.bias_hh_l0.zero_()
        expected = judge(torch.tensor(inputs["x"]))[0].numpy()
    assert_close(ours, {"y": expected})


@pytest.mark.parametrize("rows, batch", [(8, 3), (8, 0)])
def test_an_lstm_of_a_wrong_batch_is_refused(tmp_path: Path, rows: int, batch: int) -> None:
    text = net(
        {"x": (rows, 6)}, layer("Lstm", parameters=f"lstm_param {{ num_output: 5 batch_size: {batch} }}")
    )
    with pytest.raises(InvalidModelError, match=f"8 steps of {batch} sequences"):
        run(tmp_path, text, sample({"x": (rows, 6)}))


def test_constant_marks_make_an_lstm_one_op(tmp_path: Path) -> None:
    shapes: Shapes = {"x": (4, 2, 6), "cont": (4, 2)}
    inputs = sample({"x": (4, 2, 6)})
    text = net(shapes, layer("LSTM", "x cont", parameters=RECURRENT))
    ours, blobs = run(tmp_path, text, inputs, constants={"cont": "0,0,1,1,1,1,1,1"})
    assert_close(ours, {"y": _steps(inputs["x"], blobs["y"]).astype(np.float32)})


def test_every_kind_of_layer_with_a_rule_is_tested_or_listed() -> None:
    tested = set()
    for _, layers, *_ in [*OPENCV.values(), *NUMPY.values()]:
        tested |= {text.split('type: "')[1].split('"')[0] for text in layers}
    elsewhere = {"DetectionOutput", "ROIPooling", "Padding"}
    synonyms = {
        "DepthwiseConv", "HSwish", "Hswish", "HardSigmoid", "Hsigmoid", "NNUpsample", "NearestUpsample", "NormalizeBBox",
    }  # fmt: skip
    builtin = {kind for kind in supported() if not kind.startswith("Python:")}
    assert builtin == tested | elsewhere | synonyms
    assert all(supported().values()), "every rule says its limits"


BROKEN: dict[str, tuple[str, str]] = {
    "no kernel": (_conv("stride: 1")[0], "kernel_size"),
    "groups do not divide": (_conv("kernel_size: 1 group: 4")[0], "6 channels to 8 in 4 groups"),
    "negative outputs": (_conv("kernel_size: 1 num_output: -8")[0], "6 channels to -8"),
    "kernel beyond the picture": (_conv("kernel_size: 100")[0], "window of 100"),
    "no such axis": (layer("Softmax", parameters="softmax_param { axis: 9 }"), "no axis 9"),
    "impossible shape": (
        layer("Reshape", parameters="reshape_param { shape { dim: 7 dim: -1 } }"),
        "does not go into",
    ),
    "a text for a number": (layer("LRN", parameters='lrn_param { local_size: "five" }'), "not an integer"),
    "unknown operation": (
        layer("Eltwise", parameters="eltwise_param { operation: XOR }"),
        "one of PROD, SUM",
    ),
    "an even patch": (
        _correlation("kernel_size: 2 max_displacement: 1")[0].replace('"z"', '"x"'),
        "kernel_size is odd",
    ),
    "displaced beyond": (
        _correlation("kernel_size: 1 max_displacement: 5")[0].replace('"z"', '"x"'),
        "leave nothing of 9 x 8",
    ),
    "different shapes": (
        'name: "e" type: "Eltwise" bottom: "x" bottom: "r" top: "y"',
        "takes 'r', which nothing before it makes",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_nonsense_is_refused_with_the_name_of_the_layer(tmp_path: Path, name: str) -> None:
    text, words = BROKEN[name]
    with pytest.raises(InvalidModelError) as error:
        run(tmp_path, net(X, text), {})
    message: Any = str(error.value)
    assert words in message and ("'y'" in message or "'e'" in message)
