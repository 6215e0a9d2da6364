"""Kinds, roundings and element types are stated once; every other form of them says the same."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arithmetic.dtypes import BLOCK_DTYPES, CODES, DTYPES, NARROW, SHORT, dtype_of
from npuc.arithmetic.kinds import KINDS, ROUNDINGS, Kind, Rounding, Scales, kind_named, shifted
from npuc.arithmetic.requantization import round_constants, scaling
from npuc.ir import Graph, npu, parse_graph, print_graph, tensor_type
from npuc.ir.dtypes import QuantType
from npuc.kernels import Requant, eltwise
from npuc.program import isa
from npuc.program.kinds_header import kinds_header
from npuc.quant import SCHEMES
from npuc.quant.config import QuantizationConfig
from npuc.quant.scheme import Scheme
from npuc.target import Target, load_target
from support.oracles import integers as oracle

OLD = {"double": "double_rounding", "single": "single_rounding", "float": "float_scale"}


def test_names_and_codes() -> None:
    assert [(kind.value, kind.spelling, kind.code) for kind in KINDS] == [
        ("double_rounding", "double", 0),
        ("single_rounding", "single", 1),
        ("single_even", "single_even", 2),
        ("pow2", "pow2", 3),
        ("float_scale", "float", 4),
    ]
    assert list(isa.KINDS) == [kind.value for kind in KINDS]
    assert [how.value for how in ROUNDINGS] == ["half_away", "half_even", "half_up"]
    assert CODES == ("i8", "ui8", "i16", "i32", "i4", "f32", "bf16", "f16", "i64", "mx6", "mx9")
    assert [dtype_of(name).code for name in CODES] == list(range(len(CODES)))
    assert len(SHORT) == len((*DTYPES, *NARROW, *BLOCK_DTYPES)) and SHORT["u8"].name == "ui8"
    assert [(dtype.name, dtype.bits) for dtype in map(dtype_of, ("i4", "ui16", "bf16", "i1", "f8E5M2"))] == [
        ("i4", 4),
        ("ui16", 16),
        ("bf16", 16),
        ("i1", 1),
        ("f8E5M2", 8),
    ]


def test_every_kind_has_all_facts() -> None:
    for enum in (Kind, Rounding, Scales):
        for member in enum:
            assert all(hasattr(member, fact) for fact in enum.__annotations__), member
            assert (
                member == member.value and hash(member) == hash(member.value) and f"{member}" == member.value
            )
            assert enum(member.spelling) is member is enum(member.value)
    assert json.dumps(Kind.POW2) == '"pow2"'
    for kind in Kind:
        assert set(kind.parameters) < {"multiplier", "shift", "scale"}
        assert kind.has_multiplier or kind.multiplier_bits == 0


@pytest.mark.parametrize("kind", list(Kind))
@settings(deadline=None, derandomize=True, max_examples=60)
@given(seed=st.integers(0, 1 << 20), real=st.floats(1e-4, 8))
def test_the_formula_is_that_of_the_oracle_and_of_the_kernels(kind: Kind, seed: int, real: float) -> None:
    real = 2.0 ** round(np.log2(real)) if kind is Kind.POW2 else real
    found = scaling(kind, real)
    parameters = {"multiplier": found.multiplier, "shift": found.shift, "scale": found.scale}
    given_ = {name: int(parameters[name][0]) for name in kind.parameters if name != "scale"}  # type: ignore[index]
    if found.scale is not None:
        given_["scale"] = found.scale[0]
    x = np.random.default_rng(seed).integers(-(1 << 15), 1 << 15, 50).astype(np.int16)
    wanted = kind.rescaled(x, **given_)
    first = given_.get("multiplier", given_.get("scale", 0))
    assert wanted.tolist() == [
        oracle.requantize(int(v), kind, first, given_.get("shift", 0), 0, -(1 << 31), (1 << 31) - 1)
        for v in x
    ]
    stage = Requant(kind, found.multiplier, found.shift, found.scale, lo=-32768, hi=32767)
    made = eltwise.requant(x, stage, dtype=np.int16)
    np.testing.assert_array_equal(made, np.clip(wanted, -32768, 32767))


@given(st.integers(-(1 << 40), 1 << 40), st.integers(-4, 40))
def test_roundings_differ_in_ties_only(x: int, shift: int) -> None:
    found = {how: shifted(x, shift, how) for how in Rounding}
    exact = x / 2.0**shift
    assert found[Rounding.FLOOR] == int(np.floor(exact))
    assert found[Rounding.HALF_UP] == int(np.floor(exact + 0.5))
    assert found[Rounding.HALF_EVEN] == int(np.rint(exact))
    assert found[Rounding.HALF_AWAY] == int(np.copysign(np.floor(abs(exact) + 0.5), exact))
    assert found[Rounding.HALF_DOWN] == int(np.ceil(exact - 0.5))
    assert found[Rounding.HALF_ZERO] == int(np.copysign(np.ceil(abs(exact) - 0.5), exact))
    assert found[Rounding.CEIL] == int(np.ceil(exact))
    assert found[Rounding.TRUNCATE] == int(np.trunc(exact))
    assert {how: int(round_constants(exact, how)) for how in Rounding} == found


def test_the_c_header_has_the_same_facts() -> None:
    text = kinds_header()
    for kind in KINDS:
        assert re.search(rf"\bNPUC_{kind.upper()} = {kind.code}\b", text)
    for name in ("multiplier", "shift", "scale"):
        mask = int(re.search(rf"NPUC_HAS_{name.upper()}\(kind\) NPUC_KIND_IN\((0x[0-9a-f]+)u", text)[1], 16)  # type: ignore[index]
        assert [bool(mask >> kind.code & 1) for kind in KINDS] == [name in kind.parameters for kind in KINDS]


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_older_names_are_read_everywhere(old: str, new: str, tmp_path: Path) -> None:
    assert kind_named(old) == new and scaling(old, 0.5).kind == new
    assert Scheme(requant=old) == Scheme(requant=Kind(new))  # type: ignore[arg-type]
    config = tmp_path / "config.yaml"
    config.write_text(f"scheme: {{requant: {old}, activation_scales: symmetric}}\n")
    graph = Graph.empty([("x", tensor_type((1, 4), "f32"))])
    assert QuantizationConfig.load(config).resolve(graph)
    data = load_target("edge-1t").to_dict()
    data["arithmetic"]["requantization"]["kinds"] = [old]
    target = Target.from_dict(data)
    assert target.arithmetic.requantization.kinds == (new,)
    data["arithmetic"]["requantization"]["kinds"] = [new]
    again = Target.from_dict(data)
    assert again == target and again.fingerprint == target.fingerprint
    assert again.to_dict()["arithmetic"]["requantization"]["kinds"] == [new]


def requant_graph(kind: str) -> Graph:
    x, y = QuantType.of("i8", 0.5, 0), QuantType.of("i8", 1.0, 0)
    graph = Graph.empty([("x", tensor_type((1, 4), x))])
    numbers: dict[str, Any] = (
        {"factors": (0.5,)} if kind_named(kind).has_scale else {"parameters": (1 << 30, 31)}
    )
    op = npu.Requant.make(graph.inputs[0].value, to=y, kind=kind, lo=-128, hi=127, name="y", **numbers)
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    return graph


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_text_of_programs_keeps_the_older_names_and_reads_both(old: str, new: str) -> None:
    text = print_graph(requant_graph(new))
    assert f'kind = "{old}"' in text and text == print_graph(requant_graph(old))
    for spelled in (text, text.replace(f'"{old}"', f'"{new}"')):
        op = next(op for op in parse_graph(spelled).ops if isinstance(op, npu.Requant))
        assert op.kind is Kind(new)


def test_a_scheme_is_written_in_plain_values() -> None:
    for scheme in SCHEMES.values():
        plain = yaml.safe_load(yaml.safe_dump(scheme.to_dict()))
        plain["fixed_outputs"] = tuple(map(tuple, plain["fixed_outputs"]))
        plain["classes"] = tuple(plain["classes"])
        assert Scheme(**plain) == scheme
        assert {field.name for field in dataclasses.fields(Scheme)} == plain.keys()
    assert Scheme(activation_scales="pow2").activation_scales is Scales.POWER_OF_TWO  # type: ignore[arg-type]
