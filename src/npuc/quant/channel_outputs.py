"""Outputs with one scale a channel: a convolution or a product with constant weights that ends at an output.

Channels of very different magnitudes, such as boxes and scores that one convolution makes, share the scale of their tensor, and
the small ones are left with few steps. Here the layer computes each channel divided by a factor r_c of its own, so that all
channels fill the range of one scale S, and a float multiplication behind it brings the magnitudes back:

    y = conv(x, w, b)    becomes    v = conv(x, w_c / r_c, b_c / r_c),    y_c = r_c * v_c

The integers of v stand for the reals S * (q - z), so those of channel c of the output have the scale r_c * S. The division is in
the requantization multiplier of each channel, which layers with constant weights have anyway. Factors are powers of two: both
networks then compute the same floats, no product is rounded twice, and a channel has up to twice the range that data showed.

Ops that only move the result may stand between the layer and the multiplication. Where an output is a concat of such results, the
multiplications come before the concat, which is float then.

Example: channels that reach 100 and 0.5 get the factors 1 and 2^-7. With 8 bits the steps of the output are 0.79 and 0.006,
where a common scale would have steps of 0.79 for both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
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

FLOAT_REASON = "it gives each channel of an output its magnitude, or joins such: per_channel_outputs"
"""Why multiplications, and concats behind them, stay float."""
_LEAST = 2.0**-24
"""The least factor: channels that are smaller are as if they were of that size."""
_MOVES = (top.Reshape, top.Permute, top.Slice)


@dataclass(frozen=True)
class ChannelOutputs:
    """A network whose outputs have one scale a channel."""

    graph: Graph
    config: QuantizationConfig
    """With the multiplications in float; `per_channel_outputs` is done with."""
    floats: tuple[str, ...] = ()
    """The results that are float now: those of the multiplications, and of concats behind them."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ending:
    """A layer with weights, and the ops that only move its result on the way to an output or to a concat of outputs."""

    layer: Any
    moves: tuple[Any, ...] = ()

    @property
    def values(self) -> tuple[Any, ...]:
        """The results of the layer and of the moves."""
        return self.layer.results[0], *(move.results[0] for move in self.moves)

    @property
    def name(self) -> str:
        """That of the last result."""
        return value_name(self.values[-1])

    @property
    def channel_axis(self) -> int:
        """The axis of the channels in the result of the layer."""
        return len(shape_of(self.values[0])) - 1 if isinstance(self.layer, top.MatMul) else 1

    def moved(self, factor: Array) -> Array:
        """A number for each channel in a shape that broadcasts with the last result."""
        shape = shape_of(self.values[0])
        spread = [factor.size if axis == self.channel_axis else 1 for axis in range(len(shape))]
        array: Array = np.broadcast_to(factor.reshape(spread), shape)
        for move in self.moves:
            if isinstance(move, top.Reshape):
                array = array.reshape(shape_of(move.results[0]))
            elif isinstance(move, top.Permute):
                array = array.transpose(move.order)
            else:
                last = [b + (n - 1) * s for b, s, n in zip(move.offset, move.steps, move.shape, strict=True)]
                array = array[np.ix_(*map(_indices, move.offset, last, move.steps))]
        for axis in range(array.ndim):
            first = array.take([0], axis=axis)
            array = first if (array == first).all() else array
        return array


def _indices(first: int, last: int, step: int) -> range:
    return range(first, last + (1 if step > 0 else -1), step)


def endings(graph: Graph, chosen: Collection[str] | None = None) -> tuple[dict[str, Ending], list[Any]]:
    """Tensors that can have one scale a channel, by name; and the concats behind them, with the ops that move their results.

    Of those, only the `chosen` ones, if they are given.
    """
    by_name: dict[str, Ending] = {}
    joins: list[Any] = []
    for port in graph.outputs:
        _collect(port.value, graph, chosen, by_name, joins)
    return by_name, joins


def _collect(
    value: Any,
    graph: Graph,
    chosen: Collection[str] | None,
    by_name: dict[str, Ending],
    joins: list[Any],
) -> bool:
    """Whether there is such a tensor at or before a value that nothing else reads."""
    moves: list[Any] = []
    at = value
    while at.has_one_use() and isinstance(at.owner, _MOVES):
        moves.insert(0, at.owner)
        at = at.owner.operands[0]
    if not at.has_one_use() or not prod(shape_of(at)):
        return False
    if isinstance(at.owner, top.Concat):
        if any([_collect(operand, graph, chosen, by_name, joins) for operand in at.owner.inputs]):
            joins += [at.owner, *moves]
            return True
        return False
    name = value_name(value)
    if not _has_channels(at.owner, graph) or not name or (chosen is not None and name not in chosen):
        return False
    by_name[name] = Ending(at.owner, tuple(moves))
    return True


