"""A graph of ten thousand layers in npuc studio and in Google's Model Explorer: first paint, frames while panning, memory.

    make studio                                                       the libraries of the page
    python -m venv build/peers/modelexplorer
    build/peers/modelexplorer/bin/pip install ai-edge-model-explorer
    .venv/bin/python benchmarks/bench_studio.py --model-explorer build/peers/modelexplorer/bin/model-explorer

Both run in turns, each in a Chromium of its own, and get the same graph: studio as an ONNX file, which it imports for the
page, Model Explorer in its own JSON form, which it only reads. Both show the graph of the file. `blocks` is a network of 100
blocks with 100 layers and a residual each; `flat` is one row of layers without scopes. Times are from the start of navigation
until the drawing is there; frames are those of two seconds of dragging; memory is what all processes of the browser hold (PSS),
and the heap of scripts. Without a graphics card both draw by software. What is printed are both figures, and the ratio; below 1
is ahead for time and memory, above 1 for frames.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

FLAGS = (
    "--headless=new", "--no-sandbox", "--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1440,1000", "--enable-unsafe-swiftshader",
)  # fmt: skip
LAYERS, BLOCK = 10_000, 100
# Notes, in the page, when an expression was true for the first time, at a frame.
WATCH = """
(() => { const look = () => { try { if (!window.__shown && (CONDITION)) window.__shown = performance.now(); } catch (error) {}
  if (!window.__shown) requestAnimationFrame(look); }; requestAnimationFrame(look); })();
"""
SHOWN = {
    "studio": "document.getElementById('view').dataset.ready === 'graph' && document.querySelector('.graph-canvas').width > 400",
    "explorer": "document.querySelector('webgl-renderer canvas') && !document.querySelector('mat-spinner')",
}
CANVAS = {"studio": ".graph-canvas", "explorer": "webgl-renderer canvas"}
FIGURES = (
    ("first paint, ms", False),
    ("frames a second, panning", True),
    ("browser, MiB", False),
    ("script heap, MiB", False),
)


def edges_of(kind: str) -> list[tuple[int, int]]:
    """From layer to layer; in blocks also from the first of a block to its last."""
    edges = [(number, number + 1) for number in range(LAYERS - 1)]
    if kind == "blocks":
        edges += [(start, start + BLOCK - 1) for start in range(0, LAYERS, BLOCK)]
    return edges


def name_of(kind: str, number: int) -> str:
    """Of a layer, with the block that it is in."""
    return f"block{number // BLOCK}/layer{number % BLOCK}" if kind == "blocks" else f"layer{number}"


def write_onnx(kind: str, path: Path) -> None:
    """The graph as an ONNX file: sigmoids and tanhs in turn, and an add at the end of a block."""
    reads: dict[int, list[int]] = {}
    for begin, end in edges_of(kind):
        reads.setdefault(end, []).append(begin)
    nodes = []
    for number in range(LAYERS):
        inputs = [name_of(kind, before) for before in reads.get(number, [])] or ["x"]
        op = "Add" if len(inputs) == 2 else ("Sigmoid", "Tanh")[number % 2]
        name = name_of(kind, number)
        nodes.append(onnx.helper.make_node(op, inputs, [name], name))
    ends = (onnx.helper.make_tensor_value_info(one, 1, [1, 8]) for one in ("x", name_of(kind, LAYERS - 1)))
    graph = onnx.helper.make_graph(nodes, kind, *([end] for end in ends))
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)


def write_json(kind: str, path: Path) -> None:
    """The same as Model Explorer's own form has it."""
    reads: dict[int, list[int]] = {}
    for begin, end in edges_of(kind):
        reads.setdefault(end, []).append(begin)
    nodes = [
        {
            "id": str(number),
            "label": "Add" if len(reads.get(number, ())) == 2 else ("Sigmoid", "Tanh")[number % 2],
            "namespace": name_of(kind, number).rpartition("/")[0],
            "incomingEdges": [
                {"sourceNodeId": str(before), "sourceNodeOutputId": "0", "targetNodeInputId": str(place)}
                for place, before in enumerate(reads.get(number, ()))
            ],
        }
        for number in range(LAYERS)
    ]
    path.write_text(json.dumps([{"id": kind, "nodes": nodes}]))


