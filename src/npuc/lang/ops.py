"""The ops of the `top` dialect as functions. Written by `make docs`: do not edit, change the ops.

`strides`, `dilations`, `pads`, `kernel` and `output_padding` may be one number for all spatial axes; pads of one number
an axis serve both ends. What is left out has the value that is usual: strides of 1, no padding. `name` names the layer.
"""

# ruff: noqa: RUF100, D301, E501

from __future__ import annotations

from collections.abc import Sequence

from npuc.lang.apply import apply
from npuc.lang.tensor import Operand, Tensor

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "arg",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "attention",
    "avg_pool",
    "batch_norm",
    "cast",
    "ceil",
    "celu",
    "clip",
    "compare",
    "concat",
    "conv",
    "cos",
    "cosh",
    "cumsum",
    "deconv",
    "depth_to_space",
    "dequantize",
    "div",
    "elu",
    "erf",
    "exp",
    "expand",
    "floor",
    "gather",
    "gather_elements",
    "gather_nd",
    "gelu",
    "grid_sample",
    "group_norm",
    "gru",
    "hard_sigmoid",
    "hard_swish",
    "instance_norm",
    "l2_norm",
    "layer_norm",
    "leaky_relu",
    "log",
    "log_softmax",
    "logical",
    "lrn",
    "lstm",
    "matmul",
    "max",
    "max_pool",
    "min",
    "mish",
    "mod",
    "mul",
    "neg",
    "not_",
    "one_hot",
    "pad",
    "permute",
    "pow",
    "prelu",
    "quantize",
    "quantized_lstm",
    "reciprocal",
    "reduce",
    "relu",
    "reshape",
    "resize",
    "rms_norm",
    "rnn",
    "round",
    "rsqrt",
    "scale",
    "scatter_elements",
    "scatter_nd",
    "selu",
    "shuffle_channel",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "slice",
    "softmax",
    "softplus",
    "softsign",
    "space_to_depth",
    "split",
    "sqrt",
    "sub",
    "tan",
    "tanh",
    "thresholded_relu",
    "tile",
    "topk",
    "where",
]


