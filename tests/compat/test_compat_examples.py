"""Every item of `examples.yaml` does what it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from npuc.compat.arguments import VendorParser
from npuc.compat.registry import NAMES, vendor_named
from npuc.errors import UsageError
from support.compat_examples import check_form, load, run_scenario
from support.paths import TESTS

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


class _Parsed(Exception):
    """Ends a command when it has its options."""


_SUBCOMMANDS = {
    "vai_q_tensorflow": (["quantize"], ["inspect"], ["dump"]),
    "npz_tool.py": (["compare"], ["dump"], ["visualize_diff"]),
    "xdputil": (["run"], ["xmodel"], ["run_op"], ["comp_float"]),
    "pegasus": (
        *(
            ["import", form]
            for form in ("caffe", "tensorflow", "tflite", "darknet", "onnx", "pytorch", "keras")
        ),
        *(["generate", what] for what in ("inputmeta", "postprocess-file")),
        *(["export", what] for what in ("ovxlib", "tflite", "onnx")),
        ["quantize"],
        ["inference"],
        ["measure"],
    ),
}
"""What is in front of the options of a command."""


@pytest.mark.parametrize("vendor", NAMES)
def test_every_option_of_a_command_occurs(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option without an item may be passed over, and nobody would see it."""
    own = vendor_named(vendor)
    written = "\n".join(
        f"{entry.get('run', '')}\n{entry.get('python', '')}\n"
        for scenario in load()[vendor].values()
        for entry in scenario["items"]
    )
    written += "".join(
        path.read_text(encoding="utf-8") for path in (TESTS / "compat").glob(f"test_{vendor}*.py")
    )
    written += "".join(
        path.read_text(encoding="utf-8") for path in (TESTS / "compat" / "programs").glob(f"{vendor}*")
    )
    options: dict[tuple[str, tuple[str, ...]], None] = {}

    def recorded(parser: VendorParser, _: Sequence[str]) -> None:
        options.update(
            dict.fromkeys(
                (parser.command, names) for names in parser.options() if names[0] not in ("--plugin", "-h")
            )
        )
        raise _Parsed

    monkeypatch.setattr(VendorParser, "parse", recorded)
    for command in own.commands:
        module, _, function = own.commands[command].partition(":")
        for words in _SUBCOMMANDS.get(command, ([],)):
            with suppress(_Parsed, UsageError):
                getattr(import_module(module), function)(list(words))
    assert bool(options) == bool(own.commands)
    missing = [
        f"{command} {names[-1]}"
        for command, names in options
        if not any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", written) for name in names)
    ]
    assert not missing, missing
