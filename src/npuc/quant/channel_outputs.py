"""Outputs with one scale a channel: a convolution or a product with constant weights that ends at an output.

Channels of very different magnitudes, such as boxes and scores that one convolution makes, share the scale of their tensor, and
the small ones are left with few steps. Here the layer computes each channel divided by a factor r_c of its own, so that all
channels fill the range of one scale S, and a float multiplication behind it brings the magnitudes back:

    y = conv(x, w, b)    becomes    v = conv(x, w_c / r_c, b_c / r_c),    y_c = r_c * v_c

The integers of v stand for the reals S * (q - z), so those of channel c of the output have the scale r_c * S. The division is in
the requantization multiplier of each channel, which layers with constant weights have anyway. Factors are powers of two: both
networks then compute the same floats, no product is rounded twice, and a channel has up to twice the range that data showed.

Example: channels that reach 100 and 0.5 get the factors 1 and 2^-7. With 8 bits the steps of the output are 0.79 and 0.006,
where a common scale would have steps of 0.79 for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.calib.samples import batch_size
from npuc.calib.sources import Source
from npuc.engine import float_engine
from npuc.errors import QuantizationError
from npuc.ir import Graph, layer_name, shape_of, top, value_name
from npuc.ir.names import location
from npuc.quant.patterns import layer_names, matches
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.quant.config import QuantizationConfig

FLOAT_REASON = "it gives each channel of the output its magnitude: per_channel_outputs"
"""Why the multiplication stays float."""
_LEAST = 2.0**-24
"""The least factor: channels that are smaller, or zero on all data, are as if they were of that size."""


@dataclass(frozen=True)
class ChannelOutputs:
    """A network whose outputs have one scale a channel."""

    graph: Graph
    config: QuantizationConfig
    """With the multiplications in float; `per_channel_outputs` is done with."""
    multiplications: tuple[str, ...] = ()
    """The names of the outputs that were changed."""
    notes: tuple[str, ...] = ()


def candidates(graph: Graph) -> dict[str, Any]:
    """Outputs that can have one scale a channel, each with the layer that makes it and nothing else reads."""
    layers: dict[str, Any] = {}
    for port in graph.outputs:
        op: Any = port.value.owner
        if not isinstance(op, top.Conv | top.Deconv | top.MatMul) or not port.value.has_one_use():
            continue
        weight = graph.constant(_weight(op))
        grouped = (
            isinstance(op, top.Deconv) and op.group > 1
        )  # an axis of its weights is shared by all groups
        limited = op.relu and op.relu_limit > 0
        constant = op.bias is None or graph.constant(op.bias) is not None
        matrix = isinstance(op, top.MatMul) and weight is not None and weight.ndim != 2
        if weight is not None and constant and not (grouped or limited or matrix):
            layers[value_name(port.value)] = op
    return layers


def with_channel_outputs(
    graph: Graph,
    source: Source,
    config: QuantizationConfig,
    *,
    threads: int | None = None,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
) -> tuple[ChannelOutputs, Source]:
    """The network with one scale a channel at the outputs that allow it, from magnitudes on data; and the data once more."""
    config = config.model_copy(update={"per_channel_outputs": False})
    layers = candidates(graph)
    if not layers:
        raise QuantizationError(
            "per_channel_outputs: no output is made by a convolution or a product with constant weights, without a limit such as "
            "that of relu6, that nothing else reads",
            fix="Leave it out, or cut the network at such a layer",
        )
    if iter(source.items) is source.items:  # data that can be read once
        source = replace(source, items=list(source.items))
    sizes = _magnitudes(graph, layers, Feeder(graph, source, strict, warn or (lambda text: None)), threads)
    factors = {name: _factors(sizes[name]) for name in layers}
    changed = scaled(graph, factors)
    levels: dict[str, Any] = {}
    aliases = graph.layer_aliases()
    for name, op in layers.items():
        # What is said of the layer by the name of the output holds for the layer.
        for pattern, level in config.layers.items():
            if matches(pattern, layer_names(op, aliases)):
                levels[inner_name(name)] = level
    others = {pattern: level for pattern, level in config.layers.items() if pattern not in layers}
    # The last one that matches counts.
    config = config.model_copy(update={"layers": {**others, **levels, **dict.fromkeys(layers, "float")}})
    return ChannelOutputs(changed, config, tuple(layers), tuple(map(_words, factors.items()))), source


def inner_name(name: str) -> str:
    """What the layer computes in place of the output."""
    return f"{name}/per_channel"


def scaled(graph: Graph, factors: Mapping[str, Array]) -> Graph:
    """A copy of the network in which layers divide their channels by factors, and multiplications behind them undo it."""
    new = graph.copy()
    layers = candidates(new)
    for name, factor in factors.items():
        op = layers[name]
        weight = _weight(op)
        array = np.asarray(new.constant(weight), np.float64)
        spread = np.ones(array.ndim, int)
        spread[_output_axis(op)] = factor.size
        parts = [(weight, array / factor.reshape(spread))]
        if op.bias is not None:
            parts.append((op.bias, np.asarray(new.constant(op.bias), np.float64) / factor))
        for value, divided in parts:
            constant = new.add_weight(f"{value.owner.ref}/per_channel", divided.astype(np.float32))
            new.block.insert_op_before(constant, op)
            op.operands[list(op.operands).index(value)] = constant.output
        rank = len(shape_of(op.results[0]))
        shape = (factor.size,) if isinstance(op, top.MatMul) else (1, factor.size, *(1,) * (rank - 2))
        outer = new.add_weight(f"{name}/channel_scale", factor.astype(np.float32).reshape(shape))
        product = top.Mul.make(op.results[0], outer.output, loc=op.location)
        node = layer_name(op)
        op.location = location(inner_name(name), None if node == name else node)
        ending = new.terminator
        at = list(ending.operands).index(op.results[0])
        new.block.insert_ops_before([outer, product], ending)
        ending.operands[at] = product.results[0]
    new.verify()
    return new


def _weight(op: Any) -> Any:
    return op.b if isinstance(op, top.MatMul) else op.weight


def _output_axis(op: Any) -> int:
    """The axis of the output channels of a weight."""
    if isinstance(op, top.MatMul):
        return 0 if op.transpose_b else 1
    return 1 if isinstance(op, top.Deconv) else 0


def _magnitudes(
    graph: Graph, layers: Mapping[str, Any], feeder: Feeder, threads: int | None
) -> dict[str, Array]:
    """The largest magnitude of each channel of some outputs; values that are no numbers are left out."""
    engine = float_engine(graph, fetch=list(layers), threads=threads)
    sizes: dict[str, Array] = {}
    size = batch_size(graph)
    for batch in feeder.batches():
        values = engine.run(batch.inputs)
        for name, op in layers.items():
            array = np.abs(np.asarray(values[name], np.float64))
            if batch.keep is not None and size:
                array = array[: batch.keep * array.shape[0] // size]
            axis = array.ndim - 1 if isinstance(op, top.MatMul) else 1
            array = np.where(np.isfinite(array), array, 0.0)
            largest = array.max(axis=tuple(i for i in range(array.ndim) if i != axis), initial=0.0)
            sizes[name] = np.maximum(sizes[name], largest) if name in sizes else largest
    return sizes


def _factors(sizes: Array) -> Array:
    """What each channel is divided by: its size as a part of the largest, rounded up to a power of two.

    >>> _factors(np.array([100.0, 0.5, 0.0])).tolist()
    [1.0, 0.0078125, 1.0]
    """
    largest = float(sizes.max(initial=0.0))
    parts = np.where(sizes > 0, sizes / largest, 1.0) if largest > 0 else np.ones_like(sizes)
    return np.asarray(np.exp2(np.ceil(np.log2(np.maximum(parts, _LEAST)))))


def _words(entry: tuple[str, Array]) -> str:
    name, factors = entry
    return (
        f"output '{name}' has one scale for each of its {counted(factors.size, 'channel')}; they differ by a factor of up to "
        f"{factors.max() / factors.min():.3g}"
    )
