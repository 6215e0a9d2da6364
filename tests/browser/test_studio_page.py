"""The stories of the studio in a real browser: why is it slow, why is it wrong, why is it on the CPU, make it 16 bits there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuc.studio.export import export
from npuc.studio.project import Project
from npuc.studio.studio import Studio
from support.studio_page import AXE, built, enter, serious_violations, silent, tab

pytestmark = pytest.mark.browser
__all__ = ["built"]


def test_why_is_it_slow(browser: Any, client: Any) -> None:
    enter(browser, client, "a=digits.npu")
    browser.choose("#paint-by", "time")
    browser.wait("document.querySelector('#legend').textContent.includes('time')")
    browser.screenshot("studio-graph-time.png")
    browser.choose("#paint-by", "bytes")
    browser.wait("document.querySelector('#legend').textContent.includes('bytes')")
    tab(browser, "time")
    assert browser.texts("#view h1") == ["digits"]
    hottest = browser.texts("#hottest li")[0]
    layer = browser.script("return document.querySelector('#layers tbody tr td').textContent")
    assert layer and "%" in hottest
    browser.click("#layers tbody tr")
    assert layer in " ".join(browser.texts("#chosen-text"))
    browser.screenshot("studio-time.png")
    silent(browser)


def test_why_is_it_wrong(browser: Any, client: Any, project_folder: Path) -> None:
    """A network with one layer whose weights lost their scale: the studio names that layer."""
    model = onnx.load(project_folder / "digits.onnx")
    broken = next(tensor for tensor in model.graph.initializer if tensor.name == "block2/conv/weight")
    values = onnx.numpy_helper.to_array(broken)
    broken.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(0.2), broken.name))
    onnx.save(model, project_folder / "broken.onnx")
    enter(browser, client, "a=broken.onnx&b=digits.onnx&sample=digits_samples.npz&tab=numbers")
    browser.wait("document.getElementById('verdict')")
    assert "block2" in " ".join(browser.texts("#verdict")) and "block1" not in " ".join(
        browser.texts("#verdict")
    )
    browser.click("#verdict button")
    browser.wait("document.querySelectorAll('#tensor canvas.map').length === 3")
    browser.screenshot("studio-numbers.png")
    tab(browser, "graph")
    browser.choose("#paint-by", "sensitivity")
    browser.wait("document.querySelector('#legend').textContent.includes('only this layer as int8')")
    browser.choose("#find", "block2/relu")
    browser.wait("document.querySelector('#details dl').textContent.includes('sensitivity')")
    browser.screenshot("studio-graph-sensitivity.png")
    silent(browser)


def test_why_is_it_on_the_cpu(browser: Any, client: Any, project_folder: Path) -> None:
    model = onnx.load(project_folder / "digits.onnx")
    output = model.graph.output[0].name
    model.graph.node.append(onnx.helper.make_node("Det", ["square"], ["determinant"], "det"))
    model.graph.node.insert(
        len(model.graph.node) - 1, onnx.helper.make_node("MatMul", [output, "turned"], ["square"], "square")
    )
    model.graph.node.insert(
        len(model.graph.node) - 2,
        onnx.helper.make_node("Transpose", [output], ["turned"], "turned", perm=[1, 0]),
    )
    model.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("determinant", onnx.TensorProto.FLOAT, [])
    )
    onnx.save(model, project_folder / "hosted.onnx")
    enter(browser, client, "a=hosted.onnx&tab=placement")
    browser.wait("document.getElementById('verdict')")
    rows = browser.script(
        "return [...document.querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent))"
    )
    assert rows[0][2] == "cpu" and "Det" in " ".join(rows[0]) and len(rows[0][3]) > 10
    assert "plugin" in rows[0][4]
    browser.screenshot("studio-placement.png")
    silent(browser)


def test_of_a_program_the_network_beside_it_has_the_reasons(browser: Any, client: Any) -> None:
    enter(browser, client, "a=digits.npu&b=digits.onnx&tab=placement")
    browser.wait("document.getElementById('verdict')")
    assert "digits.onnx" in browser.texts("h2")[0]
    assert browser.texts("table[aria-label='Placement of layers'] td")
    silent(browser)


def test_make_it_16_bits_there_and_compare(browser: Any, client: Any, project_folder: Path) -> None:
    enter(browser, client, "a=digits.onnx&tab=act&layer=stem/relu")
    browser.choose("#act-scheme", "int16")
    browser.click("#act-add")
    browser.choose("#act-data", "digits_samples.npz")
    browser.choose("#act-target", "edge-4t")
    browser.click("#act-quantize")
    browser.wait("document.querySelector('.job.done button')", 120)
    browser.screenshot("studio-change.png")
    browser.click(".job.done button")
    browser.wait("document.getElementById('view').dataset.ready === 'graph'")
    assert (project_folder / "studio.yaml").read_text().endswith('layers:\n  "stem/relu": int16\n')
    nodes = {
        node["name"]: node for node in Studio(Project(project_folder)).graph("studio.mlir").as_json()["nodes"]
    }
    assert nodes["stem/relu"]["bits"] == 16
    tab(browser, "act")
    browser.click(".job.done .compare")
    browser.wait("document.getElementById('verdict')")
    assert browser.script("return document.getElementById('file-b').value") == "digits.onnx"
    assert "i16" in browser.texts("tbody td")
    silent(browser)


def test_the_exported_page_is_the_same_without_a_server(
    browser: Any, studio_files: Path, tmp_path: Path
) -> None:
    names = ["digits.npu", "digits.onnx", "digits_samples.npz"]
    page = tmp_path / "report.html"
    page.write_text(export(Studio(Project(studio_files)), names))
    browser.open(page)
    browser.wait("document.getElementById('view').dataset.ready === 'graph'")
    browser.screenshot("studio-exported.png")
    for name in ("numbers", "time", "placement"):
        tab(browser, name)
    tab(browser, "numbers")
    browser.wait("document.getElementById('verdict')")
    browser.click("tbody tr")
    browser.wait("document.querySelectorAll('#tensor canvas.map').length === 3")
    asked, said = browser.seen()
    assert said == [] and [address for address in asked if not address.startswith("data:")] == [page.as_uri()]


def test_hostile_names_are_shown_as_text(browser: Any, client: Any, project_folder: Path) -> None:
    hostile = '<img src=x onerror="document.title=1">'
    model = onnx.load(project_folder / "digits.onnx")
    for node in model.graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                if name == "stem/relu":
                    names[at] = hostile
        if node.name == "stem/relu":
            node.name = hostile
    onnx.save(model, project_folder / f"{hostile.replace('/', '')}.onnx")
    enter(browser, client, "a=digits.onnx")
    browser.script("document.getElementById('find').value = 'onerror'")
    name = next(file.name for file in Project(project_folder).files() if "onerror" in file.name)
    browser.choose("#file-a", name)
    browser.wait("document.getElementById('view').dataset.ready === 'graph'")
    for view in ("placement", "graph"):
        tab(browser, view)
    assert browser.script("return document.querySelectorAll('img').length") == 0
    assert browser.driver.title != "1"
    silent(browser)


def test_the_keyboard_is_enough(browser: Any, client: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    enter(browser, client, "a=digits.onnx")
    browser.script("document.getElementById('tab-graph').focus()")
    ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    browser.wait("document.getElementById('view').dataset.ready === 'numbers'")
    ActionChains(browser.driver).send_keys(Keys.ARROW_LEFT).perform()
    browser.wait("document.getElementById('view').dataset.ready === 'graph'")
    browser.script("document.querySelector('.graph-canvas').focus()")
    ActionChains(browser.driver).send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN).perform()
    browser.wait("document.querySelector('#details h2')")
    chosen = browser.texts("#details h2")
    ActionChains(browser.driver).send_keys(Keys.ARROW_UP).perform()
    browser.wait(f"document.querySelector('#details h2').textContent !== {json.dumps(chosen[0])}")
    silent(browser)


@pytest.mark.parametrize("view", ["graph", "numbers", "picture", "time", "placement", "act"])
def test_every_control_is_reached_by_tab(browser: Any, client: Any, view: str) -> None:
    """From the top of the page, with the Tab key alone, every button, list, field, row and drawing gets the focus."""
    from selenium.webdriver import ActionChains, Keys

    enter(browser, client, f"a=digits.npu&b=digits.onnx&tab={view}&sample=digits_samples.npz")
    browser.wait(f"document.getElementById('view').dataset.ready === '{view}'")
    wanted = browser.script(
        "const all = document.querySelectorAll('a[href], button, select, input, canvas[tabindex], tr[tabindex]');"
        "window.__wanted = new Set([...all]"
        ".filter(e => e.tabIndex >= 0 && !e.disabled && e.checkVisibility()));"
        "document.activeElement.blur(); window.scrollTo(0, 0); return window.__wanted.size"
    )
    assert wanted > 5
    for _ in range(wanted + 12):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        if not browser.script("window.__wanted.delete(document.activeElement); return window.__wanted.size"):
            break
    left = browser.script("return [...window.__wanted].map(e => e.outerHTML.slice(0, 120))")
    assert left == []
    silent(browser)


@pytest.mark.parametrize("view", ["graph", "numbers", "time", "placement", "act"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_in_the_way_of_people_who_read_by_other_means(
    browser: Any, client: Any, view: str, theme: str
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make test-studio")
    enter(browser, client, f"a=digits.npu&b=digits.onnx&tab={view}&sample=digits_samples.npz")
    browser.wait(f"document.getElementById('view').dataset.ready === '{view}'")
    if theme == "dark":
        browser.click("#theme")
    assert serious_violations(browser) == []


def test_ten_thousand_layers_open_and_move(browser: Any, client: Any, project_folder: Path) -> None:
    nodes = [
        onnx.helper.make_node("Relu", [f"t{number}"], [f"t{number + 1}"], f"layer{number}")
        for number in range(10_000)
    ]
    shape = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 8]) for name in ("t0", "t10000")
    ]
    graph = onnx.helper.make_graph(nodes, "long", shape[:1], shape[1:])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]),
        project_folder / "long.onnx",
    )
    enter(browser, client, "a=digits.onnx")
    assert browser.script("return document.getElementById('form').value") == "original"
    browser.choose("#file-a", "long.onnx")
    browser.wait("document.querySelector('.pane-title').textContent.includes('10,002 nodes')", 120)
    assert "10,002" in browser.texts(".pane-title")[0]
    silent(browser)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_folding_keeps_every_edge(root: Path) -> None:
    """Every edge of the graph is drawn once at the level where its ends part, and on the way to each end."""
    script = """
