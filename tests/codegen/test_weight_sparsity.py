"""Compiling for machines that skip N:M sparse weights: same bits, fewer matrix cycles and bytes, and damaged records refused."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.errors import FileFormatError, SimulationError
from npuc.ir import Graph, shape_of, tensor_type, top
from npuc.profile.report import report_of
from npuc.profile.work import sparse_layers, sparse_words
from npuc.program.disassemble import lines, select
from npuc.program.isa import BY_NAME, SPARSE
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.quant import SCHEMES, quantize
from npuc.sim import Simulator, simulate
from npuc.target import Target, load_target
from npuc.target.load import TargetError
from support.networks.backend import Builder, machine
from support.programs.equal_modes import check
from support.programs.files import as_bytes, parse, sealed

PATTERNS = ("2:4", "1:4", "4:8", "4:16", "1:2")


def skipping(target: Target, *patterns: str) -> Target:
    """The same machine that skips some patterns."""
    data = target.to_dict()
    data["compute"]["sparsity"] = list(patterns) or None
    return Target.from_dict(data)


def masked(weight: Array, pattern: str, axis: int = 1) -> Array:
    """The weights of largest magnitude in each block along an axis; channels that are no whole block stay dense."""
    shape = SparsityPattern.parse(pattern)
    if weight.shape[axis] % shape.block:
        return weight
    moved = np.moveaxis(weight, axis, -1)
    blocks = moved.reshape(*moved.shape[:-1], -1, shape.block)
    rank = np.argsort(np.argsort(-np.abs(blocks), axis=-1, kind="stable"), axis=-1)
    kept = np.where(rank < shape.kept, blocks, 0).reshape(moved.shape)
    return np.ascontiguousarray(np.moveaxis(kept, -1, axis))


def sparse_network(seed: int, pattern: str, scheme: str = "int8") -> Graph:
    """A few convolutions (plain, grouped, transposed) and a product, their weights masked."""
    b = Builder(seed)
    channels = b.pick(16, 32, 48)
    b.graph = Graph.empty([("x", tensor_type((b.pick(1, 2), channels, b.size(9) + 2, b.size(9) + 2), "f32"))])
    b.values = list(b.graph.block.args)
    for _ in range(3):
        x = b.values[-1]
        inputs, outputs = shape_of(x)[1], b.pick(16, 32, 40, 64)
        groups, kernel = b.pick(1, 1, 2), b.pick(1, 3)
        bias = b.array(outputs) if b.flag() else None
        common: dict[str, Any] = {
            "pads": [kernel // 2] * 4,
            "dilations": [1, 1],
            "strides": [1, b.pick(1, 2)],
        }
        fan = np.float32(1 / np.sqrt(inputs * kernel * kernel))
        if b.pick(False, False, True):
            weight = masked(b.array(inputs, outputs, kernel, kernel) * fan, pattern, axis=0)
            b.add(top.Deconv, x, weight, bias, **common, group=1, output_padding=[0, 0])
        else:
            weight = masked(b.array(outputs, inputs // groups, kernel, kernel) * fan, pattern)
            b.add(top.Conv, x, weight, bias, **common, group=groups, relu=b.flag())
    if b.flag():
        batch, *image = shape_of(b.values[-1])
        width = prod(image)
        b.add(top.Reshape, b.values[-1], shape=[batch, width])
        matrix = b.array(width, 24) / np.float32(np.sqrt(width))
        b.add(top.MatMul, b.values[-1], masked(matrix, pattern, axis=0), None)
    b.graph.set_outputs([("y", b.values[-1])])
    ranges = {name: (-1.0, 1.0) for name in ("x", *(f"t{i}" for i in range(1, b.count + 1)))}
    return quantize(b.graph, ranges, SCHEMES[scheme])


def convs(model: CompiledModel) -> Array:
    """The records of all convolutions."""
    streams = [s for part in model.subgraphs if isinstance(part, NpuSubgraph) for s in part.streams]
    kind = BY_NAME["conv"]
    parts = [np.ascontiguousarray(s[s[:, 0] == kind.opcode]).view(kind.dtype).reshape(-1) for s in streams]
    return np.concatenate(parts)


@pytest.mark.parametrize("scheme", ["int8", "int4-weights", "pow2", "int16", "tflite"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_bits_are_those_of_graph_mode(pattern: str, scheme: str) -> None:
    sparse = 0
    for seed in range(2):
        graph = sparse_network(seed + 10 * PATTERNS.index(pattern), pattern, scheme)
        size, cores = ((64 << 10, 1), (24 << 10, 2))[seed]
        done = check(graph, skipping(machine(size, cores), *PATTERNS), 2 - 2 * seed)
        if done is not None:
            records = convs(done.model)
            sparse += int(((records["flags"] & SPARSE) != 0).sum())
            assert ((records["sparse_m"] != 0) == ((records["flags"] & SPARSE) != 0)).all()
    assert sparse


def resnet_stage(pattern: str | None, channels: int = 64) -> Graph:
    """Four 3 x 3 convolutions of an image of 16 x 16, which the matrix engine is busy with."""
    b = Builder(3)
    b.graph = Graph.empty([("x", tensor_type((1, channels, 16, 16), "f32"))])
    b.values = list(b.graph.block.args)
    for _ in range(4):
        weight = b.array(channels, channels, 3, 3) / np.float32(np.sqrt(9 * channels))
        weight = masked(weight, pattern) if pattern else weight
        b.add(
            top.Conv,
            b.values[-1],
            weight,
            b.array(channels),
            pads=[1] * 4,
            strides=[1, 1],
            dilations=[1, 1],
            group=1,
        )
    b.graph.set_outputs([("y", b.values[-1])])
    return quantize(b.graph, {name: (-1.0, 1.0) for name in ("x", "t1", "t2", "t3", "t4")}, SCHEMES["int8"])


@pytest.fixture(scope="module")
def half() -> Graph:
    return resnet_stage("2:4")


@pytest.fixture(scope="module")
def compiled(half: Graph) -> CompiledModel:
    return compile_program(half, skipping(load_target("edge-4t"), "2:4")).model


def test_half_of_the_weights_take_half_of_the_matrix_cycles(half: Graph, compiled: CompiledModel) -> None:
    plain = compile_program(half, load_target("edge-4t")).model
    now, before = (report_of(model, simulate(model)).total for model in (compiled, plain))
    assert before.matrix / now.matrix >= 1.9
    assert before.cycles / now.cycles >= 1.6
    assert compiled.weights.size < 0.7 * plain.weights.size
    assert now.macs == before.macs and now.ideal == before.ideal / 2
    assert sparse_words(sparse_layers(compiled).values()) == "4 layers with 2:4 weights"
    inputs = {"x": np.random.default_rng(0).uniform(-1, 1, (1, 64, 16, 16)).astype(np.float32)}
    expected, got = Simulator(plain).run(inputs), Simulator(compiled).run(inputs)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value)


def test_a_pattern_that_the_machine_does_not_skip_is_not_used(half: Graph) -> None:
    for patterns in ((), ("1:4", "4:16")):
        model = compile_program(half, skipping(load_target("edge-4t"), *patterns)).model
        assert not convs(model)["sparse_m"].any()
    # 2:4 has the pattern 4:8 too, and takes as long; its positions have fewer bits.
    model = compile_program(half, skipping(load_target("edge-4t"), "4:8", "2:4")).model
    assert set(convs(model)["sparse_m"].tolist()) == {4}
    # Of 1:4 it takes the half.
    sparser = compile_program(resnet_stage("1:4"), skipping(load_target("edge-4t"), "2:4", "1:4")).model
    assert set(convs(sparser)["sparse_n"].tolist()) == {1}


def test_weights_with_a_zero_point_stay_dense() -> None:
    graph = sparse_network(5, "2:4", "uint8-weights")
    done = check(graph, skipping(machine(64 << 10), "2:4"), 1)
    assert done is not None and not convs(done.model)["sparse_m"].any()


def test_weights_that_would_be_larger_stay_dense_where_loading_them_takes_longest() -> None:
    """A decoder needs fewer bits for dense weights of few values than for the values and positions of sparse ones."""
    b = Builder(0)
    b.graph = Graph.empty([("x", tensor_type((1, 1024), "f32"))])
    b.values = list(b.graph.block.args)
    weight = masked(b.random.choice([-1.0, 1.0], (1024, 512)).astype(np.float32), "7:16", axis=0)
    b.add(top.MatMul, b.values[-1], weight, None)
    b.graph.set_outputs([("y", b.values[-1])])
    graph = quantize(b.graph, {"x": (-1.0, 1.0), "t1": (-30.0, 30.0)}, SCHEMES["int8"])
    data = skipping(load_target("edge-1t"), "7:16").to_dict()
    assert convs(compile_program(graph, Target.from_dict(data)).model)["sparse_m"].all()
    data["memory"]["weight_decoder"] = "64B/cycle"
    assert not convs(compile_program(graph, Target.from_dict(data)).model)["sparse_m"].any()


def test_a_disassembly_says_the_pattern(compiled: CompiledModel) -> None:
    text = [line for stream in select(compiled) for line in lines(compiled, stream) if " conv " in line]
    assert text and all("sparse_n=2 sparse_m=4" in line for line in text)


def test_programs_of_dense_weights_are_those_of_before() -> None:
    graph, options = resnet_stage(None), CompileOptions(level=1)
    before = compile_program(graph, load_target("edge-4t"), options).model
    now = compile_program(graph, skipping(load_target("edge-4t"), "2:4"), options).model
    for old, new in zip(before.subgraphs, now.subgraphs, strict=True):
        if isinstance(old, NpuSubgraph) and isinstance(new, NpuSubgraph):
            for a, b in zip(old.streams, new.streams, strict=True):
                np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(before.weights, now.weights)


def damaged(model: CompiledModel, **fields: int) -> CompiledModel:
    """The same program with other fields in its first convolution."""
    kind = BY_NAME["conv"]
    subgraphs = []
    for subgraph in model.subgraphs:
        if isinstance(subgraph, NpuSubgraph) and fields:
            stream = subgraph.streams[0].copy()
            at = int(np.flatnonzero(stream[:, 0] == kind.opcode)[0])
            record = stream[at : at + 1].view(kind.dtype)
            for name, value in fields.items():
                record[name] = value
            subgraph = replace(subgraph, streams=(stream, *subgraph.streams[1:]))
        subgraphs.append(subgraph)
    return replace(model, subgraphs=tuple(subgraphs))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"flags": 0}, "has a bad field 'sparse_m'"),
        ({"flags": SPARSE | 1}, "has flags that do not exist"),
        ({"sparse_m": 0}, "has a bad field 'sparse_m'"),
        ({"sparse_n": 0}, "has a bad field 'sparse_n'"),
        ({"sparse_m": 17}, "has a bad field 'sparse_m'"),
        ({"sparse_m": 12}, "has no sparsity pattern that exists"),
        ({"sparse_n": 4}, "has no sparsity pattern that exists"),
        ({"c": 62}, "has sparse weights that are no whole blocks"),
        ({"w_zero_point": 1}, "has sparse weights that are no symmetric integers"),
        ({"x_dtype": 5}, "has sparse weights that are no symmetric integers"),
    ],
)
def test_records_that_make_no_sense_are_refused(
    compiled: CompiledModel, fields: dict[str, int], words: str
) -> None:
    model = damaged(compiled, **fields)
    with pytest.raises(FileFormatError, match=words):
        parse(sealed(as_bytes(model)))
    with pytest.raises(SimulationError):
        Simulator(model).run({"x": np.zeros((1, 64, 16, 16), np.float32)})


def test_positions_that_do_not_ascend_stop_the_program(compiled: CompiledModel) -> None:
    weights = compiled.weights.copy()
    weights[: 64 * 32 * 9 * 2] = 0  # the values of the first layer, and its positions: all at the first place
    with pytest.raises(SimulationError, match="positions of sparse weights do not ascend"):
        Simulator(replace(compiled, weights=weights)).run({"x": np.zeros((1, 64, 16, 16), np.float32)})


def test_a_machine_that_does_not_skip_the_pattern_has_no_time_for_it(compiled: CompiledModel) -> None:
    other = replace(compiled, target=skipping(load_target("edge-4t"), "4:8").to_dict())
    with pytest.raises(SimulationError, match="skips no 2:4 sparse weights"):
        simulate(other)


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (["2 of 4"], "'2 of 4' is no sparsity pattern N:M, such as 2:4"),
        (["4:4"], "4:4 is no pattern N:M"),
        (["2:6"], "M one of 2, 4, 8, 16"),
        (["2:4", "2:4"], "has an entry twice"),
        ([], "0 patterns are not between 1 and 8"),
        ([2], "2 is no sparsity pattern"),
    ],
)
def test_a_target_states_patterns_that_exist(patterns: list[Any], words: str) -> None:
    data = load_target("edge-4t").to_dict()
    data["compute"]["sparsity"] = patterns
    with pytest.raises(TargetError, match=words):
        Target.from_dict(data)


def test_a_target_of_affine_weights_has_no_zeros_to_skip() -> None:
    data = load_target("edge-4t").to_dict()
    data["compute"]["sparsity"] = ["2:4"]
    data["arithmetic"]["weights"]["formats"] = {"u8": ["affine"]}
    data["compute"]["array"]["rates"] = {"i8": {"u8": 1}, "i16": {"u8": "1/4"}, "u8": {"u8": 1}}
    data["arithmetic"]["activations"]["formats"] = {"i8": ["affine"]}
    with pytest.raises(
        TargetError, match=r"compute\.sparsity: zeros are skipped among symmetric integer weights"
    ):
        Target.from_dict(data)


def test_the_fingerprint_counts_patterns_and_not_their_order() -> None:
    plain = load_target("edge-4t")
    assert skipping(plain).fingerprint == plain.fingerprint
    assert skipping(plain, "2:4").fingerprint != plain.fingerprint
    assert skipping(plain, "2:4", "1:4").fingerprint == skipping(plain, "1:4", "2:4").fingerprint


@pytest.mark.parametrize("pattern", [*PATTERNS, "7:16", "3:8"])
def test_what_is_compressed_expands_to_the_same(pattern: str) -> None:
    shape = SparsityPattern.parse(pattern)
    random = np.random.default_rng(0)
    weight = masked(random.integers(-3, 4, (5, 32, 3, 1)).astype(np.int8), pattern)
    assert shape.holds(weight)
    values, positions = shape.compress(weight)
    assert values.shape == positions.shape == (5, 32 // shape.block * shape.kept, 3, 1)
    blocks = positions.reshape(5, -1, shape.kept, 3, 1).astype(int)
    assert (np.diff(blocks, axis=2) > 0).all() and blocks.max() < shape.block
    np.testing.assert_array_equal(shape.expand(values, positions), weight)
