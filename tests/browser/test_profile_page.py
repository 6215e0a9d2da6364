"""The report of `npuc profile` in a real browser: it draws, sorts and answers the pointer, and asks the network for nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npuc.calib.sources import random_data
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.profile.host import host_times
from npuc.profile.page import html_page
from npuc.profile.report import report_of
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.sim import simulate
from npuc.target import load_target

pytestmark = pytest.mark.browser

LEFT, LANE, MAP = 92, 28, 240
"""Of timeline.js: where a canvas begins to show cycles, the height of a lane and of the memory map."""


def compiled_digits(root: Path, target: str, devices: dict[str, str]) -> CompiledModel:
    machine = load_target(target)
    graph = network_to_quantize(root / "examples/digits.onnx")
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, machine), "max")
    quantized = quantize_network(graph, ranges, None, machine).graph
    options = CompileOptions(1, devices=devices, island_threshold=0)
    return compile_program(quantized, machine, options, name="digits").model


def page_of(compiled: CompiledModel, path: Path) -> Path:
    timeline = simulate(compiled)
    path.write_text(html_page(compiled, timeline, report_of(compiled, timeline, host_times(compiled))))
    return path


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with a layer on the CPU."""
    folder = tmp_path_factory.mktemp("page")
    return page_of(compiled_digits(root, "edge-4t", {"pool": "cpu"}), folder / "digits.html")


def data_of(page: Path) -> Any:
    return json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])


def quiet(browser: Any, page: Path) -> None:
    """The page asked for itself and nothing else, and said nothing."""
    asked, said = browser.seen()
    assert said == []
    assert [address for address in asked if not address.startswith("data:")] == [page.as_uri()]


def test_requests_and_complaints_would_be_seen(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        '<img src="http://127.0.0.1:9/picture.png"><script>console.error("oh"); missing();</script>'
    )
    browser.open(page)
    asked, said = browser.seen()
    assert "http://127.0.0.1:9/picture.png" in asked and len(said) >= 2


