"""The page of `npuc explore` in a real browser: it draws, and gives the target file of any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npuc.explore import ExploredNetwork, SearchOptions, Space, explore
from npuc.explore.results import write_results
from npuc.target import load_target

pytestmark = pytest.mark.browser


def test_it_gives_the_target_file_of_any_machine(root: Path, tmp_path: Path, browser: Any) -> None:
    space = Space.of(
        load_target("edge-1t"),
        {"lanes": ["4x4x2", "8x8x4"], "decoder": ["none", "64B/cycle"], "memory.dram.latency": ["100cycles"]},
    )
    network = ExploredNetwork(root / "examples" / "digits.onnx")
    write_results(explore([network], space, tmp_path, options=SearchOptions(machines=2)), tmp_path)
    page = tmp_path / "explore.html"
    browser.open(page)
    browser.wait("document.getElementById('target')")
    for number in range(space.size):
        browser.script(
            "const field = document.getElementById('number'); field.value = arguments[0];"
            "field.dispatchEvent(new Event('change', {bubbles: true}));",
            str(number),
        )
        file = tmp_path / "chosen.yaml"
        file.write_text(browser.script("return document.getElementById('target').textContent"))
        assert load_target(file).fingerprint == space.target(number).fingerprint
    rows = browser.script("return document.querySelectorAll('#front tbody tr').length")
    assert rows >= 1
    drawn = browser.script(
        "const plot = document.getElementById('plot');"
        "return plot.getContext('2d').getImageData(0, 0, plot.width, plot.height).data.some(value => value > 0)"
    )
    assert drawn
    asked, said = browser.seen()
    assert said == [] and [address for address in asked if not address.startswith("data:")] == [page.as_uri()]
