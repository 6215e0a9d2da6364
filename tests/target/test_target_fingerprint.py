"""The fingerprint: the same for every spelling of a machine, another for every other machine."""

from __future__ import annotations

import random
from typing import Any

import pytest

from npuc.target import Target, available, load_target
from npuc.target.fingerprint import canonical
from support.targets import small

RULES = {
    "constants": {"depth": 64},
    "rules": {"conv": {"a": {"require": "kw*kh <= depth", "because": "It is too large."}}},
    "rewrites": {"matmul": {"to": "conv", "parameters": {"kw": 1, "kh": 1}}},
    "fused": {"conv": ["relu"]},
}
RICH: dict[str, Any] = {
    "limits": RULES,
    "memory__shared": {"size": "1MiB", "bandwidth": "8B/cycle"},
    "arithmetic__fixed_outputs__softmax__i8": {"scale": "1/256", "zero_point": -128},
}


def fingerprint(**changes: Any) -> int:
    return Target.from_dict(small(**(RICH | changes))).fingerprint


def test_it_is_pinned() -> None:
    """A program that was compiled for a preset yesterday runs there today, whatever its fields and kinds are called now.

    If all of these have to change, raise `SCHEMA` in fingerprint.py; if one, because what it states was wrong, not. Say so in the
    changelog.
    """
    found = {file.name: load_target(file.name).fingerprint_text for file in available() if file.preset}
    assert found == PINNED


PINNED = {
    "aries-like": "0x74b3edf47dfaa1c6",
    "bm1684x": "0x7b8055c114bb518c",
    "bm1684x-like": "0xeee5caf765ab763c",
    "dpucahx8h-dwc-like": "0xe6dc8d7b2bdbbf67",
    "dpucvdx8g-c32b3-like": "0x9932e4b106def807",
    "dpuczdx8g-b4096-like": "0x7046a0ef91e9c27f",
    "edge-1t": "0xef41ba0883e0ecb2",
    "edge-4t": "0xd667959ded6511ae",
    "ethos-u65-256-like": "0x411b819b8adfeb47",
    "server-32t": "0x82c344aea49b3719",
    "vipnano-e8-like": "0x9d8852ac73466fef",
    "vipnano-like": "0xe99524e793a5ffeb",
    "zhouyi-x1-like": "0xbf0deadccef2f66e",
    "zhouyi-x2-like": "0x04173486df96a7e5",
    "zhouyi-x2mp3-like": "0x012a5f6beb83dc8f",
}


def test_it_has_64_bits_and_tells_all_presets_apart() -> None:
    found = [load_target(file.name).fingerprint for file in available() if file.preset]
    assert len(set(found)) == len(found)
    assert all(0 <= value < 1 << 64 for value in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"description": "Other words."},
        {"extends": "whatever"},
        {"memory__local__size": 65536},
        {"memory__local__size": "0.0625MiB"},
        {"memory__dram__bandwidth": "1B/cycle"},
        {"memory__dram__bandwidth": "1000MB/s"},
        {"memory__dram__latency": "100ns"},
        {"memory__shared__bandwidth": "8GB/s"},
        {"compute__clock": "1000MHz"},
        {"compute__array__rates__i8__i8": "2/2"},
        {"compute__array__rates__i16": {"i8": "1/4"}},
        {"limits__rules__conv__a__because": "Other words."},
        {"limits__rules__conv__a__require": "(kw * kh) <= depth"},
        {
            "limits__rules__conv": {
                "a": None,
                "b": {"require": "kw*kh <= depth", "because": "It is too large."},
            }
        },
        {"limits__rules__relu": {}},
        {"limits__constants__unused": 3},
        {"arithmetic__constant_rounding": "half_away"},
    ],
)
def test_what_does_not_change_a_program_does_not_change_it(changes: dict[str, Any]) -> None:
    assert fingerprint(**changes) == fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"compute__cores": 2},
        {"compute__clock": "2GHz"},
        {"compute__array__pixels": 4},
        {"compute__array__input_channels": 2},
        {"compute__array__output_channels": 2},
        {"compute__array__rates__i8__i8": "1/2"},
        {"compute__array__depthwise": "full"},
        {"compute__vector_lanes": 16},
        {"compute__table_units": 2},
        {"compute__sparsity": ["2:4"]},
        {"memory__local__size": "128KiB"},
        {"memory__local__banks": 8},
        {"memory__local__alignment": 32},
        {"memory__shared": None},
        {"memory__shared__size": "2MiB"},
        {"memory__shared__bandwidth": "9B/cycle"},
        {"memory__dram__bandwidth": "2GB/s"},
        {"memory__dram__latency": 101},
        {"memory__dram__burst": 64},
        {"memory__weight_decoder": "8B/cycle"},
        {"memory__weight_decoder": "8B/cycle", "memory__weight_contexts": 4},
        {"arithmetic__activations__formats__i8": ["symmetric", "affine"]},
        {"arithmetic__activations__range": "narrow"},
        {"arithmetic__weights__granularity": ["per_tensor"]},
        {"arithmetic__weights__range": "full"},
        {"arithmetic__requantization__kinds": ["single_even"]},
        {"arithmetic__requantization__multiplier_bits": 15},
        {"arithmetic__requantization__max_shift": 31},
        {"arithmetic__requantization__min_shift": -1},
        {"arithmetic__constant_rounding": "half_even"},
        {"arithmetic__bias__significant_bits": 16},
        {"arithmetic__accumulator__wide_bits": 48},
        {"arithmetic__tables__entries_16bit": 513},
        {"arithmetic__fixed_outputs__softmax__i8__scale": "1/128"},
        {"limits__ops": ["conv", "matmul"]},
        {"limits__unsupported__lstm": "There is none."},
        {"limits__constants__depth": 65},
        {"limits__rules__conv__a__require": "kw*kh < depth"},
        {"limits__rewrites__matmul__parameters__kw": 2},
        {"limits__fused__conv": ["relu", "relu6"]},
    ],
)
def test_what_can_change_a_program_changes_it(changes: dict[str, Any]) -> None:
    assert fingerprint(**changes) != fingerprint()


def test_the_order_of_fields_does_not_matter() -> None:
    target = load_target("dpuczdx8g-b4096-like")
    generator = random.Random(1)

    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        items = list(value.items())
        generator.shuffle(items)
        return {key: shuffled(item) for key, item in items}

    for _ in range(5):
        assert Target.from_dict(shuffled(target.to_dict())).fingerprint == target.fingerprint


def test_every_field_is_covered() -> None:
    """A new field of the schema has to be in the canonical form, or left out on purpose."""
    left_out = {"name", "description", "extends", "version"}
    assert set(Target.model_fields) - left_out == set(canonical(load_target("bm1684x"))) - {"schema"}