def _has_channels(op: Any, graph: Graph) -> bool:
    """Whether an op is a layer with constant weights and without a limit, which would be another one for each channel."""
    if not isinstance(op, top.Conv | top.Deconv | top.MatMul):
        return False
    weight = graph.constant(_weight(op))
    # An axis of the weights of a grouped deconvolution is shared by all groups.
    grouped = isinstance(op, top.Deconv) and op.group > 1
    limited = op.relu and op.relu_limit > 0
    constant = op.bias is None or graph.constant(op.bias) is not None
    several = isinstance(op, top.MatMul) and weight is not None and weight.ndim != 2
    return weight is not None and constant and not (grouped or limited or several)


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
    ends, _ = endings(graph)
    if not ends:
        raise QuantizationError(
            "per_channel_outputs: no output is made by a convolution or a product with constant weights, without a limit such as "
            "that of relu6, that nothing else reads",
            fix="Leave it out, or cut the network at such a layer",
        )
    if iter(source.items) is source.items:  # data that can be read once
        source = replace(source, items=list(source.items))
    sizes = _magnitudes(graph, ends, Feeder(graph, source, strict, warn or (lambda text: None)), threads)
    every = {name: _factors(sizes[name]) for name in ends}
    factors = {name: factor for name, factor in every.items() if factor.max() > factor.min()}
    ends, joins = endings(graph, factors)
    changed = scaled(graph, factors)
    levels: dict[str, Any] = {}
    aliases = graph.layer_aliases()
    for ending in ends.values():
        # What is said of a layer by its name holds for what it has become.
        for op in (ending.layer, *ending.moves):
            for pattern, level in config.layers.items():
                if matches(pattern, layer_names(op, aliases)):
                    levels[inner_name(value_name(op.results[0]))] = level
    floats = (*ends, *(value_name(op.results[0]) for op in joins))
    others = {pattern: level for pattern, level in config.layers.items() if pattern not in floats}
    # The last one that matches counts.
    config = config.model_copy(update={"layers": {**others, **levels, **dict.fromkeys(floats, "float")}})
    notes = [_words(name, factor) for name, factor in factors.items()]
    if alike := [name for name in every if name not in factors]:
        named = "', '".join(alike[:3]) + ("', ..." if len(alike) > 3 else "'")
        notes.append(f"'{named} keep one scale: no channel is half as large as the largest, or less")
    return ChannelOutputs(changed, config, floats, tuple(notes)), source


def inner_name(name: str) -> str:
    """The result of an op that now computes with divided channels."""
    return f"{name}/per_channel"


def scaled(graph: Graph, factors: Mapping[str, Array]) -> Graph:
    """A copy of the network in which layers divide their channels by factors, and multiplications behind them undo it."""
    new = graph.copy()
    ends, _ = endings(new, factors)
    for name, factor in factors.items():
        ending = ends[name]
        op = ending.layer
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
        result = ending.values[-1]
        (use,) = result.uses
        outer = new.add_weight(f"{name}/channel_scale", ending.moved(factor).astype(np.float32))
        product = top.Mul.make(result, outer.output, loc=result.owner.location)
        new.block.insert_ops_before([outer, product], use.operation)
        use.operation.operands[use.index] = product.results[0]
        for value in ending.values:
            own, node = value_name(value), layer_name(value.owner)
            value.owner.location = location(inner_name(own), None if node == own else node)
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
    graph: Graph, ends: Mapping[str, Ending], feeder: Feeder, threads: int | None
) -> dict[str, Array]:
    """The largest magnitude of each channel of some layers; values that are no numbers are left out."""
    layers = {name: value_name(ending.values[0]) for name, ending in ends.items()}
    engine = float_engine(graph, fetch=list(layers.values()), threads=threads)
    sizes: dict[str, Array] = {}
    size = batch_size(graph)
    for batch in feeder.batches():
        values = engine.run(batch.inputs)
        for name, layer in layers.items():
            array = np.abs(np.asarray(values[layer], np.float64))
            if batch.keep is not None and size:
                array = array[: batch.keep * array.shape[0] // size]
            axis = ends[name].channel_axis
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


def _words(name: str, factors: Array) -> str:
    return (
        f"'{name}' has one scale for each of its {counted(factors.size, 'channel')}; they differ by a factor of up to "
        f"{factors.max() / factors.min():.3g}"
    )