@contextmanager
def server(command: Sequence[str], folder: Path) -> Iterator[str]:
    """A tool that prints its address, and its address."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    lines: list[str] = []
    assert process.stdout is not None
    threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True).start()  # type: ignore[arg-type]
    try:
        deadline = time.monotonic() + 90
        while not (found := re.findall(r"http://\S+", "".join(lines))):
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"{command[0]} gave no address:\n{''.join(lines)}")
            time.sleep(0.1)
        yield found[-1]
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of its own, so that memory is that of one page."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        driver.set_page_load_timeout(300)
        # A page that draws for minutes answers no script meanwhile.
        driver.set_script_timeout(300)
        try:
            yield driver
        finally:
            driver.quit()


def measured(tool: str, address: str, patience: float) -> list[float] | None:
    """The figures of one page, or None if nothing was drawn in time."""
    with chromium() as driver:
        # Files and code of the page are in the disk cache of the machine by then; the browser itself is new.
        watch = WATCH.replace("CONDITION", SHOWN[tool])
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": watch})
        driver.get(address)
        deadline = time.monotonic() + patience
        while (shown := driver.execute_script("return window.__shown || 0")) == 0:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)
        time.sleep(2)
        frames = panning(driver, CANVAS[tool])
        driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        heap = driver.execute_script("return performance.memory.usedJSHeapSize") / 2**20
        return [shown, frames, resident(driver.service.process.pid) / 2**20, heap]


def panning(driver: Any, selector: str, seconds: float = 2.0) -> float:
    """Frames a second while the drawing is dragged to and fro."""
    box = driver.execute_script(
        "const box = document.querySelector(arguments[0]).getBoundingClientRect(); return [box.x, box.y, box.width, box.height]",
        selector,
    )
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    driver.execute_script(
        "window.__frames = 0; const tick = () => { window.__frames += 1; requestAnimationFrame(tick); };"
        "requestAnimationFrame(tick)"
    )
    mouse: dict[str, Any] = {"button": "left", "buttons": 1, "clickCount": 1}
    driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mousePressed", "x": x, "y": y, **mouse})
    before, start, step = driver.execute_script("return window.__frames"), time.monotonic(), 0
    while time.monotonic() - start < seconds:
        step += 1
        place = {"x": x + 120 * ((step // 20) % 2 * 2 - 1) * (step % 20) / 20, "y": y + (step % 40) * 4 - 80}
        driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", **place, **mouse})
    spent = time.monotonic() - start
    frames = driver.execute_script("return window.__frames") - before
    driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseReleased", "x": x, "y": y, **mouse})
    return float(frames / spent)


def resident(root: int) -> int:
    """Bytes that a process and all that it started hold, shared pages divided among those that share them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def run(kind: str, explorer: str, rounds: int, patience: float) -> None:
    """Measure both in turns, and print the medians."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_onnx(kind, folder / f"{kind}.onnx")
        write_json(kind, folder / f"{kind}.json")
        commands = {
            "studio": [str(Path(sys.executable).with_name("npuc")), "studio", str(folder), "--no-browser"],
            "explorer": [explorer, f"{folder}/{kind}.json", "--no_open_in_browser"],
        }
        rows: dict[str, list[list[float]]] = {tool: [] for tool in commands}
        for _ in range(rounds):
            for tool, command in commands.items():
                with server(command, folder) as address:
                    wanted = f"{address}#form=imported" if tool == "studio" else address
                    figures = measured(tool, wanted, patience)
                    if figures is not None:
                        rows[tool].append(figures)
        print(f"\n{kind}: {LAYERS:,} layers, median of {rounds}")
        print(f"{'':28}{'studio':>10}{'explorer':>10}{'ratio':>8}")
        for number, (words, more) in enumerate(FIGURES):
            ours, theirs = (
                statistics.median(row[number] for row in rows[tool]) if rows[tool] else None
                for tool in ("studio", "explorer")
            )
            shown = [
                f"{value:10.1f}" if value is not None else f"{'nothing':>10}" for value in (ours, theirs)
            ]
            ratio = f"{ours / theirs:8.2f}" if ours is not None and theirs else f"{'':8}"
            good = (
                ""
                if ours is None or not theirs
                else "  ahead"
                if (ours >= theirs) == more or ours == theirs
                else "  behind"
            )
            print(f"{words:28}{''.join(shown)}{ratio}{good}")
        for tool, found in rows.items():
            if len(found) < rounds:
                print(
                    f"{tool} drew nothing within {patience:.0f} s in {rounds - len(found)} of {rounds} runs"
                )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model-explorer", required=True, metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=120.0, help="Seconds until a tool is given up on.")
    parser.add_argument("--graph", choices=("blocks", "flat"), action="append")
    arguments = parser.parse_args()
    for kind in arguments.graph or ("blocks", "flat"):
        run(kind, arguments.model_explorer, arguments.rounds, arguments.patience)


if __name__ == "__main__":
    main()
