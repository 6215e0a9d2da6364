"""Bias absorption: what a relu never sees below is taken out of one bias and put into the next.

Where the sum before a relu is never below c on the samples, relu(x) = relu(x - c) + c. The maker's bias loses c, and
the reader's bias gains what c gives there, so the tensor between has a smaller range. The reader has to see c
everywhere: its padding must not be zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.ir import Graph, result_names, top
from npuc.quant.equalization.groups import find_groups

_SMALL = 0.02
"""Of the range of a tensor: less is not worth it."""


def absorb_biases(
    graph: Graph, samples: Sequence[Mapping[str, Array]], threads: int = 1
) -> tuple[Graph, int]:
    """A copy with absorbed biases, and how many layers gave some of theirs."""
    pairs = _pairs(graph)
    if not pairs:
        return graph, 0
    names = [result_names(maker)[0] for maker, _ in pairs]
    engine = FloatEngine(graph, fetch=names, threads=threads)
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
        # After the relu: a channel that is ever cut has 0 here, and nothing to give.
        given = np.where(least[name] > _SMALL * most[name], least[name], 0.0).astype(np.float64)
        if not given.any():
            continue
        _move(new, twins[maker], -given)
        weight = np.asarray(new.constant(twins[reader].weight), np.float64)  # type: ignore[attr-defined]
        gained = weight.sum(axis=tuple(range(2, weight.ndim)))
        if reader.group > 1:
            by_group = given.reshape(reader.group, -1)
            outputs = weight.shape[0] // reader.group
            gained = (gained * by_group.repeat(outputs, axis=0)).sum(1)
        else:
            gained = gained @ given
        _move(new, twins[reader], gained)
        count += 1
    new.verify()
    return new, count


def _pairs(graph: Graph) -> list[tuple[Any, Any]]:
    """Convolutions with a relu that one other convolution reads, without padding."""
    found = []
    for group in find_groups(graph):
        if len(group.values) != 1 or len(group.readers) != 1 or len(group.makers) != 1 or group.limit < inf:
            continue
        maker, reader = group.makers[0], group.readers[0][0]
        if not isinstance(maker, top.Conv) or not isinstance(reader, top.Conv) or not maker.relu:
            continue
        if maker.bias is not None and reader.bias is not None and not any(reader.pads):
            found.append((maker, reader))
    return found


def _move(graph: Graph, op: Any, change: Array) -> None:
    bias = np.asarray(graph.constant(op.bias), np.float64) + change
    new = graph.add_weight(f"{result_names(op)[0]}/bias/absorbed", bias.astype(np.float32))
    op.parent.insert_op_before(new, op)
    op.operands[list(op.operands).index(op.bias)] = new.output
