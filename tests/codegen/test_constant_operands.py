"""Constants in every operand place of an op: instruction mode gives the bits of graph mode, with no race."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.engine import FloatEngine, IntegerEngine
from npuc.ir import Graph, tensor_type, top
from npuc.ir.dtypes import QuantType
from npuc.quant import SCHEMES, quantize
from npuc.sim import Simulator, sanitize
from npuc.target import load_target
from support.graphs import build
from support.networks.backend import machine
from support.programs.equal_modes import check as check_modes

Maker = Callable[[lang.Tensor, lang.Tensor], lang.Tensor]
SHAPES = [(6, 6), (1, 6, 8), (1, 4, 6, 6)]
SCHEME_NAMES = ["int8", "tflite", "int16"]


def values(*shape: int, seed: int = 0) -> Array:
    found: Array = np.random.default_rng(seed).uniform(-0.4, 1, shape).astype(np.float32)
    return found


def check(y: lang.Tensor, scheme: str = "int8", local: int = 2 << 20, level: int = 2) -> Compilation:
    """Compile for a machine with so much memory and compare both modes, and graph mode with the float network."""
    graph = lang.build({"y": y})
    made = quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-3.0, 3.0)), SCHEMES[scheme])
    inputs = random_inputs(made, 1)
    done = compile_program(made, machine(local), CompileOptions(level=level))
    wanted = IntegerEngine(made, raw=True).run(inputs)["y"]
    np.testing.assert_array_equal(Simulator(done.model).run(inputs)["y"], wanted)
    assert [str(finding) for finding in sanitize(done.model, inputs)] == []
    real = np.clip(FloatEngine(graph).run(inputs)["y"], -3, 3)
    np.testing.assert_allclose(wanted.astype(np.float32), real, atol=0.2)
    return done


def on_npu(done: Compilation) -> None:
    assert dict(done.partition.reasons) == {}


@pytest.mark.parametrize("scheme", SCHEME_NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "max", "min"])
def test_elementwise(kind: str, shape: tuple[int, ...], scheme: str) -> None:
    op = getattr(lang, kind)
    channel = (shape[1], 1, 1) if len(shape) == 4 else shape[-1:]
    for constant in (values(*shape), values(*channel), np.float32(0.5)):
        x = lang.relu(lang.input("x", shape))
        on_npu(check(op(lang.constant(constant), x), scheme))
        on_npu(check(op(x, lang.constant(constant)), scheme))


@pytest.mark.parametrize("scheme", SCHEME_NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_concat(shape: tuple[int, ...], scheme: str) -> None:
    x = lang.input("x", shape)
    for axis in range(len(shape)):
        for place in range(3):
            operands = [lang.relu(x), lang.sigmoid(x)]
            operands.insert(place, lang.constant(values(*shape)))
            on_npu(check(lang.concat(operands, axis=axis), scheme))


@pytest.mark.parametrize("scheme", SCHEME_NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape: tuple[int, ...], scheme: str) -> None:
    x = lang.relu(lang.input("x", shape))
    *batch, rows, columns = shape
    for left in (values(5, rows), values(*batch, 5, rows)):
        on_npu(check(lang.matmul(lang.constant(left), x), scheme))
    for lead in ([], batch):
        on_npu(check(lang.matmul(x, lang.constant(values(*lead, columns, 5))), scheme))
        turned = lang.constant(values(*lead, 5, columns))
        on_npu(check(lang.matmul(x, turned, transpose_b=True), scheme))


CUT: dict[str, tuple[tuple[int, ...], Maker, int]] = {
    "constant @ x": ((1, 48, 40), lambda x, _: lang.matmul(lang.constant(0.1 * values(64, 48)), x), 7 << 10),
    "x @ constants": (
        (1, 3, 64, 24),
        lambda x, _: lang.matmul(x, lang.constant(0.1 * values(1, 3, 24, 40))),
        10 << 10,
    ),
    "constants @ x": (
        (1, 3, 24, 40),
        lambda x, _: lang.matmul(lang.constant(0.1 * values(1, 3, 64, 24)), x),
        19 << 10,
    ),
    "constant + x": ((1, 8, 32, 24), lambda x, _: lang.add(lang.constant(values(1, 8, 32, 24)), x), 9 << 10),
}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", CUT)
def test_products_and_sums_with_constants_are_cut_into_rows(name: str, level: int) -> None:
    shape, maker, local = CUT[name]
    x = lang.input("x", shape)
    done = check(maker(lang.relu(x), x), local=local, level=level)
    on_npu(done)
    (part,) = done.parts
    assert max(group.tiles for group in part.scheduled.schedule_decisions.decisions.groups) > 1


@pytest.mark.parametrize(
    "maker",
    [
        lambda c, x: lang.relu(c) + x,
        lambda c, x: lang.softmax(c, axis=1) * x,
        lambda c, x: lang.matmul(c, c) + x,
        lambda c, x: c[1:] * x[1:],
        lambda c, x: lang.concat([c, c], axis=1)[:, ::2] + x,
    ],
)
def test_what_computes_with_constants_alone_stays_float(maker: Maker) -> None:
    check(maker(lang.constant(values(6, 6)), lang.input("x", (6, 6))))


def test_an_integer_program_that_computes_with_constants_alone_runs_on_the_cpu() -> None:
    kind = QuantType.of("i8", 0.05, 3)
    graph = Graph.empty([("x", tensor_type((1, 2, 4, 4), kind))])
    weight = graph.add_weight("k", np.arange(-16, 16, dtype=np.int8).reshape(1, 2, 4, 4))
    typed = top.WeightOp.of(weight.ref, tensor_type((1, 2, 4, 4), kind))
    window = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    pool = top.MaxPool.make(typed.output, **window, name="pool")
    both = top.Concat.make([typed.output, typed.output], axis=1, name="both")
    joined = top.Concat.make([pool.y, graph.inputs[0].value, both.y], axis=1, name="joined")
    for op in (typed, pool, both, joined):
        graph.block.add_op(op)
    graph.set_outputs([("y", joined.y)])
    done = compile_program(graph, machine(2 << 20), CompileOptions(island_threshold=0))
    assert done.partition.reasons == {
        "pool": "an operand is a constant, and its instruction takes activations",
        "both": "all of its operands are constants",
    }
    inputs = {"x": np.random.default_rng(1).integers(-128, 128, (1, 2, 4, 4)).astype(np.int8)}
    wanted = IntegerEngine(graph, raw=True).run(inputs)["y"]
    np.testing.assert_array_equal(Simulator(done.model).run(inputs)["y"], wanted)


@pytest.mark.parametrize("op", [top.Add, top.Mul, top.Max])
@pytest.mark.parametrize("scheme", ["int8", "int16"])
def test_elementwise_ops_of_rank_one(op: type, scheme: str) -> None:
    """A vector has no rows and no channels."""
    graph = build({"a": (5,), "b": (5,)}, lambda b, x, y: b(op, x, y, name="y"))
    program = quantize(graph, dict.fromkeys(("a", "b", "y"), (-2.0, 2.0)), SCHEMES[scheme])
    assert check_modes(program, load_target("edge-4t"), 2) is not None
