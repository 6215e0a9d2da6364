"""The loop over blocks: each learns its parameters, then its outputs become the inputs of later blocks.

It learns in float64. A weight near a tie rounds up or down by the last bit of a gradient, what follows computes with it, and in
float32 the order of sums (of another number of threads, of a GPU) leads to other networks within a few iterations; in float64
to the same integers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import cos, pi, prod
from typing import Any

import numpy as np
import torch
from torch.nn.functional import mse_loss

from npuc.activity import activity
from npuc.arrays import Array
from npuc.engine.torch import TopModule
from npuc.errors import EngineError
from npuc.ir import Graph, shape_of, top
from npuc.ir.dtypes import QuantType
from npuc.quant.reconstruction.blocks import LayerBlock, cut_blocks
from npuc.quant.reconstruction.check import OutputCheck
from npuc.quant.reconstruction.fake import DropMasks
from npuc.quant.reconstruction.learner import Learner
from npuc.quant.reconstruction.positions import search_positions
from npuc.quant.reconstruction.student import Cache, Student, extend, in_double
from npuc.quant.validation import spread

Report = Callable[[int, int], None]
_CHECKED = 4
"""One of this many samples is held back to check learners."""
_CACHED = 1 << 19
"""The elements of the largest tensor of a block that a processor's cache holds with those beside it."""
_ALIKE = 1e-2
"""The tolerance, relative to the magnitude, between results of the same sample."""


@dataclass(frozen=True)
class Pace:
    """The number of iterations and the batch size of learning."""

    iterations: int = 300
    """Iterations for each block."""
    batch: int = 16
    dropped: float = 0.5
    """The share of activations that stays float while learning (QDrop)."""
    seed: int = 0


@contextmanager
def _full_precision() -> Iterator[None]:
    """Convolutions on CUDA in a fixed order; TF32, of 10 bits of fraction, is for what is in float32."""
    flags: Any = torch.backends.cudnn.flags
    with flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


@_full_precision()
def reconstruct(
    source: Graph,
    weighted: Collection[Any],
    types: Mapping[str, QuantType],
    samples: Sequence[Mapping[str, Array]],
    pace: Pace,
    make: Callable[[Student, LayerBlock], Learner | None],
    device: str = "cpu",
    threads: int = 1,
    report: Report = lambda done, total: None,
    *,
    round_on_read: bool = False,
    one_by_one: bool = True,
) -> None:
    """Let every block learn the parameters that `make` returns; None means that the block learns nothing.

    `weighted` are the ops with weights to learn, `types` the types of the integer network's tensors, by name. The outputs of
    a block are rounded by the block itself, or with `round_on_read` by the blocks that read them, so that the effect of a
    learned scale is measured there. A network that takes one sample at a time, because its shapes say so, learns from one after
    the other, which is slow; without `one_by_one` it is refused.
    """
    torch.set_num_threads(threads)
    # Samples are drawn on the processor: generators of devices differ.
    generator = torch.Generator().manual_seed(pace.seed)
    masks = DropMasks(pace.dropped, pace.seed, device)
    module = TopModule(source).to(device).double()
    blocks = cut_blocks(module.steps, weighted, [port.value for port in source.outputs])
    inputs = {
        port.value: in_double(torch.from_numpy(_joined(samples, port.name)).to(device))
        for port in source.inputs
    }
    together = _may_run_together(module, inputs)
    if not together:
        _require_single_rows(blocks, inputs, one_by_one=one_by_one)
    student = Student(module, types)
    if round_on_read:
        student.rounded_on_read = frozenset(value for block in blocks for value in block.passed_on)
    learners = [make(student, block) for block in blocks]
    real: Cache = dict(inputs)
    rough: Cache = {value: student.after(value, tensor) for value, tensor in inputs.items()}
    # Learned parameters are checked on samples from which they were not learned, if there are enough.
    count = next(iter(inputs.values())).shape[0]
    checked = any(learner is not None and learner.checked for learner in learners)
    held = count // _CHECKED if checked else 0
    at_once = pace.batch if together else 1
    check = OutputCheck(student, blocks, learners, inputs, count - held if held else 0, at_once)
    error: float | None = None
    with activity("learning, block by block", len(blocks)) as step:
        for index, (block, learner) in enumerate(zip(blocks, learners, strict=True)):
            rows = _rows(block, at_once, device)
            with torch.no_grad():
                extend(real, student.run_all(block, real, rows))
            if learner is not None:
                at_end = partial(check.error, index, rough)
                error = _learn(
                    learner, rough, real, count - held, pace, rows, generator, masks, at_end, error
                )
                student.types.update(learner.changed)
            with torch.no_grad():
                weights = None if learner is None else learner.weights(hard=True)
                extend(rough, student.run_all(block, rough, rows, weights, student.after))
            needed = {value for later in blocks[index + 1 :] for value in later.inputs}
            for cache in (real, rough):
                for value in [value for value in cache if value not in needed]:
                    del cache[value]
            report(index + 1, len(blocks))
            step()


def _joined(samples: Sequence[Mapping[str, Array]], name: str) -> Array:
    """An input of all samples along the first axis."""
    return np.concatenate([np.atleast_1d(sample[name]) for sample in samples])


