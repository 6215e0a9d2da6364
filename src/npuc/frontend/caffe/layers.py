"""Three generations of Caffe's layers as one: `layer` with a type in words, `layers` with an enumeration, and the first
form, whose parameters lie in one bag. And which of them take part in a network that runs, not trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuc.errors import InvalidModelError, ResourceLimitError
from npuc.frontend.caffe.message import CaffeMessage

_MAX_LAYERS = 1 << 13
_V1 = {
    "ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "BNLL": "BNLL", "CONCAT": "Concat", "CONVOLUTION": "Convolution",
    "DECONVOLUTION": "Deconvolution", "DROPOUT": "Dropout", "ELTWISE": "Eltwise", "EXP": "Exp", "FLATTEN": "Flatten",
    "IM2COL": "Im2col", "INNER_PRODUCT": "InnerProduct", "LRN": "LRN", "MVN": "MVN", "POOLING": "Pooling",
    "POWER": "Power", "RELU": "ReLU", "SIGMOID": "Sigmoid", "SILENCE": "Silence", "SOFTMAX": "Softmax", "SPLIT": "Split",
    "SLICE": "Slice", "TANH": "TanH", "THRESHOLD": "Threshold", "ACCURACY": "Accuracy", "DATA": "Data",
    "DUMMY_DATA": "DummyData", "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output", "IMAGE_DATA": "ImageData",
    "MEMORY_DATA": "MemoryData", "WINDOW_DATA": "WindowData", "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss", "EUCLIDEAN_LOSS": "EuclideanLoss",
    "HINGE_LOSS": "HingeLoss", "CONTRASTIVE_LOSS": "ContrastiveLoss", "INFOGAIN_LOSS": "InfogainLoss",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss",
}  # fmt: skip
_V0 = {
    "bnll": "BNLL", "concat": "Concat", "conv": "Convolution", "data": "Data", "dropout": "Dropout",
    "euclidean_loss": "EuclideanLoss", "flatten": "Flatten", "hdf5_data": "HDF5Data", "hdf5_output": "HDF5Output",
    "im2col": "Im2col", "images": "ImageData", "infogain_loss": "InfogainLoss", "innerproduct": "InnerProduct",
    "lrn": "LRN", "multinomial_logistic_loss": "MultinomialLogisticLoss", "padding": "Padding", "pool": "Pooling",
    "relu": "ReLU", "sigmoid": "Sigmoid", "softmax": "Softmax", "softmax_loss": "SoftmaxWithLoss", "split": "Split",
    "tanh": "TanH", "window_data": "WindowData", "accuracy": "Accuracy", "hinge_loss": "HingeLoss",
}  # fmt: skip
# Where the first form's parameters are in the later ones.
_V0_PARAMETERS: dict[str, tuple[str, dict[str, str]]] = {
    "conv": (
        "convolution_param",
        {"num_output": "num_output", "biasterm": "bias_term", "pad": "pad", "kernelsize": "kernel_size",
         "group": "group", "stride": "stride"},
    ),
    "pool": ("pooling_param", {"pool": "pool", "kernelsize": "kernel_size", "stride": "stride", "pad": "pad"}),
    "innerproduct": ("inner_product_param", {"num_output": "num_output", "biasterm": "bias_term"}),
    "lrn": ("lrn_param", {"local_size": "local_size", "alpha": "alpha", "beta": "beta", "k": "k"}),
    "concat": ("concat_param", {"concat_dim": "concat_dim"}),
    "padding": ("padding_param", {"pad": "pad"}),
}  # fmt: skip

SOURCES = frozenset(
    (
        "Input",
        "Data",
        "ImageData",
        "HDF5Data",
        "MemoryData",
        "WindowData",
        "DummyData",
        "AnnotatedData",
        "VideoData",
    )
)
"""Layers whose tops are inputs of the network."""
LOSSES = {"SoftmaxWithLoss": "Softmax", "SigmoidCrossEntropyLoss": "Sigmoid"}
"""What remains of a loss where nothing is learnt."""
_TRAINING = frozenset(
    (
        "Accuracy",
        "ContrastiveLoss",
        "DetectionEvaluate",
        "EuclideanLoss",
        "HDF5Output",
        "HingeLoss",
        "InfogainLoss",
        "MultiBoxLoss",
        "MultinomialLogisticLoss",
        "Silence",
        "SmoothL1Loss",
    )
)


@dataclass(frozen=True)
class RawLayer:
    """A layer of any generation in the words of the last one; tops and bottoms are blobs, which layers may overwrite."""

    name: str
    kind: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    message: CaffeMessage
    """Parameters under their names of the last generation."""


def layers_of(net: CaffeMessage) -> list[RawLayer]:
    """All layers of a network that take part in a test run."""
    old, new = net.messages("layers"), net.messages("layer")
    if len(old) + len(new) > _MAX_LAYERS:
        raise ResourceLimitError(f"a network of {len(old) + len(new)} layers")
    if old and new:
        raise InvalidModelError("the network has both 'layers' and 'layer', which no version of Caffe reads")
    return [
        layer
        for number, message in enumerate((*old, *new))
        if _takes_part(message, net.message("state"))
        and (layer := _modern(message, number, bool(old))).kind not in _TRAINING
    ]


def blobs_of(net: CaffeMessage) -> dict[str, tuple[CaffeMessage, ...]]:
    """The blobs of all layers by name, whatever the layers are."""
    blobs: dict[str, tuple[CaffeMessage, ...]] = {}
    for message in (*net.messages("layers"), *net.messages("layer")):
        inner = message.message("layer")
        name = inner.string("name") or message.string("name")
        blobs[name] = inner.messages("blobs") or message.messages("blobs") or blobs.get(name, ())
    return blobs


def _modern(message: CaffeMessage, number: int, old: bool) -> RawLayer:
    inner = message.message("layer") if old and message.has("layer") else None
    name = (inner or message).string("name") or f"layer {number}"
    message = CaffeMessage(message.fields, f"the layer '{name}'")
    bottoms, tops = message.strings("bottom"), message.strings("top")
    if inner is not None:
        written = inner.string("type")
        kind = _V0.get(written, written)
        group, names = _V0_PARAMETERS.get(written, ("", {}))
        given = {names[key]: values for key, values in inner.fields.items() if key in names}
        message = CaffeMessage({group: [CaffeMessage(given)]} if group else {}, message.label)
    elif old:
        value = message.fields.get("type", [""])[-1]
        kind = _V1.get(str(value), str(value))
    else:
        kind = message.string("type")
    if kind == "Python":
        kind = f"Python:{message.message('python_param').string('layer') or '?'}"
    if not kind:
        raise InvalidModelError(f"the layer '{name}' has no type")
    if kind in LOSSES:
        kind, bottoms, tops = LOSSES[kind], bottoms[:1], tops[:1] or (name,)
    return RawLayer(name, kind, bottoms, tops, message)


def _takes_part(message: CaffeMessage, state: CaffeMessage) -> bool:
    include, exclude = message.messages("include"), message.messages("exclude")
    if include:
        return any(_meets(rule, state) for rule in include)
    return not any(_meets(rule, state) for rule in exclude)


def _meets(rule: CaffeMessage, state: CaffeMessage) -> bool:
    """True if a test run meets a rule; level and stages are those that the network states."""
    level, stages = state.int("level"), set(state.strings("stage"))
    phase: Any = rule.enum("phase", ("TRAIN", "TEST"), "TEST")
    return (
        phase == "TEST"
        and rule.int("min_level", level) <= level <= rule.int("max_level", level)
        and stages.issuperset(rule.strings("stage"))
        and stages.isdisjoint(rule.strings("not_stage"))
    )
