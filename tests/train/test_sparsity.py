"""N:M sparsity of networks: masks, schedules, orders of channels, training that keeps zeros, and integers that have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arithmetic.sparsity import SparsityPattern
from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import TrainingError, UsageError
from npuc.ir import Graph, npu, shape_of, value_name
from npuc.profile.work import sparse_layers
from npuc.quant import SCHEMES, quantize
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import integer_layers, replace_integers
from npuc.target import Target
from npuc.train.sparsity.masks import kept_magnitude, magnitude_mask, masked_graph, masks_of, prunable_weights
from support.networks.backend import machine
from support.programs.equal_modes import check

torch = pytest.importorskip("torch")

import npuc.train  # noqa: E402
from npuc.train.loop import accuracy, fit  # noqa: E402
from npuc.train.network import TrainableNetwork  # noqa: E402
from npuc.train.options import TrainingOptions  # noqa: E402
from npuc.train.sparsity.activations import half_of_blocks  # noqa: E402
from npuc.train.sparsity.api import sparsify  # noqa: E402
from npuc.train.sparsity.permutation import best_order, permuted  # noqa: E402
from npuc.train.sparsity.training import SparseTraining, kept_at, sparse_parameters  # noqa: E402

HALF = SparsityPattern(2, 4)


def network(seed: int = 0, width: int = 16) -> Graph:
    """A residual network for images of 4 channels, with a grouped convolution and a concat."""
    random = np.random.default_rng(seed)

    def weight(*shape: int) -> Array:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    def conv(y: Any, o: int, i: int, name: str, groups: int = 1, kernel: int = 3) -> Any:
        return lang.conv(
            y,
            weight(o, i // groups, kernel, kernel),
            weight(o),
            pads=kernel // 2,
            group=groups,
            relu=True,
            name=name,
        )

    x = lang.input("x", (1, 4, 4, 4))
    stem = conv(x, width, 4, "stem")
    inner = conv(conv(stem, width, width, "first"), width, width, "grouped", groups=2)
    join = stem + conv(inner, width, width, "second")
    both = lang.concat([conv(join, 8, width, "left", kernel=1), conv(join, 8, width, "right")], axis=1)
    last = conv(both, width, 16, "last")
    flat = lang.reshape(lang.reduce(last, kind="mean", axes=(2, 3)), shape=(1, width))
    return lang.build({"y": lang.matmul(flat, weight(width, 3), name="head")})


def images(count: int, seed: int = 1) -> tuple[Array, Array]:
    """Images whose class is the channel that is brightest."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    x = random.normal(0, 0.4, (count, 4, 4, 4)).astype(np.float32)
    x[np.arange(count), labels] += 0.7
    return x, labels


@pytest.mark.parametrize("pattern", ["2:4", "1:4", "4:8", "4:16"])
def test_a_mask_keeps_the_largest_of_each_block(pattern: str) -> None:
    shape = SparsityPattern.parse(pattern)
    weight = np.random.default_rng(0).standard_normal((6, 32, 3, 3))
    mask = magnitude_mask(weight, shape.kept, shape.block, 1)
    blocks = np.abs(weight).reshape(6, -1, shape.block, 3, 3), mask.reshape(6, -1, shape.block, 3, 3)
    assert (blocks[1].sum(2) == shape.kept).all()
    smallest = np.where(blocks[1], blocks[0], np.inf).min(2)
    assert (np.where(blocks[1], 0, blocks[0]).max(2) <= smallest).all()


def test_blocks_lie_along_the_axis_that_is_summed_over() -> None:
    graph = network()
    entries = {entry.layer: entry for entry in prunable_weights(graph, HALF, ["left"])}
    assert entries["left"].reason == "excluded by the user"
    assert entries["stem"].reason == "" and entries["head"].axis == 0 and entries["first"].axis == 1
    wide = {entry.layer: entry.reason for entry in prunable_weights(graph, SparsityPattern(4, 16))}
    assert wide["stem"] == "its 4 input channels are no whole blocks of 16"
    assert "8 input channels" in wide["grouped"]
    with pytest.raises(UsageError, match="no layer 'lfet' with weights"):
        prunable_weights(graph, HALF, ["lfet"])