def _may_run_together(module: TopModule, inputs: Cache) -> bool:
    """Whether several samples along the first axis give the same results as one alone."""
    outputs = [port.value for port in module.graph.outputs if port.value not in module.refs]
    try:
        with torch.no_grad():
            single, pair = (
                module.run(
                    module.steps,
                    {value: t[:rows] for value, t in inputs.items()},
                    outputs,
                    after=lambda value, tensor: in_double(tensor),
                )
                for rows in (1, 2)
            )
        return len({t.shape[0] for t in inputs.values()}) == 1 and all(
            single[value].shape[0] == 1 and _alike(single[value][0], pair[value][0]) for value in outputs
        )
    except (RuntimeError, IndexError):
        return False


def _require_single_rows(blocks: Sequence[LayerBlock], inputs: Cache, *, one_by_one: bool) -> None:
    """Refuse a network whose samples cannot be told apart along the first axis, even if they run one after the other."""
    passed = {value for block in blocks for value in (*block.inputs, *block.outputs)}
    computed = [value for value in (*inputs, *passed) if not isinstance(value.owner, top.WeightOp)]
    alone = len({t.shape[0] for t in inputs.values()}) == 1 and all(
        shape_of(value)[:1] == (1,) for value in computed
    )
    if alone and not one_by_one:
        raise EngineError(
            "the network's shapes allow one sample at a time only, which takes long",
            fix="Name the step with --ladder to run it all the same",
        )
    if not alone:
        raise EngineError(
            "what the network makes of a sample depends on those beside it along the first axis of its inputs, and "
            "several at once are learned from",
            fix="Import it with samples along the first axis of all inputs and outputs",
        )


def _alike(first: Any, second: Any) -> bool:
    """Whether two tensors are equal up to the order of sums; integer results are only compared by shape."""
    if first.shape != second.shape or not first.is_floating_point() or not first.numel():
        return bool(first.shape == second.shape)
    first, second = first.nan_to_num(), second.nan_to_num()
    return bool((first - second).abs().max() <= _ALIKE * first.abs().max())


def _rows(block: LayerBlock, batch: int, device: str) -> int:
    """The number of samples that go through a block at once: on a processor, so many that its tensors fit a cache.

    Beyond that, every operation would wait for memory, and the allocator would return each tensor to the system.
    """
    if device != "cpu":
        return batch
    values = [value for step in block.steps for value in (*step.results, *step.needs)]
    largest = max((prod(shape_of(v)) for v in values if not isinstance(v.owner, top.WeightOp)), default=1)
    return max(1, min(batch, _CACHED // max(1, largest)))


def _learn(
    learner: Learner,
    rough: Cache,
    real: Cache,
    count: int,
    pace: Pace,
    rows: int,
    generator: Any,
    masks: DropMasks,
    error_at_end: Callable[[], float],
    before: float | None,
) -> float | None:
    """Let a block learn from the first `count` samples, `rows` at once; returns the error at the end of the network.

    `before` is that error before, if it is known; it is only measured for learners that are checked.
    """
    student, block = learner.student, learner.block
    goals = {value: real[value] for value in block.outputs if real[value].is_floating_point()}
    sizes = {value: float(goal.square().mean().clamp(min=1e-12)) for value, goal in goals.items()}
    groups = [group for group in learner.groups() if group["lr"] > 0]
    if not goals or not (groups or learner.positions):
        return before
    optimizer = torch.optim.Adam(groups or [torch.zeros(1, requires_grad=True)])
    rates = [group["lr"] for group in optimizer.param_groups]
    device = next(iter(goals.values())).device
    parameters = [parameter for group in groups for parameter in group["params"]]
    if learner.checked and before is None:
        before = error_at_end()
    parameters += learner.positions
    kept = [parameter.detach().clone() for parameter in parameters] if learner.checked else []
    search_positions(learner, rough, goals, spread(count, pace.batch), rows)
    noisy = student.noisy(learner.after, masks)
    # Without rates there is nothing to learn: positions alone were searched.
    for iteration in range(pace.iterations if groups else 0):
        if learner.fades:
            part = 0.5 * (1 + cos(pi * iteration / pace.iterations))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * part
        chosen = torch.randint(0, count, (min(pace.batch, count),), generator=generator).to(device)
        masks.begin_batch(len(chosen))
        optimizer.zero_grad()
        for index, some in enumerate(chosen.split(rows)):
            masks.begin_part(index * rows, len(some))
            rounded = {value: rough[value][some] for value in block.inputs if value in rough}
            inputs = _mixed(student.entered(rounded, learner.after), real, some, masks)
            outputs = student.run(block, inputs, learner.weights(hard=False), noisy)
            error = sum(
                mse_loss(outputs[value], goal[some]) / sizes[value] for value, goal in goals.items()
            ) * (len(some) / len(chosen))
            learner.loss(error, iteration).backward()
        optimizer.step()
    if not learner.checked or before is None:
        return None
    after = error_at_end()
    if after < before:
        return after
    with torch.no_grad():
        for parameter, old in zip(parameters, kept, strict=True):
            parameter.copy_(old)
    return before


def _mixed(rough: Cache, real: Cache, chosen: Any, masks: DropMasks) -> Cache:
    """The inputs of a block from the integer network, with a random share of elements from the float network."""
    return {
        value: torch.lerp(tensor, real[value][chosen], masks(tensor))
        if masks.share and tensor.is_floating_point()
        else tensor
        for value, tensor in rough.items()
    }
