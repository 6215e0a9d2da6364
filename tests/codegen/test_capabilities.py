"""What a target states, programs use: every field of the schema has an effect, and every choice of every preset has a program.

A new field of the schema fails here until something shows that it matters; a new choice of a preset (a type, a kind, a memory)
until a program compiles that uses it, with the same bits in graph mode and in instruction mode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.dtypes import SHORT
from npuc.arithmetic.kinds import Kind, Scales
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.ir import Graph, result_names, top
from npuc.program.model import NpuSubgraph
from npuc.quant import SCHEMES, Scheme, quantize
from npuc.quant.from_target import fitted, misfit, scheme_for
from npuc.sim import simulate
from npuc.target import Target, available, load_target
from support.capabilities import schema_fields, stated, used
from support.graphs import build
from support.programs.equal_modes import check

SHORT_OF = {dtype.name: short for short, dtype in SHORT.items()}
PRESETS = sorted(
    file.name
    for file in available()
    if file.preset
    and load_target(file.name).instruction_set == "npuc"  # chips: tests/codegen/test_bm1684x.py
)

SAME: dict[str, Any] = {"pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1]}
"""A window of 3 x 3 that keeps the size of images."""
POINTWISE: dict[str, Any] = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1]}
"""A window of one pixel."""


# --- the networks ---------------------------------------------------------------------------------------------------------


def some(*shape: int, scale: float = 1.0) -> Any:
    """Constants, the same in every run."""
    return (np.random.default_rng(len(shape) + sum(shape)).normal(size=shape) * scale).astype(np.float32)


@cache
def small() -> Graph:
    """Two convolutions, one depthwise, a function, a sum and a fully connected layer."""

    def layers(b: Any, x: Any) -> Any:
        a = b(top.Conv, x, some(16, 8, 3, 3, scale=0.1), some(16), name="a", **SAME)
        c = b(top.Conv, a, some(16, 1, 3, 3, scale=0.3), some(16), group=16, relu=True, name="c", **SAME)
        s = b(top.HardSwish, a, name="s")
        t = b(top.Add, c, s, name="t")
        f = b(top.Reshape, t, shape=[1, 16 * 36], name="f")
        return b(top.MatMul, f, some(16 * 36, 12, scale=0.1), some(12), name="m")

    return build({"x": ((1, 8, 6, 6), "f32")}, layers)


@cache
def large() -> Graph:
    """Work for several cores, which meet in a mean and exchange parts of vectors; the weights compress."""

    def layers(b: Any, x: Any) -> Any:
        weight = np.sign(some(64, 32, 3, 3)) * (some(64, 32, 3, 3) > 0.5) * 0.1
        a = b(top.Conv, x, weight.astype(np.float32), some(64), relu=True, name="a", **SAME)
        m = b(top.AvgPool, a, kernel=[48, 48], strides=[1, 1], pads=[0] * 4, dilations=[1, 1], name="c")
        f = b(top.Reshape, m, shape=[1, 64], name="f")
        g = b(top.MatMul, f, some(64, 256), some(256), name="g")
        return b(top.MatMul, g, some(256, 256), some(256), name="h")

    return build({"x": ((1, 32, 48, 48), "f32")}, layers)


@cache
def sparse() -> Graph:
    """A convolution and a product, both of 2:4 weights."""

    def layers(b: Any, x: Any) -> Any:
        kept = np.arange(16)[:, None, None] % 4 < 2
        a = b(top.Conv, x, some(16, 16, 3, 3, scale=0.1) * kept, some(16), name="a", **SAME)
        f = b(top.Reshape, a, shape=[1, 16 * 36], name="f")
        matrix = some(16 * 36, 12, scale=0.1) * (np.arange(16 * 36)[:, None] % 4 < 2)
        return b(top.MatMul, f, matrix.astype(np.float32), some(12), name="m")

    return build({"x": ((1, 16, 6, 6), "f32")}, layers)


@cache
def spills() -> Graph:
    """Three tensors that wait for a mean of the last, together more than the local memory of a core."""

    def layers(b: Any, x: Any) -> Any:
        a = b(top.Conv, x, some(16, 4, 1, 1), some(16), name="a", **POINTWISE)
        c = b(top.Conv, a, some(16, 16, 1, 1), some(16), name="c", **POINTWISE)
        d = b(top.Conv, c, some(16, 16, 1, 1), some(16), name="d", **POINTWISE)
        m = b(top.AvgPool, d, kernel=[240, 240], strides=[1, 1], pads=[0] * 4, dilations=[1, 1], name="m")
        return b(top.Add, b(top.Add, b(top.Add, m, a, name="e"), c, name="f"), d, name="g")

    return build({"x": ((1, 4, 240, 240), "f32")}, layers)


@cache
def long_sums(count: int) -> Graph:
    """Sums of so many products that they need more than 32 bits."""
    weight = np.where(some(count, 2) > 0, 1, -1).astype(np.float32)
    return build({"x": ((1, count), "f32")}, lambda b, x: b(top.MatMul, x, weight, some(2), name="m"))


@cache
def edges() -> Graph:
    """Weights whose least one is the most negative integer, if their type has it."""
    weight = np.float32([[-1.0, 0.5], [0.25, -0.5]])
    return build({"x": ((1, 2), "f32")}, lambda b, x: b(top.MatMul, x, weight, some(2), name="m"))


@cache
def softmax() -> Graph:
    return build({"x": ((2, 20), "f32")}, lambda b, x: b(top.Softmax, x, axis=-1, name="y"))


@cache
def ranges_of(graph: Graph) -> Mapping[str, tuple[float, float]]:
    """Ranges of all tensors, wide on one side so that affine types have a zero point."""
    names = [port.name for port in graph.inputs]
    names += [name for op in graph.ops for name in result_names(op) if not isinstance(op, top.WeightOp)]
    ranges = {name: (-3.0, 5.1) for name in names}
    return ranges | {"y": (0.0, 1.0)}


def lowered(target: Target, scheme: Scheme | None = None, graph: Graph | None = None) -> Graph:
    graph, scheme = graph or small(), scheme or scheme_for(target)
    ranges = ranges_of(graph)
    if scheme.unsigned_from_zero:  # what has negative values would be signed
        ranges = {name: (0.0, high) for name, (_, high) in ranges.items()}
    return quantize(graph, ranges, fitted(scheme, target))


# --- every choice of every preset -----------------------------------------------------------------------------------------


def schemes_of(target: Target) -> Iterator[Scheme]:
    """Schemes that together use every type, scale, granularity and kind that a target has."""
    arithmetic = target.arithmetic
    wanted = stated(target)
    everything = [
        Scheme(
            activation=SHORT[a].name,
            activation_scales=a_scale if a_scale != "float" else Scales.AFFINE,
            weight=SHORT[w].name,
            weight_scales=w_scale if w_scale != "float" else Scales.SYMMETRIC,
            per_channel=granularity == "per_channel",
            requant=Kind(kind),
            unsigned_from_zero=a == "u8" and a_scale != "affine",
        )
        for (a, a_scales), (w, w_scales) in product(
            arithmetic.activations.formats.items(), arithmetic.weights.formats.items()
        )
        for a_scale, w_scale, granularity, kind in product(
            a_scales, w_scales, arithmetic.weights.granularity, arithmetic.requantization.kinds
        )
    ]
    promises = {
        scheme: _promised(scheme) & wanted
        for scheme in [fitted(scheme, target) for scheme in everything]
        if misfit(scheme, target) is None
        and target.compute.array.rate(*(SHORT_OF[name] for name in (scheme.activation, scheme.weight)))
    }
    while promises:
        best = max(promises, key=lambda scheme: len(promises[scheme] & wanted))
        if not promises[best] & wanted:
            return
        wanted -= promises.pop(best)
        yield best


def _promised(scheme: Scheme) -> set[str]:
    a, w = SHORT_OF[scheme.activation], SHORT_OF[scheme.weight]
    scales = ("float", "float") if scheme.is_float else (scheme.activation_scales, scheme.weight_scales)
    paths = {
        f"arithmetic.activations.formats.{a}.{scales[0]}",
        f"arithmetic.weights.formats.{w}.{scales[1]}",
        f"compute.array.rates.{a}.{w}",
    }
    if not scheme.is_float:
        paths.add(f"arithmetic.weights.granularity.per_{'channel' if scheme.per_channel else 'tensor'}")
        paths.add(f"arithmetic.requantization.kinds.{scheme.requant}")
    return paths


@pytest.mark.parametrize("preset", PRESETS)
def test_every_choice_of_a_preset_has_a_program(preset: str) -> None:
    target = load_target(preset)
    wanted = stated(target)
    seen: set[str] = set()
    programs = [(lowered(target, scheme), 1) for scheme in schemes_of(target)]
    if {"compute.cores", "memory.shared", "memory.weight_decoder"} & wanted:
        programs.append((lowered(target, graph=large()), 2))
    if "memory.shared" in wanted and "compute.cores" not in wanted:
        programs.append((lowered(target, graph=spills()), 1))
    if "arithmetic.accumulator.wide_bits" in wanted:
        wide = [scheme for scheme in schemes_of(target) if scheme.activation == "i16"]
        programs.append((lowered(target, *wide[:1], graph=long_sums(2000 if wide else 150_000)), 0))
    for program, level in programs:
        done = check(program, target, level)
        assert done is not None
        seen |= used(program, done)
    assert sorted(wanted - seen) == []


# --- every field of the schema --------------------------------------------------------------------------------------------


CHOICES = {
    "arithmetic.activations.formats",
    "arithmetic.weights.formats",
    "arithmetic.weights.granularity",
    "arithmetic.requantization.kinds",
    "compute.array.rates",
    "compute.cores",
}
"""Fields whose every choice has a program above."""
WORDS = {"name", "description", "extends", "version"}
"""Fields that say what a target is, not what it does."""
SOFTMAX = {"softmax": {"i8": {"scale": "1/128", "zero_point": -100}}}
NO_FUNCTION = {"hard_swish": "There is no such function here."}
NO_BIG_KERNEL = {"conv": {"size": {"require": "kh <= least", "because": "The kernel is too large."}}}

FAST = {"memory.dram.bandwidth": "4096B/cycle", "memory.dram.latency": "1cycles"}
"""DRAM that nothing waits for."""


NARROW = {
    "arithmetic.bias.bits": 16,
    "arithmetic.bias.wide_bits": None,
    "arithmetic.accumulator.wide_bits": None,
}
"""No sums but those of the usual width."""


@dataclass(frozen=True)
class Case:
    """A machine, a scheme and a network that show what a figure does."""

    preset: str = "edge-1t"
    base: Mapping[str, Any] = field(default_factory=dict)
    """What is changed in the preset before the figure is."""
    scheme: str = ""
    network: Callable[[], Graph] = small
    fine: bool = False
    """Whether a result has a scale that is finer than its sum."""


FAST_CASE, WIDE = Case(base=FAST), Case(scheme="int16-weights")
FIGURES: dict[str, tuple[Any, Case]] = {
    "compute.clock": ("500MHz", Case()),
    "compute.array.input_channels": (4, FAST_CASE),
    "compute.array.output_channels": (4, FAST_CASE),
    "compute.array.pixels": (4, FAST_CASE),
    "compute.array.depthwise": ("full", FAST_CASE),
    "compute.vector_lanes": (1, FAST_CASE),
    "compute.table_units": (1, FAST_CASE),
    "compute.sparsity": (["2:4"], Case(network=sparse)),
    "memory.local.size": ("16KiB", Case()),
    "memory.local.banks": (1, Case(network=large)),
    "memory.local.alignment": ("1KiB", Case()),
    "memory.shared.size": ("64B", Case("server-32t", network=large)),
    "memory.shared.bandwidth": ("1B/cycle", Case("server-32t", network=large)),
    "memory.dram.bandwidth": ("1GB/s", Case()),
    "memory.dram.latency": ("400cycles", Case()),
    "memory.dram.burst": ("1KiB", Case()),
    "memory.weight_decoder": ("1B/cycle", Case("ethos-u65-256-like", network=large)),
    "memory.weight_contexts": (16, Case("ethos-u65-256-like", network=large)),
    "arithmetic.activations.range": ("narrow", Case()),
    "arithmetic.weights.range": ("narrow", Case("dpuczdx8g-b4096-like", network=edges)),
    "arithmetic.requantization.multiplier_bits": (7, Case("zhouyi-x1-like")),
    "arithmetic.requantization.min_shift": (-8, Case("dpuczdx8g-b4096-like", fine=True)),
    "arithmetic.requantization.max_shift": (33, Case()),
    "arithmetic.constant_rounding": ("floor", Case()),
    "arithmetic.bias.bits": (8, Case()),
    "arithmetic.bias.wide_bits": (12, WIDE),
    "arithmetic.bias.significant_bits": (6, Case()),
    "arithmetic.accumulator.bits": (16, Case(base=NARROW)),
    "arithmetic.accumulator.wide_bits": (
        None,
        Case(base={"arithmetic.bias.wide_bits": None}, scheme="int16-weights"),
    ),
    "arithmetic.tables.entries_8bit": (129, Case()),
    "arithmetic.tables.entries_16bit": (4096, Case(scheme="int16")),
    "arithmetic.fixed_outputs": (SOFTMAX, Case(network=softmax)),
    "limits.ops": (["conv", "depthwise_conv", "matmul", "add", "reshape"], Case()),
    "limits.unsupported": (NO_FUNCTION, Case()),
    "limits.constants": (
        {"least": 3},
        Case(base={"limits.constants": {"least": 2}, "limits.rules": NO_BIG_KERNEL}),
    ),
    "limits.rules": ({"conv": {"size": {"require": "kh <= 2", "because": "It is too large."}}}, Case()),
    "limits.rewrites": (
        {"hard_swish": {"to": "hard_sigmoid"}},
        Case(base={"limits.unsupported": NO_FUNCTION}),
    ),
    "limits.fused": ({"depthwise_conv": ["relu6"]}, Case()),
}
"""A field that is no choice, what it is changed to, and the case that shows the difference."""
ELSEWHERE = {"limits.activation_forms", "instruction_set"}
"""Fields that change a network before it is quantized: tests/transform/test_hardware_activations.py; and which code generator
makes programs: tests/codegen/test_bm1684x.py."""


def outcome(case: Case, changes: Mapping[str, Any]) -> tuple[str, int, tuple[str, ...]]:
    """What becomes of a network on a changed machine: a digest of the program, its cycles, and what runs where."""
    data = load_target(case.preset).to_dict()
    for path, value in changes.items():
        set_field(data, path, value)
    target, graph = Target.from_dict(data), case.network()
    scheme = fitted(SCHEMES[case.scheme] if case.scheme else scheme_for(target), target)
    ranges = dict(ranges_of(graph)) | ({"a": (-1e-6, 1e-6)} if case.fine else {})
    done = compile_program(quantize(graph, ranges, scheme), target, CompileOptions(level=1))
    digest = hashlib.sha256(done.model.weights.tobytes())
    for subgraph in done.model.subgraphs:
        if isinstance(subgraph, NpuSubgraph):
            for stream in subgraph.streams:
                digest.update(stream.tobytes())
    cycles = sum(times.total for times in simulate(done.model).subgraphs)
    parts = done.partition.parts
    return (
        digest.hexdigest(),
        cycles,
        tuple(f"{part.device} {result_names(op)[0]}" for part in parts for op in part.ops),
    )


def set_field(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        data = data.setdefault(name, {})
    if value is None:
        data.pop(last, None)
    else:
        data[last] = value


@pytest.mark.parametrize("path", sorted(FIGURES))
def test_every_figure_matters(path: str) -> None:
    """The same network on a machine with another figure is another program, or takes another time."""
    value, case = FIGURES[path]
    assert outcome(case, {**case.base, path: value}) != outcome(case, case.base)


def test_every_field_of_the_schema_is_here() -> None:
    assert set(schema_fields()) == CHOICES | WORDS | set(FIGURES) | ELSEWHERE