def test_a_schedule_goes_from_all_to_the_pattern() -> None:
    kept = [kept_at(HALF, step / 100) for step in range(101)]
    assert kept[0] == 4 and kept[-1] == 2 and kept == sorted(kept, reverse=True) and 3 in kept


@pytest.mark.parametrize("seed", range(3))
def test_an_order_of_channels_keeps_more_and_computes_the_same(seed: int) -> None:
    graph = network(seed, 16 + 8 * seed)
    other = permuted(graph, HALF)
    assert {"stem", "first"} <= other.orders.keys()
    before, after = (kept_magnitude(g, masks_of(g, HALF)) for g in (graph, other.graph))
    assert after > before
    x = images(1, seed)[0]
    np.testing.assert_allclose(
        FloatEngine(other.graph).run({"x": x})["y"],
        FloatEngine(graph).run({"x": x})["y"],
        rtol=1e-4,
        atol=1e-5,
    )


def test_an_order_is_found_where_one_is_needed() -> None:
    """All large weights are in two blocks of four; in a better order each block has two, and nothing is lost."""
    rows = np.tile([5.0, 5, 5, 5, 0, 0, 0, 0, 5, 5, 5, 5, 0, 0, 0, 0], (3, 1))
    order = best_order(rows, HALF)
    blocks = rows[:, order].reshape(3, 4, 4)
    assert (np.count_nonzero(blocks, axis=2) == 2).all()


def test_training_keeps_zeros_and_gets_used_to_them() -> None:
    graph, (x, labels) = network(), images(256)
    train, held = (x[:128], labels[:128]), (x[128:], labels[128:])
    dense = TrainableNetwork(graph)
    fit(dense, train, options=TrainingOptions(epochs=8, batch=32, optimizer="adamw"))
    options = TrainingOptions(epochs=4, batch=32, optimizer="adamw", ema=0.5, loss="both")
    sparsest = SparsityPattern(1, 4)
    result = sparsify(dense.to_graph(), train, held, sparsest, options)
    masked_only = sparsify(dense.to_graph(), pattern=sparsest)
    for entry in result.sparse:
        array = result.graph.weights[entry.ref].array()
        assert sparsest.holds(np.moveaxis(array, entry.axis, 1) if array.ndim > 2 else array.T[:, :, None])
        assert np.count_nonzero(array)
    scores = [accuracy(TrainableNetwork(g), held) for g in (masked_only.graph, result.graph)]
    assert scores[1] > scores[0] + 0.1
    assert result.magnitude > result.magnitude_unordered and len(result.history) == 4


def test_a_killed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    data, graph = images(96), network()
    options = TrainingOptions(epochs=4, batch=32, rate=0.05)
    whole = sparsify(graph, data, None, HALF, options)

    class Killed(Exception):
        pass

    def kill(epoch: Any) -> None:
        if epoch.epoch == 2:
            raise Killed

    place = tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        sparsify(graph, data, None, HALF, options, checkpoint=place, report=kill)
    resumed = sparsify(graph, data, None, HALF, options, checkpoint=place)
    for name in whole.graph.weights:
        np.testing.assert_array_equal(resumed.graph.weights[name].array(), whole.graph.weights[name].array())


def test_a_module_of_ones_own_is_trained_in_ones_own_loop() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(8, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8, 6), torch.nn.Linear(6, 2)
    )
    parameters = sparse_parameters(module, HALF, exclude=["2"])
    assert parameters == {"0.weight": 1}  # 6 channels are no whole blocks
    sparse = SparseTraining(module, parameters, HALF, steps=4)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)
    for step in range(8):
        sparse.update(step)
        optimizer.zero_grad()
        module(torch.randn(4, 8, 3, 3)).square().mean().backward()
        optimizer.step()
    sparse.finish()
    assert HALF.holds(module[0].weight.detach().numpy())
    sparse.detach()
    assert "sparsity_kept" not in module.state_dict()
    with pytest.raises(TrainingError, match="no weight of the network can be 2:4 sparse"):
        SparseTraining(module, {}, HALF)