const fs = require("fs");
const code = ["graph-folding.js", "graph-layout.js"].map(name => fs.readFileSync(process.argv[1] + name, "utf8")).join("\\n");
const dagre = require(process.argv[2]);
const {FoldedGraph, flattened} = new Function("dagre", code + "; return {FoldedGraph, flattened};")(dagre);
const graph = {nodes: [0, 1, 2, 2, 1, 0].map((scope, i) => ({name: "n" + i, scope})),
  scopes: [{name: "", parent: -1}, {name: "a", parent: 0}, {name: "b", parent: 1}],
  edges: [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 4]]};
const folded = new FoldedGraph(graph);
const open = flattened(folded);
folded.foldAll();
const closed = flattened(folded);
const fits = box => box.x >= 0 && box.y >= 0 && box.x + box.width <= open.width && box.y + box.height <= open.height;
const counts = drawing => [drawing.boxes.length, drawing.lines.length];
console.log(JSON.stringify({open: counts(open), closed: counts(closed), inside: open.boxes.every(fits)}));
"""
    library = root / "npm" / "node_modules" / "@dagrejs" / "dagre"
    if not library.is_dir():
        pytest.skip("dagre is not installed: make test-studio")
    web = f"{root / 'src/npuc/studio/web'}/"
    done = subprocess.run(
        ["node", "-e", script, web, str(library)], capture_output=True, text=True, check=True
    )
    # Open: 6 nodes and 2 scopes; edges 0→a, a→5; in a: in→1 (0→1), in→4 (0→4), 1→b, b→4, 4→out; in b: in→2, 2→3, 3→out.
    assert json.loads(done.stdout) == {"open": [8, 10], "closed": [3, 2], "inside": True}
