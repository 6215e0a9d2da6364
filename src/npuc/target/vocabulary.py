"""The words that limits are written in: op kinds, the parameters of each, and the machine's own figures.

An op kind is finer than an IR op where hardware is: a depthwise convolution is not a `conv`, and nearest and linear
resizing are two kinds. Every parameter is a number. Axes are counted in the order N, C, H, W whatever the layout in
memory; sizes that a tensor does not have are 1, and flags are 0 or 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from npuc.errors import PluginError
from npuc.registries import Registry

COMMON = {
    "n": "batch",
    "ic": "input channels",
    "ih": "input height",
    "iw": "input width",
    "on": "batch of the output",
    "oc": "output channels",
    "oh": "output height",
    "ow": "output width",
    "rank": "dimensions of the first input",
    "activation_bits": "width of an activation",
}
"""Parameters that every op kind has."""

_WINDOW = {
    "kh": "kernel height",
    "kw": "kernel width",
    "sh": "stride, vertical",
    "sw": "stride, horizontal",
    "dh": "dilation, vertical",
    "dw": "dilation, horizontal",
    "pad_top": "padding above",
    "pad_left": "padding on the left",
    "pad_bottom": "padding below",
    "pad_right": "padding on the right",
}
_DEPTH = {
    "id": "input depth",
    "od": "output depth",
    "kd": "kernel depth",
    "sd": "stride in depth",
    "dd": "dilation in depth",
    "pad_front": "padding in front",
    "pad_back": "padding behind",
}
_CONVOLUTION = _WINDOW | {"group": "groups", "weight_bits": "width of a weight"}
_TRANSPOSED = _CONVOLUTION | {
    "output_padding_h": "rows added at the bottom",
    "output_padding_w": "columns added on the right",
}
_POOL = _WINDOW | {"count_include_pad": "1 if padding counts in an average"}
_BINARY = {
    "broadcast": "1 if the shapes of the inputs differ",
    "constant_operand": "1 if one input is a constant",
}
_AXIS = {"axis": "the axis it runs along"}
_RESIZE = {
    "scale_h": "output height / input height",
    "scale_w": "output width / input width",
    "half_pixel": "1 if pixel centers are at one half",
    "align_corners": "1 if the corners of input and output coincide",
}
_REDUCE = {f"reduce_{axis}": f"1 if {axis.upper()} is reduced" for axis in "nchw"}
_PAD = {
    "pad_top": "rows added above",
    "pad_left": "columns added on the left",
    "pad_bottom": "rows added below",
    "pad_right": "columns added on the right",
    "pad_n": "entries added along N",
    "pad_c": "channels added",
}
_RECURRENT = {
    "hidden": "hidden size",
    "steps": "time steps",
    "directions": "1, or 2 if it runs both ways",
    "weight_bits": "width of a weight",
}
_UNARY = (
    "relu",
    "leaky_relu",
    "prelu",
    "thresholded_relu",
    "clip",
    "elu",
    "celu",
    "selu",
    "sigmoid",
    "hard_sigmoid",
    "tanh",
    "silu",
    "hard_swish",
    "gelu",
    "mish",
    "softplus",
    "softsign",
    "exp",
    "log",
    "sqrt",
    "reciprocal",
    "abs",
    "neg",
    "sign",
    "erf",
    "sin",
    "cos",
    "floor",
    "ceil",
    "round",
    "not",
    "pow_scalar",
)


def _kinds() -> dict[str, dict[str, str]]:
    kinds: dict[str, dict[str, str]] = {
        "conv": _CONVOLUTION,
        "depthwise_conv": _CONVOLUTION,
        "deconv": _TRANSPOSED,
        "depthwise_deconv": _TRANSPOSED,
        "conv3d": _CONVOLUTION | _DEPTH,
        "depthwise_conv3d": _CONVOLUTION | _DEPTH,
        "deconv3d": _TRANSPOSED | _DEPTH,
        "depthwise_deconv3d": _TRANSPOSED | _DEPTH,
        "matmul": {
            "batch": "matrices in each operand",
            "rows": "rows of the first matrix",
            "inner": "the dimension that is summed over",
            "columns": "columns of the second matrix",
            "constant_operand": "1 if the second matrix is a weight",
            "weight_bits": "width of a weight",
        },
        "attention": {
            "heads": "heads",
            "queries": "query length",
            "keys": "key length",
            "width": "head size",
        },
        "max_pool": _POOL,
        "avg_pool": _POOL,
        "max_pool3d": _POOL | _DEPTH,
        "avg_pool3d": _POOL | _DEPTH,
        "softmax": _AXIS,
        "log_softmax": _AXIS,
        "layer_norm": {},
        "rms_norm": {},
        "instance_norm": {},
        "group_norm": {"group": "groups"},
        "l2_norm": _AXIS,
        "lrn": {"size": "channels in a window"},
        "scale": {},
        "concat": _AXIS | {"inputs": "tensors that are joined"},
        "split": _AXIS | {"outputs": "tensors that come out"},
        "slice": {f"step_{axis}": f"step along {axis.upper()}" for axis in "nchw"},
        "pad_constant": _PAD,
        "pad_reflect": _PAD,
        "pad_edge": _PAD,
        "pad_wrap": _PAD,
        "permute": {f"source_{axis}": f"which input axis {axis.upper()} comes from" for axis in "nchw"},
        "reshape": {},
        "expand": {},
        "tile": {f"repeat_{axis}": f"copies along {axis.upper()}" for axis in "nchw"},
        "depth_to_space": {"block": "block size"},
        "space_to_depth": {"block": "block size"},
        "shuffle_channel": {"group": "groups"},
        "resize_nearest": _RESIZE,
        "resize_linear": _RESIZE,
        "resize_cubic": _RESIZE,
        "grid_sample": {},
        "gather": _AXIS | {"indices": "how many entries are taken"},
        "scatter": _AXIS,
        "where": _BINARY,
        "compare": _BINARY,
        "logical": _BINARY,
        "argmax": _AXIS,
        "argmin": _AXIS,
        "topk": _AXIS | {"count": "how many are kept"},
        "cumsum": _AXIS,
        "lstm": _RECURRENT,
        "gru": _RECURRENT,
        "rnn": _RECURRENT,
        "cast": {},
        "requant": {},
    }
    kinds |= dict.fromkeys(("add", "sub", "mul", "div", "max", "min", "mod", "pow"), _BINARY)
    kinds |= dict.fromkeys(
        (f"reduce_{name}" for name in ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square")),
        _REDUCE,
    )
    kinds |= {name: {} for name in _UNARY}
    return {name: COMMON | own for name, own in kinds.items()}


OP_KINDS: Registry[str, Mapping[str, str]] = Registry("an op kind", _kinds())
"""Op kind to its parameters, each with its meaning."""


def add_op_kind(name: str, parameters: Mapping[str, str] | None = None, *, replace: bool = False) -> None:
    """Let target files speak of an op kind that a plugin brings, with parameters beside the common ones."""
    wrong = next((key for key in (name, *(parameters or ())) if not key.isidentifier()), None)
    if wrong is not None:
        raise PluginError(
            f"an op kind or a parameter of one cannot be called '{wrong}'", fix="Use names like 'hard_glu'"
        )
    OP_KINDS.add([name], COMMON | dict(parameters or {}), replace=replace)


MACHINE = MappingProxyType(
    {
        "cores": "cores",
        "input_lanes": "input channels that the array takes at a time",
        "output_lanes": "output channels that the array makes at a time",
        "pixel_lanes": "pixels that the array works on at a time",
        "vector_lanes": "elements that the vector unit works on at a time",
        "local_bytes": "local memory of a core",
        "banks": "banks of the local memory",
        "bank_bytes": "bytes in a bank",
        "alignment": "alignment in local memory",
        "shared_bytes": "shared on-chip memory, 0 if there is none",
    }
)
"""Figures of the machine that every expression may use."""

ACTIVATION_FORMS = ("hard-sigmoid", "hard-swish", "relu6-to-relu", "leaky-26-256")
"""Forms of activations that hardware has in the place of others (the pass `hardware-activations`)."""
ACTIVATIONS = (
    "relu",
    "relu6",
    "leaky_relu",
    "prelu",
    "clip",
    "hard_sigmoid",
    "hard_swish",
    "sigmoid",
    "tanh",
    "table",
)
"""Functions that an op's output stage can have fused."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The most similar known word as the end of a sentence, or nothing.

    >>> nearest("cnov", OP_KINDS)
    "; did you mean 'conv'?"
    """
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{matches[0]}'?" if matches else ""