@pytest.mark.parametrize("block", [4, 8, 16])
def test_half_of_each_block_of_activations_stays(block: int) -> None:
    x = torch.randn(2, 18, 3, 3, requires_grad=True)
    y = half_of_blocks(x, block)
    kept = (y != 0).float().detach()
    for start in range(0, 18, block):
        size = min(block, 18 - start)
        part, mask = x.detach()[:, start : start + size].abs(), kept[:, start : start + size].bool()
        assert (mask.sum(1) == (size + 1) // 2).all()
        assert (part.masked_fill(mask, 0).amax(1) <= part.masked_fill(~mask, 9).amin(1)).all()
    y.sum().backward()
    assert torch.equal(x.grad, kept)
    trained = sparsify(
        network(), images(64), None, HALF, TrainingOptions(epochs=1, batch=32), activation_sparsity=0.5
    )
    plain = sparsify(network(), images(64), None, HALF, TrainingOptions(epochs=1, batch=32))
    assert trained.history[0].loss != plain.history[0].loss


def test_what_makes_no_sense_is_said() -> None:
    for fields, words in (
        ({"pattern": "2-4"}, "is no sparsity pattern N:M"),
        ({"pattern": "2:5"}, "M one of 2, 4, 8, 16"),
        ({"gradual": 2.0}, "cannot grow over 2"),
        ({"activation_sparsity": 0.25}, "is not defined"),
        ({"activation_sparsity": 0.5, "activation_block": 5}, "is not defined"),
    ):
        with pytest.raises(UsageError, match=words):
            sparsify(network(), **fields)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match="no weight of the network can be 4:16 sparse") as caught:
        sparsify(network(0, 8), pattern="4:16", exclude=["last"])
    assert "no whole blocks of 16" in str(caught.value.fix)


@pytest.mark.parametrize("chosen_anew", [False, True])
def test_integers_have_the_zeros(chosen_anew: bool) -> None:
    """Also where GPTQ or learned rounding would choose other integers for weights that are zero."""
    graph = sparsify(network(), pattern=HALF).graph
    quantized = quantize(graph, _ranges(graph), SCHEMES["int8"])
    if chosen_anew:
        for layer in integer_layers(graph, quantized, LayerSchemes.of(graph, SCHEMES["int8"])):
            noise = np.random.default_rng(0).integers(-1, 2, layer.integers.shape)
            assert replace_integers(quantized, layer, layer.integers + noise)
    for op in quantized.ops:
        if isinstance(op, npu.Conv):
            weight = quantized.constant(op.weight)
            assert weight is not None and HALF.holds(weight)


def _ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    names = [port.name for port in graph.inputs]
    names += [value_name(value) for op in graph.ops for value in op.results]
    return dict.fromkeys(names, (-4.0, 4.0))


def test_masks_leave_other_weights_alone() -> None:
    graph = network()
    masks = masks_of(graph, HALF, ["head"])
    sparse = masked_graph(graph, masks)
    for name in graph.weights:
        before, after = graph.weights[name].array(), sparse.weights[name].array()
        np.testing.assert_array_equal(after, np.where(masks.get(name, True), before, 0))


def test_integers_of_quantization_aware_training_have_the_pattern_and_are_skipped() -> None:
    graph, data = network(), images(64)
    qat = npuc.train.prepare(graph, data, target=None)
    parameters = sparse_parameters(qat, HALF)
    sparse = SparseTraining(qat, parameters, HALF, steps=2)
    options = TrainingOptions(epochs=2, batch=32, rate=0.01, ema=0.5)
    fit(qat, data, options=options, parameters=qat.parameter_groups(), before_step=sparse.before_step)
    sparse.finish()
    learned = dict(qat.named_parameters())
    for name, axis in parameters.items():
        weight = np.moveaxis(learned[name].detach().numpy(), axis, 1)
        assert HALF.holds(weight if weight.ndim > 2 else weight[:, :, None])
    integers = qat.export()
    convolutions = [op for op in integers.ops if isinstance(op, npu.Conv)]
    patterns = [HALF.holds(integers.constant(op.weight)) for op in convolutions if shape_of(op.x)[1] % 4 == 0]
    assert len(patterns) >= 5 and all(patterns)
    # Eval mode, graph mode and the program that skips zeros are the same bits.
    x = data[0][:2]
    expected = [IntegerEngine(integers).run({"x": row[None]})["y"] for row in x]
    np.testing.assert_array_equal(qat.eval()(torch.from_numpy(x)), np.concatenate(expected))
    description = machine(64 << 10).to_dict()
    description["compute"]["sparsity"] = ["2:4"]
    done = check(integers, Target.from_dict(description), 1)
    assert done is not None and sparse_layers(done.model)
