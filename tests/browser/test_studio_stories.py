"""The stories of the studio, walked to their end in a real browser: from a question to a decision that is a file.

Each leaves pictures in build/artifacts, in light or dark, at the width that it is for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from npuc.calib.calibration import table_from
from npuc.calib.collection import collect
from npuc.calib.statistics import save_statistics
from npuc.calib.table import load_table, save_table
from npuc.flow import network_to_quantize
from npuc.schedule.schedule_file import ScheduleFile
from npuc.studio.export import export
from npuc.studio.project import Project
from npuc.studio.studio import Studio
from support.studio_page import AXE, built, enter, serious_violations, silent, tab

pytestmark = pytest.mark.browser
__all__ = ["built"]
SCHEDULE = """subgraphs:
  npu1:
    groups:
    - {layers: [stem/relu], tiles: 1}
    - {layers: [pool, head/pool], tiles: 1}
"""


@pytest.fixture
def narrow(browser: Any) -> Iterator[None]:
    """A window as wide as a telephone."""
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True},
    )
    yield
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def editing(browser: Any) -> Iterator[None]:
    """The narrowest window for editing."""
    browser.driver.set_window_size(1280, 900)
    yield
    browser.driver.set_window_size(1440, 1000)


def digit(folder: Path) -> None:
    """A sample of the project as an image, and names of classes."""
    with np.load(folder / "digits_samples.npz") as samples:
        pixels = next(samples[name][0, 0] for name in samples if samples[name].ndim == 4)
    Image.fromarray(np.clip(pixels * 16, 0, 255).astype(np.uint8)).save(folder / "digit.png")
    (folder / "classes.txt").write_text("\n".join(f"digit {number}" for number in range(10)))


def fits(browser: Any) -> None:
    assert browser.script("return document.documentElement.scrollWidth <= innerWidth"), (
        "wider than the window"
    )


def test_why_is_it_slow_down_to_the_instruction(
    browser: Any, client: Any, project_folder: Path, editing: None
) -> None:
    """From the layers, by the one that takes longest, to the instruction that holds another up."""
    enter(browser, client, "a=digits.npu&tab=time")
    browser.wait("document.querySelector('#layers tbody tr')")
    column = browser.texts("#layers th").index("cycles") + 1
    browser.click(f"#layers th:nth-child({column}) button")
    slowest = browser.texts("#layers tbody tr td:nth-child(2)")[0]
    browser.click("#layers tbody tr")
    browser.click("#chosen-code")
    browser.wait("document.querySelector('#code tr.chosen')")
    assert slowest in " ".join(browser.texts("#code .code-facts dd"))
    assert browser.script("return document.querySelectorAll('#code .code-list tbody tr').length") > 5
    before = browser.texts("#code h2")[0]
    assert "held up by" in browser.texts("#code dt") or "waits for load" in browser.texts("#code dt")
    browser.click("#code .code-facts .link")
    browser.wait(f"document.querySelector('#code h2').textContent !== {json.dumps(before)}")
    rows = Studio(Project(project_folder)).instructions("digits.npu", 0, 0, 0)["rows"]
    index = int(browser.texts("#code tr.chosen td")[0])
    assert browser.texts("#code .line") == [rows[index]["text"]]
    assert browser.texts("#code .code-facts tbody td")[2].startswith("0x")
    browser.script("document.getElementById('over-time').scrollIntoView()")
    browser.click("#chosen-clear")
    browser.screenshot("studio-instruction.png")
    fits(browser)
    silent(browser)


def test_why_is_it_wrong_on_an_image(browser: Any, client: Any, project_folder: Path, editing: None) -> None:
    """A network whose image comes with the wrong scale names another digit; the right scale heals it."""
    digit(project_folder)
    model = onnx.load(project_folder / "digits.onnx")
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "block2/conv/weight")
    values = onnx.numpy_helper.to_array(weight)
    weight.CopyFrom(onnx.numpy_helper.from_array(-values, weight.name))
    onnx.save(model, project_folder / "broken.onnx")
    enter(browser, client, "a=broken.onnx&b=digits.onnx&tab=picture&sample=digit.png&labels=classes.txt")
    browser.wait("document.querySelectorAll('.picture-card').length === 2")
    assert "pixels from 0 to 255" in " ".join(browser.texts(".picture-card .steps"))
    browser.click("#picture-prepare summary")
    browser.script(
        "const f = document.getElementById('picture-scale'); f.value = '0.0625'; f.dispatchEvent(new Event('change'))"
    )
    browser.wait(
        "document.querySelector('.given code') && document.querySelector('.given code').textContent.includes('--scale 0.0625')"
    )
    browser.wait("document.querySelectorAll('.picture-card').length === 2")
    first, second = browser.script(
        "return [...document.querySelectorAll('.picture-card')]"
        ".map(card => [...card.querySelectorAll('.found li')].map(e => e.textContent))"
    )
    assert len(first) == 5 and first[0].startswith("digit ") and second[0] != first[0]
    assert browser.texts(".verdict.differs") and "another class" in browser.texts(".verdict.differs")[0]
    browser.screenshot("studio-image.png")
    tab(browser, "numbers")
    browser.wait("document.getElementById('verdict')")
    assert "block2" in browser.texts("#verdict")[0]
    fits(browser)
    silent(browser)


def test_move_a_range_and_quantize_with_it(
    browser: Any, client: Any, project_folder: Path, editing: None
) -> None:
    """Calibrate as a job, move the upper end of a range by keys alone, save the table, and quantize with it."""
    from selenium.webdriver import ActionChains, Keys

    enter(browser, client, "a=digits.onnx&b=digits.onnx&tab=act&part=ranges&sample=digits_samples.npz")
    browser.wait("document.getElementById('range-calibrate')")
    browser.script("document.getElementById('range-calibrate').focus()")
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    browser.wait("document.querySelector('#range-editor canvas')", 180)
    browser.script(
        "[...document.querySelectorAll('.ranges tbody tr')].find(row => row.textContent.startsWith('stem/relu')).focus()"
    )
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    browser.wait("document.querySelector('#range-editor h3').textContent.startsWith('stem/relu')")
    before = float(browser.script("return document.getElementById('range-high').value"))
    browser.script("document.querySelectorAll('.range-slider')[1].focus()")
    ActionChains(browser.driver).send_keys(*[Keys.ARROW_LEFT] * 40).perform()
    after = float(browser.script("return document.getElementById('range-high').value"))
    assert 0 < after < before and "clipped" in browser.texts("#range-verdict")[0]
    browser.screenshot("studio-ranges.png")
    browser.click("#range-quantize")
    browser.wait("document.querySelectorAll('.job.done').length === 2", 180)
    table = load_table(project_folder / "digits-edited.cali")
    assert table["stem/relu"].method == "edited" and abs(table["stem/relu"].max - after) < 1e-4
    assert (project_folder / "digits-edited.mlir").is_file()
    fits(browser)
    silent(browser)


def test_cut_a_layer_into_tiles_and_look_at_the_cycles(
    browser: Any, client: Any, project_folder: Path, editing: None
) -> None:
    enter(browser, client, "a=digits.mlir&tab=act&part=layers")
    browser.wait("document.getElementById('act-compile')")
    browser.script("document.getElementById('act-name').value = 'plain'")
    browser.choose("#act-level", "1")
    browser.click("#act-compile")
    browser.wait("document.querySelector('.job.done')", 180)
    browser.click("#part-schedule")
    browser.wait("document.getElementById('schedule-compile')")
    browser.script(
        "const i = document.querySelector('tbody input.tiny'); i.value = 4; i.dispatchEvent(new Event('change'))"
    )
    assert "1 group is fixed" in browser.texts("#schedule-changes")[0]
    browser.screenshot("studio-schedule.png")
    browser.choose("#schedule-source", "digits.mlir")
    browser.click("#schedule-compile")
    browser.wait("document.querySelectorAll('.job.done').length === 2", 180)
    assert "cycles" in browser.texts(".job.done .figures")[0]
    fixed = ScheduleFile.load(project_folder / "plain-tiled.tiles.yaml")
    (entry,) = fixed.subgraphs.values()
    assert [group.tiles for group in entry.groups] == [4]
    browser.click(".job.done button")
    browser.wait("document.getElementById('view').dataset.ready === 'time'")
    assert browser.script("return document.getElementById('file-a').value") == "plain-tiled.npu"
    browser.choose("#file-b", "plain.npu")
    browser.wait("document.querySelector('.against')")
    silent(browser)


def test_the_frontier_opens_what_is_clicked(browser: Any, client: Any, project_folder: Path) -> None:
    (project_folder / "slow.npu").write_bytes((project_folder / "digits.npu").read_bytes())
    enter(browser, client, "a=digits.npu&b=digits.onnx&tab=act&part=frontier&sample=digits_samples.npz")
    browser.wait("document.querySelectorAll('table[aria-label=Programs] tbody tr').length === 2")
    assert browser.script("return document.getElementById('frontier-measure').value") == "top1"
    assert "98.50 %" in " ".join(browser.texts("table[aria-label=Programs] td"))
    browser.screenshot("studio-frontier.png")
    browser.choose("#frontier-measure", "SQNR of the worst output")
    browser.wait("document.querySelector('canvas.plot').getAttribute('aria-label').startsWith('SQNR')")
    browser.click("table[aria-label=Programs] tbody tr:nth-child(2)")
    browser.wait("document.getElementById('view').dataset.ready === 'time'")
    assert browser.script("return document.getElementById('file-a').value") == "slow.npu"
    silent(browser)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", ["graph", "numbers", "picture", "time", "placement"])
def test_reports_are_readable_at_390_pixels(
    browser: Any, client: Any, project_folder: Path, narrow: None, view: str, theme: str
) -> None:
    digit(project_folder)
    start = f"a=digits.npu&b=digits.onnx&tab={view}&sample={'digit.png' if view == 'picture' else 'digits_samples.npz'}"
    enter(browser, client, start)
    browser.wait(f"document.getElementById('view').dataset.ready === '{view}'")
    if theme == "dark":
        browser.script("document.getElementById('theme').click()")
    fits(browser)
    browser.screenshot(f"studio-390-{view}-{theme}.png", whole=True)
    silent(browser)


@pytest.mark.parametrize("part", ["picture", "ranges", "schedule", "frontier", "code"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_new_views_are_in_nobodys_way(
    browser: Any, client: Any, project_folder: Path, editing: None, part: str, theme: str
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make test-studio")
    digit(project_folder)
    (project_folder / "digits.schedule.yaml").write_text(SCHEDULE)
    views = {"picture": "tab=picture&sample=digit.png", "code": "tab=time"}
    enter(browser, client, f"a=digits.npu&b=digits.onnx&{views.get(part, f'tab=act&part={part}')}")
    browser.wait("document.getElementById('view').dataset.ready")
    if part == "code":
        browser.click("#layers tbody tr")
        browser.click("#chosen-code")
        browser.wait("document.querySelector('#code tr.chosen')")
    if part == "picture":
        browser.wait("document.querySelector('.picture-card')")
    if theme == "dark":
        browser.script("document.getElementById('theme').click()")
    assert serious_violations(browser) == []
    silent(browser)


def test_an_exported_page_without_a_network_shows_images_and_instructions(
    browser: Any, studio_files: Path, project_folder: Path, tmp_path: Path
) -> None:
    digit(project_folder)
    network = network_to_quantize(project_folder / "digits.onnx")
    statistics = collect(network, str(project_folder / "digits_samples.npz"), threads=1)
    save_statistics(statistics, project_folder / "digits.stats.npz")
    save_table(table_from(statistics, "max"), project_folder / "digits.cali")
    (project_folder / "digits.schedule.yaml").write_text(SCHEDULE)
    names = [
        "digits.npu",
        "digits.onnx",
        "digits_samples.npz",
        "digit.png",
        "classes.txt",
        "digits.cali",
        "digits.stats.npz",
    ]
    names.append("digits.schedule.yaml")
    page = tmp_path / "report.html"
    page.write_text(export(Studio(Project(project_folder)), names))
    assert page.stat().st_size <= 2 * sum((project_folder / name).stat().st_size for name in names) + (
        2 << 20
    )
    browser.driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        browser.open(page)
        browser.wait("document.getElementById('view').dataset.ready === 'graph'")
        tab(browser, "picture")
        browser.wait("document.querySelectorAll('.picture-card').length === 2")
        assert browser.texts(".picture-card .found li")[0].startswith("digit ")
        tab(browser, "time")
        browser.click("#layers tbody tr")
        browser.click("#chosen-code")
        browser.wait("document.querySelector('#code tr.chosen')")
        browser.screenshot("studio-exported-instruction.png")
        tab(browser, "numbers")
        browser.click("table[aria-label='Errors of layers'] tbody tr:nth-child(2)")
        browser.wait("document.querySelector('#tensor input[type=range]')")
        browser.script(
            "const slider = document.querySelector('#tensor input[type=range]'); slider.value = 3;"
            "slider.dispatchEvent(new Event('change'))"
        )
        browser.wait("document.querySelector('#tensor .tools').textContent.endsWith('3')")
        tab(browser, "act")
        browser.wait("document.querySelector('#range-editor canvas')")
        browser.click("#part-schedule")
        browser.wait("document.querySelector('table[aria-label=\\'Groups of layers\\'] tbody tr')")
        browser.click("#part-frontier")
        browser.wait("document.querySelector('table[aria-label=Programs] tbody tr')")
        assert "98.50 %" in " ".join(browser.texts("table[aria-label=Programs] td"))
        browser.screenshot("studio-exported-frontier.png")
        assert browser.texts("#message") == [""]
        asked, said = browser.seen()
        assert said == [] and [address for address in asked if not address.startswith("data:")] == [
            page.as_uri()
        ]
    finally:
        online = offline | {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
        browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", online)