def test_the_page_shows_everything_and_asks_for_nothing(browser: Any, page: Path) -> None:
    browser.open(page)
    data = data_of(page)
    assert browser.driver.title == "npuc profile: digits" and browser.texts("h1") == ["digits"]
    assert len(browser.texts("#layers tbody tr")) == len(data["layers"]) == 9
    assert len(browser.texts("#graph .node")) == len(data["network"]["nodes"]) == 9 + 2 + 2 + 1
    assert len(browser.texts("#graph path")) == len(data["network"]["edges"]) > 10
    assert len(browser.texts("#roofline circle")) == sum(layer["gop"] > 0 for layer in data["layers"])
    assert len(browser.texts("#hottest li")) == 10
    assert "poolCPU: cpu2" in " ".join(browser.texts("#graph .node"))
    painted = browser.script("""
        return ["timeline", "memory", "overview"].map(id => {
          const canvas = document.getElementById(id);
          const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(pixels.buffer)).size;
        });""")
    assert min(painted) > 5
    browser.screenshot("profile-light.png", whole=True)
    browser.click("#theme")
    assert browser.script("return getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 27)"
    browser.screenshot("profile-dark.png", whole=True)
    quiet(browser, page)


def test_no_section_is_wider_than_the_window(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.driver.set_window_size(700, 900)
    try:
        assert browser.script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.driver.set_window_size(1440, 1000)


def test_a_click_on_a_heading_sorts(browser: Any, page: Path) -> None:
    browser.open(page)
    heading = browser.texts("#layers th")
    column = heading.index("cycles") + 1

    def cycles() -> list[float]:
        return [float(text.replace(",", "")) for text in browser.texts(f"#layers td:nth-child({column})")]

    unsorted = cycles()
    browser.click(f"#layers th:nth-child({column}) button")
    assert cycles() == sorted(unsorted, reverse=True) != unsorted
    assert browser.script("return document.querySelector('#layers th[aria-sort]').textContent") == "cycles"
    browser.click(f"#layers th:nth-child({column}) button")
    assert cycles() == sorted(unsorted)
    browser.click("#layers th:nth-child(2) button")
    names = browser.texts("#layers td:nth-child(2)")
    assert names == sorted(names)
    browser.script(
        "const f = document.getElementById('filter'); f.value = 'block1'; f.dispatchEvent(new Event('input'))"
    )
    shown = browser.texts("#layers tbody tr:not([hidden]) td:nth-child(2)")
    assert shown == [name for name in names if "block1" in name] and shown
    assert browser.texts("#layer-count") == [f"{len(shown)} of {len(names)}"]
    quiet(browser, page)


def test_the_timeline_tells_what_is_under_the_pointer(browser: Any, page: Path) -> None:
    browser.open(page)
    data = data_of(page)
    width = browser.script("return document.getElementById('timeline').clientWidth")
    row, lane = next((i, one) for i, one in enumerate(data["lanes"]) if one["queue"] == "matrix")
    y, name = 3 + row * LANE + LANE / 2, ""
    browser.hover("#timeline", LEFT + 2, y)
    assert browser.script("return document.getElementById('tip').style.display") != "block"
    for start, end, layer in zip(lane["start"], lane["end"], lane["layer"], strict=True):
        if (end - start) / data["cycles"] * (width - LEFT) > 10:
            browser.hover("#timeline", LEFT + (start + end) / 2 / data["cycles"] * (width - LEFT), y)
            lines, name = browser.texts("#tip div"), data["layers"][layer]["name"]
            assert lines[0] == name and lines[1] == "matrix: conv"
            assert lines[3] == f"from {start:,} to {end:,}"
    assert name and browser.script("return document.getElementById('tip').getBoundingClientRect().width") > 50
    browser.screenshot("profile-hover.png")

    from selenium.webdriver import ActionChains

    ActionChains(browser.driver).click().perform()
    assert browser.texts("#layers tr.chosen td:nth-child(2)") == [name]
    assert name in browser.texts("#chosen-text")[0]
    assert len(browser.texts("#graph .node.chosen")) == 1
    browser.click("#chosen-zoom")
    browser.click("#chosen-clear")
    assert browser.texts("#layers tr.chosen") == []
    quiet(browser, page)


def test_the_memory_and_the_network_answer_too(browser: Any, page: Path) -> None:
    browser.open(page)
    data = data_of(page)
    width = browser.script("return document.getElementById('memory').clientWidth")
    _, start, end, address, size, name = max(data["memory"], key=lambda box: (box[2] - box[1]) * box[4])
    x = LEFT + (start + end) / 2 / data["cycles"] * (width - LEFT)
    shown = 1.15 * data["summary"]["on_chip"]  # of a memory that is less than half full
    y = MAP * (1 - (address + size / 2) / shown)
    browser.hover("#memory", x, y)
    assert any(line.startswith(f"{name}: ") for line in browser.texts("#tip div"))
    browser.click("#graph .node:nth-of-type(4)")
    assert len(browser.texts("#layers tr.chosen")) == 1 and len(browser.texts("#graph .node.chosen")) == 1
    for how in ("limit", "array", "time"):
        browser.script(
            "const p = document.getElementById('paint'); p.value = arguments[0]; p.dispatchEvent(new Event('change'))",
            how,
        )
        fills = browser.script("return [...document.querySelectorAll('#graph rect')].map(e => e.style.fill)")
        assert len(set(fills)) > 2 and "" not in fills
    quiet(browser, page)


def test_a_model_that_is_all_on_the_cpu(browser: Any, root: Path, tmp_path: Path) -> None:
    page = page_of(compiled_digits(root, "edge-1t", {"*": "cpu"}), tmp_path / "page.html")
    browser.open(page)
    assert browser.texts("#layers tbody tr") == [] and len(browser.texts("#host tbody tr")) == 1
    quiet(browser, page)


def test_several_cores(browser: Any, root: Path, tmp_path: Path) -> None:
    compiled = compiled_digits(root, "server-32t", {})
    twice = [
        replace(one, streams=one.streams * 2) if isinstance(one, NpuSubgraph) else one
        for one in compiled.subgraphs
    ]
    page = page_of(replace(compiled, subgraphs=tuple(twice)), tmp_path / "page.html")
    browser.open(page)
    assert browser.texts("#core option") == ["0", "1"] and len(data_of(page)["lanes"]) == 8
    assert not browser.script("return document.getElementById('core-choice').hidden")
    quiet(browser, page)


def enlarged(data: Any, count: int) -> Any:
    """The figures of one layer many times, in a chain."""
    layer, op = data["layers"][0], next(lane["op"][0] for lane in data["lanes"] if lane["op"])
    numbers = range(count)
    names = [f"stage{i // 100}/block{i}/convolution_with_a_long_name/relu" for i in numbers]
    spans = {"start": [10 * i for i in numbers], "end": [10 * i + 8 for i in numbers], "op": [op] * count}
    node = {"kind": "conv", "device": "npu", "type": "1x8x8x8xi8"}
    return {
        **data,
        "layers": [{**layer, "name": names[i], "cycles": i, "share": 1 / count} for i in numbers],
        "lanes": [{**lane, **spans, "layer": list(numbers)} for lane in data["lanes"]],
        "cycles": 10 * count,
        "memory": [[0, 10 * i, 10 * i + 30, 64 * i, 640, names[i]] for i in numbers],
        "network": {
            "nodes": [{**node, "name": names[i], "layer": i, "at": [0, i]} for i in numbers],
            "edges": [[i, i + 1, []] for i in range(count - 1)],
            "width": 0,
            "ranks": count,
        },
    }


def test_a_thousand_layers(browser: Any, page: Path, tmp_path: Path) -> None:
    data = enlarged(data_of(page), 1000)
    before, mark, rest = page.read_text().partition('id="data">')
    large = tmp_path / "large.html"
    large.write_text(before + mark + json.dumps(data) + "</script>" + rest.partition("</script>")[2])
    browser.open(large)
    assert len(browser.texts("#layers tbody tr")) == len(browser.texts("#graph .node")) == 1000
    browser.click("#layers th:nth-child(4) button")
    assert browser.texts("#layers tbody tr:first-child td:nth-child(2)") == [data["layers"][-1]["name"]]
    browser.click("#layers tbody tr:nth-child(2)")
    assert len(browser.texts("#graph .node.chosen")) == 1
    assert browser.script("return document.getElementById('graph-scroll').scrollTop") > 50_000
    browser.screenshot("profile-large.png", whole=True)
    quiet(browser, large)
