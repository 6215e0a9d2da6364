"""The schema: what a target may say, how each mistake is answered, and that a target never changes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from npuc.errors import TargetError
from npuc.target import Target, load_target
from npuc.target.figures import derive
from npuc.target.problems import known_fields
from support.targets import small

RULE = {"require": "kw <= 3", "because": "The kernel is too wide."}


def problems(data: dict[str, Any]) -> list[str]:
    with pytest.raises(TargetError) as caught:
        Target.from_dict(data, "t.yaml")
    assert caught.value.code == "E701" and caught.value.problems
    return [str(problem) for problem in caught.value.problems]


def test_the_small_target_is_valid() -> None:
    target = Target.from_dict(small())
    assert target.compute.array.multiplications == 32
    assert target.memory.local.bank_size == 16 * 1024
    assert target.peak_operations() == 64e9
    assert target.peak_operations("i16", "i8") == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"compute__clck": 1}, "compute.clck: there is no such field; did you mean 'clock'?"),
        ({"memory__local__bank": 1}, "memory.local.bank: there is no such field; did you mean 'banks'?"),
        (
            {"arithmetic__bias__xyz": 1},
            "arithmetic.bias.xyz: there is no such field; known here: bits, wide_bits, significant_bits",
        ),
        ({"colour": "red"}, "colour: there is no such field; known here: name, description, extends"),
        ({"compute__cores": 0}, "compute.cores: 0 is below the least allowed, 1"),
        ({"compute__cores": 5000}, "compute.cores: 5000 is above the most allowed, 1024"),
        ({"compute__cores": "4"}, "compute.cores: '4' is not a whole number"),
        ({"compute__cores": True}, "compute.cores: True is not a whole number"),
        ({"compute__cores": 1.5}, "compute.cores: 1.5 is not a whole number"),
        ({"description": 7}, "description: 7 is not text"),
        ({"compute__clock": 7}, "compute.clock: 7 Hz is no clock rate"),
        ({"compute__clock": "1GB"}, "compute.clock: '1GB' is not a clock rate"),
        ({"compute": 3}, "compute: 3 is not a group of fields; known here: cores, clock, array"),
        ({"memory__local": [1]}, "memory.local: [1] is not a group of fields"),
        ({"compute__array__rates__i8__i8": 0}, "compute.array.rates.i8.i8: a rate is between"),
        (
            {"compute__array__rates__int8": {"i8": 1}},
            "compute.array.rates.int8: 'int8' is none of i4, i8, u8",
        ),
        (
            {"compute__array__depthwise": "ful"},
            "'ful' is none of idle_input_lanes, full, vector; did you mean 'full'?",
        ),
        ({"memory__local__size": "64KB/s"}, "memory.local.size: '64KB/s' is not a size"),
        ({"memory__local__size": 0}, "memory.local.size: 0 bytes is not between"),
        ({"memory__local__alignment": 48}, "memory.local.alignment: 48 bytes is not a power of two"),
        (
            {"memory__dram__bandwidth": 16},
            "memory.dram.bandwidth: 16 is not a bandwidth; write it with its unit",
        ),
        (
            {"memory__dram__bandwidth": "0GB/s"},
            "memory.dram.bandwidth: a bandwidth of 0B/s is not above zero",
        ),
        ({"memory__dram__latency": "5 parsecs"}, "memory.dram.latency: '5 parsecs' is not a delay"),
        ({"name": "a/b"}, "name: 'a/b' is not a name"),
        ({"description": "x" * 3000}, "description: the text is longer than 2000 characters"),
        ({"arithmetic__requantization__kinds": []}, "arithmetic.requantization.kinds: the list is empty"),
        (
            {"arithmetic__requantization__kinds": "single_rounding"},
            "requantization.kinds: 'single_rounding' is not a list",
        ),
        (
            {"arithmetic__requantization__kinds": ["single_rounding", "single_rounding"]},
            "kinds: single_rounding, single_rounding has an entry twice",
        ),
        ({"arithmetic__requantization__kinds": ["sngle"]}, "'sngle' is none of double_rounding, single"),
        ({"arithmetic__requantization__multiplier_bits": 16}, "multiplier_bits: 16 is none of 31, 15, 7"),
        ({"arithmetic__fixed_outputs__sofmax": {}}, "'sofmax' is not an op kind; did you mean 'softmax'?"),
        ({"limits__rules__cnov": {}}, "limits.rules.cnov: 'cnov' is not an op kind; did you mean 'conv'?"),
        ({"limits__rules__conv__a b": RULE}, "limits.rules.conv.a b: 'a b' is not a name of letters"),
        ({"limits__rules__conv__a": {"require": "kw < 3"}}, "limits.rules.conv.a.because: is missing"),
        ({"limits__rules__conv__a": RULE | {"because": ""}}, "limits.rules.conv.a.because: '' is too short"),
        (
            {"limits__rules__conv__a": RULE | {"require": "kw."}},
            "limits.rules.conv.a.require: 'kw.' is not an expr",
        ),
        ({"limits__ops": ["conv", "cnov"]}, "limits.ops.1: 'cnov' is not an op kind"),
        ({"limits__fused__conv": ["relu", "relu7"]}, "limits.fused.conv.1: 'relu7' is none of relu, relu6"),
        ({"limits__constants__depth": "deep"}, "limits.constants.depth: 'deep' is not a ratio"),
    ],
)
def test_a_mistake_in_a_field_is_named(changes: dict[str, Any], expected: str) -> None:
    found = problems(small(**changes))
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"memory__local__banks": 3}, "memory.local.size: 65536 bytes do not divide into 3 banks"),
        ({"arithmetic__weights__formats__i4": ["symmetric"]}, "weights may be i4, but no rate"),
        (
            {"arithmetic__activations__formats__i16": ["symmetric"]},
            "rates.i16: activations may be i16, but no rate",
        ),
        ({"arithmetic__activations__formats__i4": ["symmetric"]}, "i4 is a type of weights only"),
        (
            {"arithmetic__activations__formats__i8": ["float"]},
            "the scales of i8 are symmetric, affine or power_of_two",
        ),
        ({"arithmetic__activations__formats__f16": ["affine"]}, "the scales of f16 are float, not affine"),
        ({"arithmetic__weights__formats__u8": ["symmetric"]}, "weights of type u8 are affine"),
        ({"arithmetic__weights__formats__i8": None}, "arithmetic.weights.formats: no element type is left"),
        (
            {"arithmetic__requantization": {"kinds": ["double_rounding"], "multiplier_bits": 15}},
            "multiplier_bits: the kind 'double_rounding' has multipliers of 31 bits, not 15",
        ),
        ({"arithmetic__requantization__kinds": ["pow2"]}, "the only requantization is 'pow2'"),
        (
            {"arithmetic__accumulator__wide_bits": 32},
            "arithmetic.accumulator.wide_bits: is not wider than 32",
        ),
        (
            {"arithmetic__accumulator__bits": 24},
            "arithmetic.bias.bits: 32 bits are more than the accumulator's 24",
        ),
        ({"arithmetic__bias__wide_bits": 48}, "arithmetic.bias.wide_bits: 48 bits are more than"),
        ({"arithmetic__bias__significant_bits": 40}, "arithmetic.bias.significant_bits: is more than the 32"),
        (
            {"arithmetic__fixed_outputs__softmax__u8": {"scale": "1/256"}},
            "softmax.u8: activations are never u8",
        ),
        (
            {"arithmetic__fixed_outputs__softmax__i8": {"scale": "1/256", "zero_point": 200}},
            "softmax.i8.zero_point: 200 is not in the range -128 to 127",
        ),
        (
            {
                "arithmetic__activations__formats__i8": ["symmetric"],
                "arithmetic__fixed_outputs__softmax__i8": {"scale": "1/256", "zero_point": -128},
            },
            "softmax.i8.zero_point: is -128, but i8 has no affine scales here",
        ),
        ({"arithmetic__fixed_outputs__softmax__i8": {"scale": 0}}, "softmax.i8.scale: is not above zero"),
        (
            {"limits__rules__conv__a": RULE | {"require": "kq < 3"}},
            "'kq' is neither a parameter of conv nor a constant",
        ),
        ({"limits__rules__relu__a": RULE}, "'kw' is neither a parameter of relu nor a constant"),
        ({"limits__rules__conv__a": RULE | {"require": "kw + 3"}}, "'kw + 3' is a number, not a condition"),
        ({"limits__constants__ceil": 1}, "limits.constants.ceil: 'ceil' is already a function"),
        (
            {"limits__constants__cores": 1},
            "limits.constants.cores: 'cores' is already a figure of the machine",
        ),
        (
            {"limits__constants__kw": 1, "limits__rules__conv__a": RULE},
            "limits.constants.kw: 'kw' is already a parameter of an op",
        ),
        (
            {"limits__ops": ["lstm"], "limits__unsupported__lstm": "None here."},
            "'lstm' is also in limits.ops",
        ),
        (
            {"limits__rewrites": {"matmul": {"to": "conv"}, "conv": {"to": "deconv"}}},
            "limits.rewrites.matmul.to: 'conv' is itself rewritten",
        ),
        (
            {"limits__rewrites": {"conv": {"to": "conv"}}},
            "limits.rewrites.conv.to: 'conv' is itself rewritten",
        ),
        (
            {"limits__rewrites": {"matmul": {"to": "conv", "parameters": {"kz": 1}}}},
            "limits.rewrites.matmul.parameters.kz: 'conv' has no such parameter",
        ),
        (
            {"limits__rewrites": {"matmul": {"to": "conv", "parameters": {"kw": "inner < 1"}}}},
            "'inner < 1' is true or false, not a number",
        ),
        (
            {"limits__rewrites": {"matmul": {"to": "conv", "parameters": {"kw": "kw"}}}},
            "'kw' is neither a parameter of matmul nor a constant",
        ),
    ],
)
def test_fields_that_contradict_each_other_are_named(changes: dict[str, Any], expected: str) -> None:
    found = problems(small(**changes))
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize("path", ["name", "compute", "memory.dram.burst", "arithmetic.tables.entries_8bit"])
def test_a_missing_field_is_named(path: str) -> None:
    data = small()
    *groups, last = path.split(".")
    at: Any = data
    for group in groups:
        at = at[group]
    del at[last]
    assert problems(data) == [f"{path}: is missing"]


def test_all_problems_come_at_once() -> None:
    data = small(compute__cores=0, compute__clck=1, memory__local__size="big", arithmetic__bias__bits=1)
    assert len(problems(data)) == 4
    with pytest.raises(TargetError, match=r"compute.cores: 0 is below.*3 more problems"):
        Target.from_dict(data)


def test_one_wrong_entry_of_a_list_is_one_problem() -> None:
    assert len(problems(small(arithmetic__requantization__kinds=["x"]))) == 1


def test_plain_data_and_back() -> None:
    for target in (
        Target.from_dict(small(description="x")),
        load_target("server-32t"),
        load_target("aries-like"),
    ):
        data = target.to_dict()
        assert Target.from_dict(data) == target
        assert data == Target.from_dict(copy.deepcopy(data)).to_dict()


def test_a_target_is_frozen_hashable_and_picklable() -> None:
    target = load_target("dpuczdx8g-b4096-like")
    again = pickle.loads(pickle.dumps(target))
    assert again == target and hash(again) == hash(target) and again.fingerprint == target.fingerprint
    assert copy.deepcopy(target) == target
    assert len({target, again, load_target("edge-4t")}) == 2
    with pytest.raises(ValueError, match="frozen"):
        target.compute.cores = 2
    for change in (
        lambda: target.limits.rules.pop("conv"),
        lambda: target.limits.constants.__setitem__("bank_depth", 1),
        lambda: target.compute.array.rates["i8"].update(i8=2),
        lambda: target.limits.rules["conv"].clear(),
    ):
        with pytest.raises(TypeError, match="does not change"):
            change()


def test_null_removes_an_entry() -> None:
    target = Target.from_dict(small(limits__rules__conv={"a": RULE, "b": None}))
    assert list(target.limits.rules["conv"]) == ["a"]


def test_figures_that_follow() -> None:
    figures = derive(load_target("server-32t"))
    assert figures.peaks[0].operations_per_second == 2 * 16 * 16 * 16 * 4 * 1e9
    assert {(p.activation, p.weight): p.operations_per_second for p in figures.peaks}["i16", "i8"] == 8.192e12
    assert figures.depthwise_operations_per_second == 2 * 16 * 16 * 4 * 1e9
    assert (figures.dram_bytes_per_cycle, figures.shared_bytes_per_cycle) == (64, 256)
    assert figures.multiplications_per_dram_byte == 256
    assert figures.local_bytes == 8 * 1024**2 and figures.bank_bytes == 128 * 1024


@pytest.mark.parametrize(("how", "lanes"), [("idle_input_lanes", 8), ("full", 32), ("vector", 8)])
def test_depthwise_rates(how: str, lanes: int) -> None:
    figures = derive(Target.from_dict(small(compute__array__depthwise=how)))
    assert figures.depthwise_operations_per_second == 2e9 * lanes


def test_known_fields_reach_into_mappings() -> None:
    assert known_fields(("limits", "rules", "conv", "a")) == ["require", "because"]
    assert known_fields(("memory", "shared")) == ["size", "bandwidth"]
    assert known_fields(("limits", "constants")) == [] == known_fields(("nothing", "here"))
