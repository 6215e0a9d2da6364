"""Spaces of machines: every combination once, contradictions refused, and target files that are the machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.errors import NpucError, TargetError, UsageError
from npuc.explore.proxies import Coefficients, on_chip_bytes
from npuc.explore.space import Space
from npuc.target import load_target

BASE = load_target("edge-4t")


def test_machines_are_all_combinations_of_values() -> None:
    space = Space.of(BASE, {"lanes": ["8x8x4", "16x8x2"], "cores": [1, 2, 4]})
    assert space.size == 6
    met = {tuple(space.values(number).values()) for number in range(6)}
    assert met == {(lanes, cores) for lanes in ("8x8x4", "16x8x2") for cores in ("1", "2", "4")}
    target = space.target(4)
    assert (space.values(4), target.compute.cores) == ({"lanes": "16x8x2", "cores": "2"}, 2)
    array = target.compute.array
    assert (array.output_channels, array.input_channels, array.pixels) == (16, 8, 2)


def test_each_parameter_changes_its_field_and_no_other() -> None:
    changes = {
        "vector_lanes": ("64", lambda t: (t.compute.vector_lanes, t.compute.table_units), (64, 64)),
        "local_memory": ("256KiB", lambda t: t.memory.local.size, 1 << 18),
        "banks": ("4", lambda t: t.memory.local.banks, 4),
        "bandwidth": ("8GB/s", lambda t: t.dram_bytes_per_cycle, 8.0),
        "decoder": ("64B/cycle", lambda t: t.memory.weight_decoder is not None, True),
        "contexts": ("16", lambda t: t.memory.weight_contexts, 16),
        "memory.weight_contexts": ("8", lambda t: t.memory.weight_contexts, 8),
        "clock": ("500MHz", lambda t: float(t.compute.clock), 5e8),
        "memory.dram.latency": ("100cycles", lambda t: float(t.memory.dram.latency.cycles(10**9)), 100.0),
    }
    for name, (value, field, wanted) in changes.items():
        decoder = {"decoder": ["64B/cycle"]} if "contexts" in name else {}
        target = Space.of(BASE, {**decoder, name: [value]}).target(0)
        assert field(target) == wanted != field(BASE), name
    same = Space.of(BASE, {"cores": [1]}).target(0)
    assert same.fingerprint == BASE.fingerprint


def test_bits_are_of_networks_and_not_of_machines() -> None:
    space = Space.of(BASE, {"bits": ["8x8", "16x8"], "cores": [1, 2]})
    assert [space.bits(number) for number in range(4)] == [0, 0, 1, 1]
    assert space.target(0).fingerprint == space.target(2).fingerprint != space.target(1).fingerprint
    assert space.bit_widths == ("8x8", "16x8") and Space.of(BASE, {}).bit_widths == ("",)


def test_a_contradiction_is_no_machine() -> None:
    with pytest.raises(TargetError, match="banks"):
        Space.of(BASE, {"banks": [3]}).target(0)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"lane": [1]}, "is no parameter"),
        ({"__class__.x": [1]}, "is no parameter"),
        ({"cores": 2}, "a list of different"),
        ({"cores": [1, 1]}, "a list of different"),
        ({"cores": [[1]]}, "a list of different"),
        ({"cores": []}, "a list of different"),
        ({"lanes": ["8x8"]}, "OUTPUTSxINPUTSxPIXELS"),
        ({"bits": ["7x8"]}, "ACTIVATIONSxWEIGHTS"),
        ({"cores": ["two"]}, "not a whole number"),
        ({"cores": list(range(1, 1001)), "banks": list(range(1, 1001))}, "1,000,000 machines"),
    ],
)
def test_a_space_that_is_none_is_refused_in_words(parameters: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Space.of(BASE, parameters)


def test_a_file_of_a_space(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("base: edge-1t\nparameters:\n  cores: [1, 2]\n  bandwidth: [4GB/s]\n")
    space = Space.load(path)
    assert (space.base.name, space.size) == ("edge-1t", 2)
    for text in (
        "- 1",
        "base: 3",
        "base: edge-1t\nother: 1",
        "parameters: {}",
        "base: [",
        "base: edge-1t\nparameters: 3",
    ):
        path.write_text(text)
        with pytest.raises(NpucError):
            Space.load(path)


def test_coefficients_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "coefficients.yaml"
    path.write_text(
        "byte_area: 1\nmac_area: 0\nvector_lane_area: 0\nbank_area: 0\ndram_area: 0\ncore_area: 0\n"
    )
    assert Coefficients.load(path).area(BASE) == on_chip_bytes(BASE) == 2 << 20
    for text in ("mac: 1", "mac_area: -1", "mac_area: .nan", "mac_area: true", "- 1"):
        path.write_text(text)
        with pytest.raises(UsageError):
            Coefficients.load(path)


def test_energy_counts_arithmetic_bytes_and_time() -> None:
    plain = Coefficients()
    none = plain.energy(100.0, 1 << 20, 0, 0.0, 0)
    assert none == 0
    assert plain.energy(100.0, 1 << 20, 10**12, 0.0, 0) == pytest.approx(0.3)
    assert plain.energy(100.0, 1 << 20, 0, 0.0, 10**9) == pytest.approx(0.1725)
    assert plain.energy(100.0, 1 << 20, 0, 2.0, 0) == pytest.approx(0.02)
