"""Bias absorption: a constant offset before a relu is moved from one bias into the next.

If the sum before a relu is never below c on the samples, relu(x) = relu(x - c) + c. The first layer's bias loses c, and the
second layer's bias gains the effect of c there, so the tensor in between has a smaller range. The second layer must not pad
with zeros, because the offset has to be present everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine import float_engine
from npuc.ir import Graph, result_names, top
from npuc.quant.equalization.groups import find_groups

_SMALL = 0.02
"""The least offset that is moved, as a share of the tensor's range."""


def absorb_biases(
    graph: Graph, samples: Sequence[Mapping[str, Array]], threads: int = 1
) -> tuple[Graph, int]:
    """A copy of the network with absorbed biases, and the number of layers whose bias was reduced."""
    pairs = _pairs(graph)
    if not pairs:
        return graph, 0
    names = [result_names(maker)[0] for maker, _ in pairs]
    engine = float_engine(graph, fetch=names, threads=threads)
    least: dict[str, Array] = {}
    most: dict[str, float] = {}
    for sample in samples:
        values = engine.run(sample)
        for name in names:
            array = np.asarray(values[name])
            low = array.min(axis=(0, 2, 3))
            least[name] = np.minimum(least[name], low) if name in least else low
            most[name] = max(most.get(name, 0.0), float(array.max()))
    new = graph.copy()
    twins = dict(zip(graph.ops, new.ops, strict=True))
    count = 0
    for (maker, reader), name in zip(pairs, names, strict=True):
        # The minimum after the relu: a channel that is ever cut has 0 here, and nothing to move.
        absorbed = np.where(least[name] > _SMALL * most[name], least[name], 0.0).astype(np.float64)
        if not absorbed.any():
            continue
        move_bias(new, twins[maker], -absorbed)
        move_bias(new, twins[reader], effect_of(absorbed, twins[reader], new))
        count += 1
    new.verify()
    return new, count


def _pairs(graph: Graph) -> list[tuple[Any, Any]]:
    """Pairs of a convolution with a relu and the only convolution that reads it, without padding."""
    pairs = []
    for group in find_groups(graph):
        if len(group.values) != 1 or len(group.readers) != 1 or len(group.makers) != 1 or group.limit < inf:
            continue
        maker, reader = group.makers[0], group.readers[0][0]
        if not isinstance(maker, top.Conv) or not isinstance(reader, top.Conv) or not maker.relu:
            continue
        if maker.bias is not None and reader.bias is not None and not any(reader.pads):
            pairs.append((maker, reader))
    return pairs


def effect_of(offsets: Array, reader: Any, graph: Graph) -> Array:
    """What an offset of each input channel adds to the output channels of a convolution, away from padding."""
    weight = np.asarray(graph.constant(reader.weight), np.float64)
    by_channel: Array = weight.sum(axis=tuple(range(2, weight.ndim)))
    by_group = offsets.reshape(reader.group, -1).repeat(weight.shape[0] // reader.group, axis=0)
    effect: Array = (by_channel * by_group).sum(axis=1)
    return effect


def move_bias(graph: Graph, op: Any, change: Array) -> None:
    """Add a change to the bias of an op, which gets a constant of its own for that."""
    bias = np.asarray(graph.constant(op.bias), np.float64) + change
    new = graph.add_weight(f"{result_names(op)[0]}/bias/absorbed", bias.astype(np.float32))
    op.parent.insert_op_before(new, op)
    op.operands[list(op.operands).index(op.bias)] = new.output
