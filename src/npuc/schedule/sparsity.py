"""Which layers get N:M sparse weights (docs/weight-sparsity.md): those whose weights have a pattern that the machine skips, where
that is faster.

The dense form is a candidate too. A layer takes as long as its matrix engine or the load of its constants, whichever is longer;
among equals, less work of the two together is better. So a layer that waits for its weights stays dense where positions, or a
weight decoder that would have done better with the zeros, make the sparse form larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS
from npuc.arithmetic.sparsity import SparsityPattern
from npuc.schedule.compression import StoredConstants
from npuc.schedule.cost import Costs
from npuc.schedule.layers import Layer
from npuc.schedule.rules.linear import WeightedOp
from npuc.schedule.rules.weights import PartialSumsOp, Weights
from npuc.schedule.tiler import Tiler
from npuc.target import Target


def with_sparse_weights(layer: Layer, target: Target) -> Layer:
    """A layer in its fastest form on a target: with dense weights, or with sparse ones of some pattern."""
    if not target.compute.sparsity or not isinstance(layer.op, WeightedOp):
        return layer
    forms = [layer, *(_sparse(layer, pattern) for pattern in _patterns(layer.op, target))]
    if len(forms) == 1:
        return layer
    costs = Costs(target)
    return min(forms, key=lambda form: _cycles(form, costs))


def sparsity_of(layer: Layer) -> SparsityPattern | None:
    """The pattern of a layer's weights; None if they are dense, or if it has none."""
    op = getattr(layer.op, "computed", layer.op)
    return op.weights.sparsity if isinstance(op, WeightedOp | PartialSumsOp) else None


def _patterns(op: WeightedOp, target: Target) -> Iterator[SparsityPattern]:
    weights: Weights = op.weights
    if weights.zero_point or op.x.dtype not in ACTIVATION_INTEGERS:
        return
    for pattern in target.compute.sparsity or ():
        if pattern.holds(weights.arrays["weight"]):
            yield pattern


def _sparse(layer: Layer, pattern: SparsityPattern) -> Layer:
    op = layer.op
    assert isinstance(op, WeightedOp | PartialSumsOp)
    by_inputs = _sparse(layer.by_inputs, pattern) if layer.by_inputs is not None else None
    return replace(layer, op=replace(op, weights=replace(op.weights, sparsity=pattern)), by_inputs=by_inputs)


def _cycles(layer: Layer, costs: Costs) -> tuple[float, float]:
    tiler = Tiler(costs)
    tile = tiler.tile(layer, tiler.whole(layer), (0, layer.channels))
    matrix = sum(
        costs.work(template.instruction)
        for template in layer.templates(tile)
        if template.instruction.queue == "matrix"
    ) / costs.target.compute.cores  # fmt: skip
    every = 0, layer.channels
    size = layer.constant_size(every)
    if costs.decoder is not None:
        size = StoredConstants().size(layer, every, costs.decoder_contexts)
    load = costs.transfer(1, size)
    return max(matrix, load), matrix + load
