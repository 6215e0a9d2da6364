"""Programs of mx6 and mx9: blocks are packed and multiplied on a target that states them, to the bits of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.deploy.c import export_c
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import CompileError, SimulationError
from npuc.ir import Graph, npu, top, value_name
from npuc.kernels.blocks import pack, unpack
from npuc.program.file import load_compiled, save_compiled
from npuc.program.instruction import decode
from npuc.program.instructions import Conv
from npuc.program.isa import DTYPES, NONE
from npuc.program.model import NpuSubgraph
from npuc.quant import SCHEMES, quantize
from npuc.target import Target, load_target
from support.capabilities import stated, used
from support.graphs import build as build_graph
from support.networks.backend import machine, network
from support.networks.drawn_schemes import BLOCKS, with_types
from support.oracles import floats as oracle
from support.programs.c_applications import build, run
from support.programs.equal_modes import check
from support.programs.instructions import Draft
from support.programs.instructions import machine as small_machine

FREE = {"lo": int(np.float32(-np.inf).view(np.int32)), "hi": int(np.float32(np.inf).view(np.int32))}


def with_blocks(target: Target) -> Target:
    """The same machine with mx6 and mx9, and f32 and bf16 for all that is no product of them."""
    return with_types(target, {"mx6": "1", "mx9": "1/2", "bf16": "1/4", "f32": "1/16"})


def products() -> Graph:
    """Convolutions of channels that are no multiple of a block, a depthwise one, and fully connected layers."""
    rng = np.random.default_rng(2)

    def some(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    same: dict[str, Any] = {"pads": [1, 1, 1, 1], "dilations": [1, 1]}

    def layers(b: Any, x: Any) -> Any:
        a = b(top.Conv, x, some(20, 11, 3, 3), some(20), strides=[1, 2], relu=True, name="a", **same)
        d = b(top.Conv, a, some(20, 1, 3, 3), some(20), strides=[1, 1], group=20, name="d", **same)
        e = b(top.Add, a, d, name="e")
        point: dict[str, Any] = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1]}
        c = b(top.Conv, e, some(8, 20, 1, 1), None, relu=True, relu_limit=6.0, name="c", **point)
        f = b(top.Reshape, c, shape=[9, 40], name="f")
        return b(top.MatMul, f, some(40, 10), some(10), name="m")

    return build_graph({"x": ((1, 11, 9, 10), "f32")}, layers)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("level", [0, 2])
def test_products_of_blocks_run_on_the_npu(kind: str, level: int) -> None:
    graph = products()
    program, target = quantize(graph, {}, SCHEMES[kind]), with_blocks(load_target("edge-1t"))
    done = check(program, target, level)
    assert done is not None
    assert {part.device for part in done.partition.parts} == {"npu"}
    (subgraph,) = done.model.subgraphs
    assert isinstance(subgraph, NpuSubgraph)
    convs = [
        instruction
        for record in subgraph.streams[0]
        if isinstance(instruction := decode(record.tobytes())[1], Conv)
    ]
    assert {DTYPES[conv.source.x_dtype] for conv in convs} == {kind, "f32"}  # the depthwise one is f32
    assert f"compute.array.rates.{kind}.{kind}" in stated(target) & used(program, done)
    inputs = random_inputs(graph, 1)
    (got,), (exact,) = (
        engine(net).run(inputs).values() for engine, net in ((IntegerEngine, program), (FloatEngine, graph))
    )
    assert np.abs(got - exact).max() < {"mx6": 0.3, "mx9": 0.03}[kind] * np.abs(exact).max()


@pytest.mark.parametrize("kind", BLOCKS)
def test_layers_have_the_bits_of_the_model(kind: str) -> None:
    """Operands rounded block by block, exact products, sums of f32 in the order of the contract."""
    program = quantize(products(), {}, SCHEMES[kind])
    inputs = random_inputs(products(), 4)
    values = IntegerEngine(program, fetch=["a", "e", "c", "f", "m"], raw=True).run(inputs) | inputs
    for op in program.ops:
        if isinstance(op, npu.BlockLinear):
            packed = op.x.owner
            assert isinstance(packed, npu.BlockPack)
            x, weight, bias = (
                values[value_name(packed.x)],
                program.constant(op.weight),
                program.constant(op.bias),
            )
            assert weight is not None
            weights = unpack(weight, kind, op.inputs)
            if isinstance(op, npu.BlockConv):
                rounded = rows(x.transpose(0, 2, 3, 1), kind)
                y = oracle.conv(
                    rounded, weights.transpose(0, 3, 1, 2), bias, op.strides, op.pads, op.dilations,
                    relu=op.relu, limit=op.relu_limit,
                ).transpose(0, 3, 1, 2)  # fmt: skip
            else:
                y = oracle.matmul(rows(x, kind), weights.T, bias, op.relu, op.relu_limit)
            np.testing.assert_array_equal(values[value_name(op.y)].view(np.uint32), y.view(np.uint32))


def rows(x: Any, kind: str) -> Any:
    flat = [oracle.block_round(row, kind) for row in x.reshape(-1, x.shape[-1])]
    return np.array(flat, np.float32).reshape(x.shape)


def test_random_networks_give_the_same_bits() -> None:
    """Every layer by a scheme of its own; what has no instruction in f32 is on the CPU."""
    packed = 0
    for seed in range(12):
        graph, ranges = network(seed)
        random = np.random.default_rng(seed)
        names = (BLOCKS[seed % 2], BLOCKS[seed % 2], "bf16", "int8")
        program = quantize(graph, ranges, lambda op: SCHEMES[names[random.integers(len(names))]])  # noqa: B023
        size, cores = ((1 << 20, 1), (256 << 10, 2))[seed % 2]
        try:
            done = check(program, with_blocks(machine(size, cores)), seed % 3)
        except Exception as error:
            raise AssertionError(f"network {seed}") from error
        packed += done is not None and any(isinstance(op, npu.BlockLinear) for op in program.ops)
    assert packed >= 2


@pytest.mark.parametrize("standalone", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_c_applications_have_the_same_bits(tmp_path: Path, standalone: bool) -> None:
    program = quantize(products(), {}, SCHEMES["mx9"])
    model = compile_program(program, with_blocks(load_target("edge-1t")), CompileOptions(1)).model
    save_compiled(model, tmp_path / "model.npu")
    export_c(
        load_compiled(tmp_path / "model.npu"),
        (tmp_path / "model.npu").read_bytes(),
        tmp_path / "app",
        standalone=standalone,
    )
    build(tmp_path / "app")
    status, text = run(tmp_path / "app", *([] if standalone else ["sample"]))
    assert status == 0, text


def test_a_machine_without_blocks_says_so() -> None:
    program = quantize(products(), {}, SCHEMES["mx9"])
    with pytest.raises(CompileError, match="it computes with mx9, and edge-4t does not"):
        compile_program(program, load_target("edge-4t"), CompileOptions())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"w_dtype": 9}, "blocks of one type make floats"),
        ({"groups": 2}, "blocks of one type make floats"),
        ({"y_dtype": 0}, "blocks of one type make floats"),
        ({"lo": 1}, "an output range of floats that is no relu"),
        ({"x_zero_point": 1}, "floats have no zero points"),
    ],
)
def test_what_no_convolution_of_blocks_is(changes: dict[str, int], words: str) -> None:
    d = Draft(small_machine("64KiB"))
    x, weight = (pack(np.ones((4, 6), np.float32), "mx9") for _ in range(2))
    fields: dict[str, Any] = {
        "x": d.put(x), "weight": d.put(weight, True), "bias": NONE, "y": d.room(256), "table": NONE, "multiplier": NONE,
        "shift": NONE, "groups": 1, "out_c": 4, "y_stride": 4, "n": 1, "h": 4, "w": 1, "c": 6, "out_h": 4, "out_w": 1,
        "kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1), "pad": (0, 0), "x_dtype": 10, "w_dtype": 10, "y_dtype": 5, **FREE,
    }  # fmt: skip
    d.emit("conv", **fields | changes)
    with pytest.raises(SimulationError, match=words):
        d.run()