def abs(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """|x|"""
    return apply("abs", name, [x], {})[0]

def acos(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """arc cosine"""
    return apply("acos", name, [x], {})[0]

def acosh(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """inverse hyperbolic cosine"""
    return apply("acosh", name, [x], {})[0]

def add(
    a: Operand,
    b: Operand,
    *,
    relu: bool = False,
    relu_limit: float = 0.0,
    name: str = "",
) -> Tensor:
    """a + b"""
    return apply("add", name, [a, b], {"relu": relu, "relu_limit": relu_limit})[0]

def arg(
    x: Operand,
    *,
    max: bool = True,
    axis: int = 0,
    keepdims: bool = True,
    select_last: bool = False,
    name: str = "",
) -> Tensor:
    """The index of the largest (`max`) or smallest value along `axis`; of equal ones the first, or the last."""
    return apply("arg", name, [x], {"max": max, "axis": axis, "keepdims": keepdims, "select_last": select_last})[0]

def asin(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """arc sine"""
    return apply("asin", name, [x], {})[0]

def asinh(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """inverse hyperbolic sine"""
    return apply("asinh", name, [x], {})[0]

def atan(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """arc tangent"""
    return apply("atan", name, [x], {})[0]

def atanh(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """inverse hyperbolic tangent"""
    return apply("atanh", name, [x], {})[0]

def attention(
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None = None,
    *,
    scale: float,
    name: str = "",
) -> Tensor:
    """softmax(scale * query @ key^T + mask) @ value, for each batch and head.

    query is batch x heads x L x E, key batch x heads x S x E, value batch x heads x S x V; the mask broadcasts to
    batch x heads x L x S and is added.
    """
    return apply("attention", name, [query, key, value, mask], {"scale": scale})[0]

def avg_pool(
    x: Operand,
    *,
    kernel: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    pads: int | Sequence[int] | None = None,
    dilations: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    name: str = "",
) -> Tensor:
    """The mean of each window, over its real positions or (`count_include_pad`) over those in the padded input."""
    return apply("avg_pool", name, [x], {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations, "ceil_mode": ceil_mode, "count_include_pad": count_include_pad})[0]

def batch_norm(
    x: Operand,
    scale: Operand,
    bias: Operand,
    mean: Operand,
    variance: Operand,
    *,
    epsilon: float = 1e-05,
    name: str = "",
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, a channel (axis 1)"""
    return apply("batch_norm", name, [x, scale, bias, mean, variance], {"epsilon": epsilon})[0]

def cast(
    x: Operand,
    *,
    to: str,
    name: str = "",
) -> Tensor:
    """x with its elements converted to the type `to`."""
    return apply("cast", name, [x], {"to": to})[0]

def ceil(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """the smallest integer that is not below x"""
    return apply("ceil", name, [x], {})[0]

def celu(
    x: Operand,
    *,
    alpha: float = 1.0,
    name: str = "",
) -> Tensor:
    """max(0, x) + min(0, alpha * (e^(x / alpha) - 1))"""
    return apply("celu", name, [x], {"alpha": alpha})[0]

def clip(
    x: Operand,
    *,
    min: float,
    max: float,
    name: str = "",
) -> Tensor:
    """x limited to [min, max]; an infinite bound is no bound."""
    return apply("clip", name, [x], {"min": min, "max": max})[0]

def compare(
    a: Operand,
    b: Operand,
    *,
    mode: str,
    name: str = "",
) -> Tensor:
    """a <mode> b as booleans; `mode` is equal, less, less_equal, greater or greater_equal."""
    return apply("compare", name, [a, b], {"mode": mode})[0]

def concat(
    inputs: Sequence[Operand],
    *,
    axis: int,
    name: str = "",
) -> Tensor:
    """Tensors laid end to end along `axis`."""
    return apply("concat", name, [inputs], {"axis": axis})[0]

def conv(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    *,
    strides: int | Sequence[int] | None = None,
    pads: int | Sequence[int] | None = None,
    dilations: int | Sequence[int] | None = None,
    group: int = 1,
    relu: bool = False,
    relu_limit: float = 0.0,
    name: str = "",
) -> Tensor:
    """Cross-correlation; the weight is output channels x (input channels / group) x kernel."""
    return apply("conv", name, [x, weight, bias], {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "relu": relu, "relu_limit": relu_limit})[0]

def cos(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """cosine"""
    return apply("cos", name, [x], {})[0]

def cosh(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """hyperbolic cosine"""
    return apply("cosh", name, [x], {})[0]

def cumsum(
    x: Operand,
    *,
    axis: int,
    exclusive: bool = False,
    reverse: bool = False,
    name: str = "",
) -> Tensor:
    """Running sums along `axis`, from the front or (`reverse`) the back, with or without (`exclusive`) the element."""
    return apply("cumsum", name, [x], {"axis": axis, "exclusive": exclusive, "reverse": reverse})[0]

def deconv(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    *,
    strides: int | Sequence[int] | None = None,
    pads: int | Sequence[int] | None = None,
    dilations: int | Sequence[int] | None = None,
    group: int = 1,
    relu: bool = False,
    relu_limit: float = 0.0,
    output_padding: int | Sequence[int] | None = None,
    name: str = "",
) -> Tensor:
    """Transposed convolution; the weight is input channels x (output channels / group) x kernel."""
    return apply("deconv", name, [x, weight, bias], {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "relu": relu, "relu_limit": relu_limit, "output_padding": output_padding})[0]

def depth_to_space(
    x: Operand,
    *,
    block: int,
    mode: str = "DCR",
    name: str = "",
) -> Tensor:
    """Channels moved into blocks of pixels; `mode` is DCR (block index outermost) or CRD (pixel shuffle)."""
    return apply("depth_to_space", name, [x], {"block": block, "mode": mode})[0]

def dequantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand | None = None,
    *,
    axis: int = 1,
    name: str = "",
) -> Tensor:
    """(x - zero_point) * scale"""
    return apply("dequantize", name, [x, scale, zero_point], {"axis": axis})[0]

def div(
    a: Operand,
    b: Operand,
    *,
    name: str = "",
) -> Tensor:
    """a / b; integers truncate."""
    return apply("div", name, [a, b], {})[0]

def elu(
    x: Operand,
    *,
    alpha: float = 1.0,
    name: str = "",
) -> Tensor:
    """x if x >= 0 else alpha * (e^x - 1)"""
    return apply("elu", name, [x], {"alpha": alpha})[0]

def erf(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """the error function of x"""
    return apply("erf", name, [x], {})[0]

def exp(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """e^x"""
    return apply("exp", name, [x], {})[0]

def expand(
    x: Operand,
    *,
    shape: int | Sequence[int],
    name: str = "",
) -> Tensor:
    """x broadcast to `shape`."""
    return apply("expand", name, [x], {"shape": shape})[0]

def floor(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """the largest integer that is not above x"""
    return apply("floor", name, [x], {})[0]

def gather(
    x: Operand,
    indices: Operand,
    *,
    axis: int = 0,
    name: str = "",
) -> Tensor:
    """Slices of x along `axis`, chosen by an index tensor; negative indices count from the end."""
    return apply("gather", name, [x, indices], {"axis": axis})[0]

def gather_elements(
    x: Operand,
    indices: Operand,
    *,
    axis: int = 0,
    name: str = "",
) -> Tensor:
    """y[i][j] = x[indices[i][j]][j] (for axis 0)"""
    return apply("gather_elements", name, [x, indices], {"axis": axis})[0]

def gather_nd(
    x: Operand,
    indices: Operand,
    *,
    batch_dims: int = 0,
    name: str = "",
) -> Tensor:
    """Slices of x chosen by index tuples in the last axis of `indices`."""
    return apply("gather_nd", name, [x, indices], {"batch_dims": batch_dims})[0]

def gelu(
    x: Operand,
    *,
    tanh: bool = False,
    name: str = "",
) -> Tensor:
    """x * Phi(x), exact or by the tanh approximation"""
    return apply("gelu", name, [x], {"tanh": tanh})[0]

def grid_sample(
    x: Operand,
    grid: Operand,
    *,
    mode: str = "linear",
    padding: str = "zeros",
    align_corners: bool = False,
    name: str = "",
) -> Tensor:
    """x (N x C x spatial) sampled at the points of a grid (N x spatial' x rank) of coordinates in [-1, 1]."""
    return apply("grid_sample", name, [x, grid], {"mode": mode, "padding": padding, "align_corners": align_corners})[0]

def group_norm(
    x: Operand,
    scale: Operand | None = None,
    bias: Operand | None = None,
    *,
    groups: int,
    epsilon: float = 1e-05,
    name: str = "",
) -> Tensor:
    """Zero mean and unit variance over spatial axes and the channels of a group; scale and bias per channel."""
    return apply("group_norm", name, [x, scale, bias], {"epsilon": epsilon, "groups": groups})[0]

def gru(
    x: Operand,
    weight: Operand,
    recurrence: Operand,
    bias: Operand | None = None,
    sequence_lengths: Operand | None = None,
    initial_h: Operand | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float = 0.0,
    linear_before_reset: bool = False,
    name: str = "",
) -> tuple[Tensor, ...]:
    """A gated recurrent unit; gates in the order z r h."""
    return apply("gru", name, [x, weight, recurrence, bias, sequence_lengths, initial_h], {"hidden": hidden, "direction": direction, "activations": activations, "activation_alpha": activation_alpha, "activation_beta": activation_beta, "clip": clip, "linear_before_reset": linear_before_reset})

def hard_sigmoid(
    x: Operand,
    *,
    alpha: float = 0.2,
    beta: float = 0.5,
    name: str = "",
) -> Tensor:
    """min(1, max(0, alpha * x + beta))"""
    return apply("hard_sigmoid", name, [x], {"alpha": alpha, "beta": beta})[0]

def hard_swish(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """x * min(1, max(0, x / 6 + 1/2))"""
    return apply("hard_swish", name, [x], {})[0]

def instance_norm(
    x: Operand,
    scale: Operand | None = None,
    bias: Operand | None = None,
    *,
    epsilon: float = 1e-05,
    name: str = "",
) -> Tensor:
    """Zero mean and unit variance over the spatial axes; scale and bias per channel."""
    return apply("instance_norm", name, [x, scale, bias], {"epsilon": epsilon})[0]

def l2_norm(
    x: Operand,
    *,
    axis: int = -1,
    epsilon: float = 0.0,
    name: str = "",
) -> Tensor:
    """x / max(sqrt(sum(x^2)), epsilon) along `axis`; zeros stay zeros"""
    return apply("l2_norm", name, [x], {"axis": axis, "epsilon": epsilon})[0]

def layer_norm(
    x: Operand,
    scale: Operand | None = None,
    bias: Operand | None = None,
    *,
    epsilon: float = 1e-05,
    axis: int = -1,
    name: str = "",
) -> Tensor:
    """Zero mean and unit variance over the axes from `axis` on; scale and bias have those axes' shape."""
    return apply("layer_norm", name, [x, scale, bias], {"epsilon": epsilon, "axis": axis})[0]

def leaky_relu(
    x: Operand,
    *,
    alpha: float = 0.01,
    name: str = "",
) -> Tensor:
    """x if x >= 0 else alpha * x"""
    return apply("leaky_relu", name, [x], {"alpha": alpha})[0]

def log(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """the natural logarithm of x"""
    return apply("log", name, [x], {})[0]

def log_softmax(
    x: Operand,
    *,
    axis: int = -1,
    name: str = "",
) -> Tensor:
    """log(softmax(x)) along `axis`"""
    return apply("log_softmax", name, [x], {"axis": axis})[0]

def logical(
    a: Operand,
    b: Operand,
    *,
    mode: str,
    name: str = "",
) -> Tensor:
    """a <mode> b on booleans; `mode` is and, or, xor."""
    return apply("logical", name, [a, b], {"mode": mode})[0]

def lrn(
    x: Operand,
    *,
    size: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 1.0,
    name: str = "",
) -> Tensor:
    """x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta"""
    return apply("lrn", name, [x], {"size": size, "alpha": alpha, "beta": beta, "bias": bias})[0]

def lstm(
    x: Operand,
    weight: Operand,
    recurrence: Operand,
    bias: Operand | None = None,
    sequence_lengths: Operand | None = None,
    initial_h: Operand | None = None,
    initial_c: Operand | None = None,
    peephole: Operand | None = None,
    projection: Operand | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float = 0.0,
    input_forget: bool = False,
    name: str = "",
) -> tuple[Tensor, ...]:
    """Long short-term memory; gates in the order i o f c. A third result is the last cell state.

    `projection`, directions x outputs x hidden, makes the outputs of what the units give; ONNX has none.
    """
    return apply("lstm", name, [x, weight, recurrence, bias, sequence_lengths, initial_h, initial_c, peephole, projection], {"hidden": hidden, "direction": direction, "activations": activations, "activation_alpha": activation_alpha, "activation_beta": activation_beta, "clip": clip, "input_forget": input_forget})

def matmul(
    a: Operand,
    b: Operand,
    bias: Operand | None = None,
    *,
    transpose_b: bool = False,
    relu: bool = False,
    relu_limit: float = 0.0,
    name: str = "",
) -> Tensor:
    """a @ b + bias over the last two axes, the rest broadcast; relu is fused.

    Both operands have rank 2 or more. `transpose_b` reads b as (..., N, K). The bias is [N].
    """
    return apply("matmul", name, [a, b, bias], {"transpose_b": transpose_b, "relu": relu, "relu_limit": relu_limit})[0]

def max(
    a: Operand,
    b: Operand,
    *,
    name: str = "",
) -> Tensor:
    """max(a, b)"""
    return apply("max", name, [a, b], {})[0]

def max_pool(
    x: Operand,
    *,
    kernel: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    pads: int | Sequence[int] | None = None,
    dilations: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
    name: str = "",
) -> Tensor:
    """The maximum of each window; padding never wins."""
    return apply("max_pool", name, [x], {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations, "ceil_mode": ceil_mode})[0]

def min(
    a: Operand,
    b: Operand,
    *,
    name: str = "",
) -> Tensor:
    """min(a, b)"""
    return apply("min", name, [a, b], {})[0]

def mish(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """x * tanh(softplus(x))"""
    return apply("mish", name, [x], {})[0]

def mod(
    a: Operand,
    b: Operand,
    *,
    fmod: bool = False,
    name: str = "",
) -> Tensor:
    """The remainder of a / b: with the sign of b, or of a (`fmod`)."""
    return apply("mod", name, [a, b], {"fmod": fmod})[0]

def mul(
    a: Operand,
    b: Operand,
    *,
    relu: bool = False,
    relu_limit: float = 0.0,
    name: str = "",
) -> Tensor:
    """a * b"""
    return apply("mul", name, [a, b], {"relu": relu, "relu_limit": relu_limit})[0]

def neg(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """-x"""
    return apply("neg", name, [x], {})[0]

def not_(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """not x, on booleans"""
    return apply("not", name, [x], {})[0]

def one_hot(
    indices: Operand,
    values: Operand,
    *,
    depth: int,
    axis: int = -1,
    name: str = "",
) -> Tensor:
    """A new axis of size `depth` that holds values[1] at the index and values[0] elsewhere."""
    return apply("one_hot", name, [indices, values], {"depth": depth, "axis": axis})[0]

def pad(
    x: Operand,
    *,
    pads: int | Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
    name: str = "",
) -> Tensor:
    """x with a border: constant (`value`), reflect, edge or wrap; negative pads crop."""
    return apply("pad", name, [x], {"pads": pads, "mode": mode, "value": value})[0]

def permute(
    x: Operand,
    *,
    order: int | Sequence[int],
    name: str = "",
) -> Tensor:
    """Axes reordered: axis i of the result is axis `order[i]` of x."""
    return apply("permute", name, [x], {"order": order})[0]

def pow(
    a: Operand,
    b: Operand,
    *,
    name: str = "",
) -> Tensor:
    """a to the power of b; the exponent may have a type of its own."""
    return apply("pow", name, [a, b], {})[0]

def prelu(
    x: Operand,
    slope: Operand,
    *,
    name: str = "",
) -> Tensor:
    """x if x >= 0 else slope * x, the slope broadcast to x."""
    return apply("prelu", name, [x, slope], {})[0]

def quantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand | None = None,
    *,
    axis: int = 1,
    to: str = "ui8",
    name: str = "",
) -> Tensor:
    """saturate(round_half_even(x / scale) + zero_point) in the type `to`"""
    return apply("quantize", name, [x, scale, zero_point], {"axis": axis, "to": to})[0]

def quantized_lstm(
    x: Operand,
    weight: Operand,
    recurrence: Operand,
    bias: Operand,
    peephole: Operand | None = None,
    norm_weight: Operand | None = None,
    norm_bias: Operand | None = None,
    projection: Operand | None = None,
    projection_bias: Operand | None = None,
    *,
    x_parameters: Sequence[float],
    y_parameters: Sequence[float],
    integer_bits: int,
    first_h: int,
    gate_scales: int | Sequence[int],
    hidden_scale: int | Sequence[int],
    time_major: bool = False,
    cell_clip: int = 0,
    peephole_scales: int | Sequence[int] = (),
    norm_scales: int | Sequence[int] = (),
    projection_scale: int | Sequence[int] = (),
    name: str = "",
) -> Tensor:
    """TFLite's integer LSTM: int8 activations and weights, int16 gates and cells, to the bit of LiteRT's kernel.

    `x` and the result are samples x steps x width, or steps x samples x width if `time_major`; they are reals in steps of
    `x_parameters` and `y_parameters` (scale and zero point), or integers of these types. Weights have a row for each gate (input,
    forget, cell, output; without the first if it is coupled to the second) and cell; `bias` is 2 x rows, of x and of the state.
    `gate_scales` are multiplier and shift of x, then of the state, for each gate. `npuc.arithmetic.quantized_lstm` has the rest.
    """
    return apply("quantized_lstm", name, [x, weight, recurrence, bias, peephole, norm_weight, norm_bias, projection, projection_bias], {"time_major": time_major, "x_parameters": x_parameters, "y_parameters": y_parameters, "integer_bits": integer_bits, "cell_clip": cell_clip, "first_h": first_h, "gate_scales": gate_scales, "hidden_scale": hidden_scale, "peephole_scales": peephole_scales, "norm_scales": norm_scales, "projection_scale": projection_scale})[0]

def reciprocal(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """1 / x"""
    return apply("reciprocal", name, [x], {})[0]

def reduce(
    x: Operand,
    *,
    kind: str,
    axes: int | Sequence[int],
    keepdims: bool = True,
    name: str = "",
) -> Tensor:
    """`kind` of the values over `axes`: mean, sum, max, min, prod, l1, l2, sum_square, log_sum or log_sum_exp."""
    return apply("reduce", name, [x], {"kind": kind, "axes": axes, "keepdims": keepdims})[0]

def relu(
    x: Operand,
    *,
    limit: float = 0.0,
    name: str = "",
) -> Tensor:
    """max(x, 0), and at most `limit` where that is positive."""
    return apply("relu", name, [x], {"limit": limit})[0]

def reshape(
    x: Operand,
    *,
    shape: int | Sequence[int],
    name: str = "",
) -> Tensor:
    """The same elements in the same order under another shape."""
    return apply("reshape", name, [x], {"shape": shape})[0]

def resize(
    x: Operand,
    *,
    sizes: int | Sequence[int],
    mode: str,
    scales: Sequence[float] = (),
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    cubic_coefficient: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    name: str = "",
) -> Tensor:
    """x resized to `sizes` on every axis, by nearest, linear or cubic interpolation.

    `coordinates` and `rounding` (of nearest) are ONNX's transformation modes. `scales` is empty if the factors are
    sizes / input sizes; it is kept where a model states factors, because ONNX computes coordinates with those.
    """
    return apply("resize", name, [x], {"sizes": sizes, "scales": scales, "mode": mode, "coordinates": coordinates, "rounding": rounding, "cubic_coefficient": cubic_coefficient, "exclude_outside": exclude_outside, "antialias": antialias})[0]

def rms_norm(
    x: Operand,
    scale: Operand | None = None,
    bias: Operand | None = None,
    *,
    epsilon: float = 1e-05,
    axis: int = -1,
    name: str = "",
) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on."""
    return apply("rms_norm", name, [x, scale, bias], {"epsilon": epsilon, "axis": axis})[0]

def rnn(
    x: Operand,
    weight: Operand,
    recurrence: Operand,
    bias: Operand | None = None,
    sequence_lengths: Operand | None = None,
    initial_h: Operand | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float = 0.0,
    name: str = "",
) -> tuple[Tensor, ...]:
    """A simple recurrent layer."""
    return apply("rnn", name, [x, weight, recurrence, bias, sequence_lengths, initial_h], {"hidden": hidden, "direction": direction, "activations": activations, "activation_alpha": activation_alpha, "activation_beta": activation_beta, "clip": clip})

def round(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """x rounded to the nearest integer, ties to even"""
    return apply("round", name, [x], {})[0]

def rsqrt(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """1 / sqrt(x)"""
    return apply("rsqrt", name, [x], {})[0]

def scale(
    x: Operand,
    scale: Operand,
    bias: Operand,
    *,
    relu: bool = False,
    relu_limit: float = 0.0,
    name: str = "",
) -> Tensor:
    """x * scale + bias, a channel (axis 1); relu is fused."""
    return apply("scale", name, [x, scale, bias], {"relu": relu, "relu_limit": relu_limit})[0]

def scatter_elements(
    x: Operand,
    indices: Operand,
    updates: Operand,
    *,
    reduction: str = "none",
    axis: int = 0,
    name: str = "",
) -> Tensor:
    """y[indices[i][j]][j] = updates[i][j] (for axis 0)"""
    return apply("scatter_elements", name, [x, indices, updates], {"reduction": reduction, "axis": axis})[0]

def scatter_nd(
    x: Operand,
    indices: Operand,
    updates: Operand,
    *,
    reduction: str = "none",
    name: str = "",
) -> Tensor:
    """Slices of x replaced at the index tuples in the last axis of `indices`."""
    return apply("scatter_nd", name, [x, indices, updates], {"reduction": reduction})[0]

def selu(
    x: Operand,
    *,
    alpha: float = 1.6732631921768188,
    gamma: float = 1.0507010221481323,
    name: str = "",
) -> Tensor:
    """gamma * (x if x > 0 else alpha * (e^x - 1))"""
    return apply("selu", name, [x], {"alpha": alpha, "gamma": gamma})[0]

def shuffle_channel(
    x: Operand,
    *,
    group: int,
    name: str = "",
) -> Tensor:
    """Channels interleaved between `group` groups: channel g * n + i becomes i * group + g."""
    return apply("shuffle_channel", name, [x], {"group": group})[0]

def sigmoid(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """1 / (1 + e^-x)"""
    return apply("sigmoid", name, [x], {})[0]

def sign(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """-1, 0 or 1"""
    return apply("sign", name, [x], {})[0]

def silu(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """x * sigmoid(x)"""
    return apply("silu", name, [x], {})[0]

def sin(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """sine"""
    return apply("sin", name, [x], {})[0]

def sinh(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """hyperbolic sine"""
    return apply("sinh", name, [x], {})[0]

def slice(
    x: Operand,
    *,
    offset: int | Sequence[int],
    steps: int | Sequence[int],
    shape: int | Sequence[int],
    name: str = "",
) -> Tensor:
    """Every `steps`-th element from `offset`, `shape` of them, on every axis; a negative step runs backwards."""
    return apply("slice", name, [x], {"offset": offset, "steps": steps, "shape": shape})[0]

def softmax(
    x: Operand,
    *,
    axis: int = -1,
    name: str = "",
) -> Tensor:
    """e^x / sum(e^x) along `axis`"""
    return apply("softmax", name, [x], {"axis": axis})[0]

def softplus(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """log(1 + e^x)"""
    return apply("softplus", name, [x], {})[0]

def softsign(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """x / (1 + |x|)"""
    return apply("softsign", name, [x], {})[0]

def space_to_depth(
    x: Operand,
    *,
    block: int,
    name: str = "",
) -> Tensor:
    """Blocks of pixels moved into channels, block index outermost."""
    return apply("space_to_depth", name, [x], {"block": block})[0]

def split(
    x: Operand,
    *,
    axis: int,
    sizes: int | Sequence[int],
    name: str = "",
) -> tuple[Tensor, ...]:
    """x cut along `axis` into parts of `sizes`."""
    return apply("split", name, [x], {"axis": axis, "sizes": sizes})

def sqrt(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """the square root of x"""
    return apply("sqrt", name, [x], {})[0]

def sub(
    a: Operand,
    b: Operand,
    *,
    relu: bool = False,
    relu_limit: float = 0.0,
    name: str = "",
) -> Tensor:
    """a - b"""
    return apply("sub", name, [a, b], {"relu": relu, "relu_limit": relu_limit})[0]

def tan(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """tangent"""
    return apply("tan", name, [x], {})[0]

def tanh(
    x: Operand,
    *,
    name: str = "",
) -> Tensor:
    """hyperbolic tangent"""
    return apply("tanh", name, [x], {})[0]

def thresholded_relu(
    x: Operand,
    *,
    alpha: float = 1.0,
    name: str = "",
) -> Tensor:
    """x if x > alpha else 0"""
    return apply("thresholded_relu", name, [x], {"alpha": alpha})[0]

def tile(
    x: Operand,
    *,
    repeats: int | Sequence[int],
    name: str = "",
) -> Tensor:
    """x repeated `repeats` times along each axis."""
    return apply("tile", name, [x], {"repeats": repeats})[0]

def topk(
    x: Operand,
    *,
    k: int,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
    name: str = "",
) -> tuple[Tensor, ...]:
    """The `k` largest (or smallest) values along `axis`, in order, and their indices."""
    return apply("topk", name, [x], {"k": k, "axis": axis, "largest": largest, "sorted": sorted})

def where(
    condition: Operand,
    a: Operand,
    b: Operand,
    *,
    name: str = "",
) -> Tensor:
    """condition ? a : b under broadcasting."""
    return apply("where", name, [condition, a, b], {})[0]
