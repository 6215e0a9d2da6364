"""Subgraphs are convex, acyclic, in a valid order and complete; what runs where is what was asked or what pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuc.calib.random_inputs import random_inputs
from npuc.codegen.host import host_program
from npuc.engine import IntegerEngine
from npuc.engine.integer import prepare
from npuc.errors import CompileError, UsageError
from npuc.ir import Graph, layer_name, npu, result_names, top
from npuc.partition import Partition, partition
from npuc.partition.host import reason_against_host
from npuc.partition.overrides import parse_devices
from npuc.partition.work import LAUNCH, worth_of
from npuc.target import load_target
from npuc.transform import canonicalize
from support.graphs import session_of
from support.networks.placement import convs_around, quantized
from support.networks.random_graphs import graphs

FEW = settings(
    max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
EDGE = load_target("edge-4t")


def check_partition(graph: Graph, found: Partition) -> None:
    ops = [op for op in graph.ops if not isinstance(op, top.WeightOp)]
    number = {op: i for i, part in enumerate(found.parts) for op in part.ops}
    # Every op once.
    assert sorted(map(id, ops)) == sorted(id(op) for part in found.parts for op in part.ops)
    known = {port.value for port in graph.inputs}
    for index, part in enumerate(found.parts):
        # What a subgraph reads is there when its turn comes: no cycles, a valid order.
        assert set(part.inputs) <= known
        inside = set(part.ops)
        for op in part.ops:
            for value in op.operands:
                assert graph.constant(value) is not None or value in part.inputs or value.owner in inside
        known |= set(part.outputs)
        # The host writes what it converts, whoever reads it.
        assert part.device != "convert" or {op.results[0] for op in part.ops} == set(part.outputs)
        # Convex: no way from a member to a member leaves the subgraph.
        left = {use.operation for value in part.outputs for use in value.uses} - inside
        seen = set()
        while left:
            op = left.pop()
            seen.add(op)
            assert op not in inside, f"a way leaves {index} and comes back at {op}"
            left |= {use.operation for value in op.results for use in value.uses} - seen
    assert {port.value for port in graph.outputs} <= known | {
        port.value for port in graph.outputs if graph.constant(port.value) is not None
    }
    for op in ops:
        for value in op.operands:
            if value.owner in number:
                assert number[value.owner] <= number[op]


@FEW
@given(graph=graphs(14), data=st.data())
def test_subgraphs_of_random_networks(graph: Graph, data: st.DataObject) -> None:
    """Some layers stay float, some are put on the CPU: all in all a mixture."""
    graph = canonicalize(graph)
    stays = data.draw(st.sets(st.sampled_from([*graph.tensor_names(), "none"])))
    made = quantized(graph, keep=lambda op: result_names(op)[0] in stays)
    movable = [
        result_names(op)[0]
        for op in made.ops
        if not isinstance(op, top.WeightOp) and reason_against_host(op, made) is None  # type: ignore[arg-type]
    ]
    chosen = data.draw(st.sets(st.sampled_from(movable))) if movable else set()
    named = {layer_name(op) for op in made.ops if reason_against_host(op, made) is not None}  # type: ignore[arg-type]
    asked = dict.fromkeys(sorted(chosen - named), "cpu")
    try:
        found = partition(made, EDGE, asked, data.draw(st.sampled_from([0.0, 1.0, 50.0])))
    except CompileError:  # a name that an op without a form on the CPU has too
        return
    check_partition(made, found)
    on_cpu = {
        name
        for part in found.parts
        if part.device == "cpu"
        for op in part.ops
        for name in result_names(op)[:1]
    }
    assert on_cpu <= set(found.reasons)


@settings(FEW, max_examples=60)
@given(graph=graphs(8))
def test_the_cpu_gives_the_bits_of_the_npu(graph: Graph) -> None:
    """Everything that has a form on the CPU is put there: subgraph by subgraph the result is that of graph mode."""
    graph = canonicalize(graph)
    made = quantized(graph)
    everything = {
        result_names(op)[0]: "cpu"
        for op in made.ops
        if not isinstance(op, top.WeightOp | npu.Quantize | npu.Dequantize)
        and reason_against_host(op, made) is None  # type: ignore[arg-type]
    }
    try:
        found = partition(made, EDGE, everything)
    except CompileError:
        return
    inputs = random_inputs(graph)
    values: dict[Any, Any] = {port.value: inputs[port.name] for port in made.inputs}
    for part in found.parts:
        if part.device == "cpu":
            names = {value: f"v{i}" for i, value in enumerate((*part.inputs, *part.outputs))}
            given = {names[value]: np.ascontiguousarray(values[value]) for value in part.inputs}
            results = session_of(host_program(made, part, names)[0]).run(
                [names[v] for v in part.outputs], given
            )
            values.update(zip(part.outputs, results, strict=True))
            continue
        for op in part.ops:
            operands = [values[v] if v in values else made.constant(v) for v in op.operands]
            values.update(zip(op.results, prepare(op, made, 1)(operands), strict=True))
    wanted = IntegerEngine(made, raw=True).run(inputs)
    for port in made.outputs:
        if port.value in values:
            np.testing.assert_array_equal(values[port.value], wanted[port.name])


def mixed(**options: Any) -> Graph:
    return quantized(convs_around(**options), keep=lambda op: result_names(op)[0] in ("between", "chances"))


def devices(found: Partition) -> dict[str, str]:
    return {
        result_names(op)[0]: part.device
        for part in found.parts
        for op in part.ops
        if part.device != "convert"
    }


def test_float_layers_are_on_the_cpu_and_the_last_is_post_processing() -> None:
    found = partition(mixed(size=64, channels=64), EDGE)
    assert devices(found) == {"first": "npu", "between": "cpu", "second": "npu", "chances": "cpu"}
    assert dict(found.sides) == {"chances": "after"}
    assert "real numbers" in found.reasons["between"]


def test_a_small_island_goes_to_the_cpu_and_a_threshold_of_zero_keeps_it() -> None:
    made = mixed(size=2, channels=2)
    found = partition(made, EDGE)
    assert devices(found)["second"] == "cpu"
    assert "moving the data" in found.reasons["second"]
    assert devices(partition(made, EDGE, island_threshold=0.0))["second"] == "npu"
    assert devices(partition(made, EDGE, {"second": "npu"}))["second"] == "npu"


def test_what_an_island_is_worth() -> None:
    graph = mixed(size=64, channels=64)
    part = next(p for p in partition(graph, EDGE).parts if p.device == "npu")
    worth = worth_of(graph, part.ops, part.inputs, part.outputs, EDGE)
    # 64 x 64 pixels of 64 channels: 64 * 9 * 64 * 4096 MACs at 2048 a cycle of 1 GHz.
    assert worth.engines == pytest.approx(64 * 9 * 64 * 4096 / 2048 / 1e9, rel=0.01)
    assert worth.host > 0.03
    assert LAUNCH < worth.moving < LAUNCH + 60e-6
    assert worth.pays(1.0) and not worth.pays(1e6)


def test_layers_are_put_on_devices_by_name_layer_or_pattern() -> None:
    made = mixed(size=64, channels=64)
    for name in ("second", "layer_second", "sec*", "layer_s?cond"):
        found = partition(made, EDGE, {name: "cpu"})
        assert devices(found)["second"] == "cpu" and found.reasons["second"] == "as asked"


def test_overrides_that_cannot_be_followed_say_why() -> None:
    made = mixed()
    with pytest.raises(UsageError, match="second") as error:
        partition(made, EDGE, {"secnd": "cpu"})
    assert "secnd" in error.value.message
    with pytest.raises(CompileError, match="real numbers"):
        partition(made, EDGE, {"between": "npu"})
    with pytest.raises(UsageError, match="gpu"):
        partition(made, EDGE, {"second": "gpu"})
    whole = quantized(convs_around())
    with pytest.raises(CompileError, match=r"layer 'chances'.*no exact form"):
        partition(whole, EDGE, {"chances": "cpu"})
    with pytest.raises(UsageError, match="is not LAYER=cpu"):
        parse_devices(["cpu"])


def test_subgraphs_have_at_least_so_many_ops() -> None:
    graph = quantized(convs_around(), keep=lambda op: result_names(op)[0] == "chances")
    plain = partition(graph, EDGE, island_threshold=0.0)
    sizes = [len(part.ops) for part in plain.parts if part.device == "npu"]
    assert sizes
    for least in range(1, max(sizes) + 2):
        parted = partition(graph, EDGE, island_threshold=0.0, least_ops=least)
        check_partition(graph, parted)
        assert all(len(part.ops) >= least for part in parted.parts if part.device == "npu")
    assert any("subgraphs have" in reason for reason in parted.reasons.values())
    assert any("--min-ops" in lever for lever in parted.levers.values())
    fixed = {result_names(op)[0]: "npu" for part in plain.parts if part.device == "npu" for op in part.ops}
    kept = partition(graph, EDGE, fixed, 0.0, max(sizes) + 1)
    assert [len(part.ops) for part in kept.parts if part.device == "npu"] == sizes
