"""Every item of `examples.yaml` does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.compat.registry import NAMES, vendor_named
from support.compat_examples import check_form, load, run_scenario

SCENARIOS = [
    pytest.param(
        vendor, name, id=f"{vendor}-{name}", marks=[pytest.mark.slow] if scenario.get("slow") else []
    )
    for vendor, scenarios in load().items()
    for name, scenario in scenarios.items()
]


@pytest.mark.parametrize(("vendor", "name"), SCENARIOS)
def test_the_items_of_a_scenario(
    vendor: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_scenario(vendor, load()[vendor][name], tmp_path, capfd)


def test_every_item_has_a_state_and_a_reason_if_it_is_not_run() -> None:
    for vendor, scenarios in load().items():
        assert vendor in NAMES
        for scenario in scenarios.values():
            for entry in scenario["items"]:
                check_form(entry)


@pytest.mark.parametrize("vendor", NAMES)
def test_every_command_of_a_vendor_occurs(vendor: str) -> None:
    texts = [
        f"{entry.get('run', '')}{entry.get('python', '')}"
        for scenario in load()[vendor].values()
        for entry in scenario["items"]
    ]
    own = vendor_named(vendor)
    for name in (*own.commands, *own.modules, *own.extensions):
        assert any(name in text for text in texts), f"no item uses {name}"
