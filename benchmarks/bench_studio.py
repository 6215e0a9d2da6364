"""A graph of ten thousand layers in npuc studio and in Google's Model Explorer: first paint, frames while panning, memory.

    make studio                                                       the libraries of the page
    python -m venv build/peers/modelexplorer
    build/peers/modelexplorer/bin/pip install ai-edge-model-explorer model-explorer-onnx
    .venv/bin/python benchmarks/bench_studio.py --model-explorer build/peers/modelexplorer/bin/model-explorer

They run in turns, each with a new server and a new Chromium, so that nothing is in a cache of theirs, and get the same graph:
studio as an ONNX file; Model Explorer once in its own JSON form, which it only reads, and once as the same ONNX file, which it
reads by the adapter `model-explorer-onnx` (by others; left out where it is not installed). All show the graph of the file, as
they open by themselves. `blocks` is a network of 100 blocks with 100 layers and a residual each; `flat` is one row of layers
without scopes. First paint is from the start of navigation until the drawing is there, and once more from the start of the
command; frames are those of two seconds of dragging; memory is what all processes of the browser and of the server hold (PSS),
and the heap of scripts; what the server has of it is printed, and not judged. Without a graphics card all draw by software.
What is printed are medians, and the ratio to each form of Model Explorer; below 1 is ahead for time and memory, above 1 for
frames. The program fails where studio is behind.
"""

from __future__ import annotations

import argparse
import json
import math
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
from dataclasses import dataclass
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
ADAPTER = "model_explorer_onnx"
FIGURES = (
    ("first paint, ms", False),
    ("from the command, ms", False),
    ("frames a second, panning", True),
    ("browser and server, MiB", False),
    ("script heap, MiB", False),
    ("of it server, MiB", None),
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


@dataclass(frozen=True)
class Server:
    """A tool that answers at an address."""

    address: str
    pid: int
    started: float
    """When its command was given, by the clock that the page has, too."""


@contextmanager
def server(command: Sequence[str], folder: Path) -> Iterator[Server]:
    """Start a tool that prints its address."""
    started = time.time()
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
            time.sleep(0.02)
        yield Server(found[-1], process.pid, started)
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


def measured(tool: str, command: Sequence[str], folder: Path, patience: float) -> list[float] | None:
    """The figures of one page, or None if nothing was drawn in time."""
    with chromium() as driver:
        # Files and code of the page are in the disk cache of the machine by then; the browser itself is new.
        watch = WATCH.replace("CONDITION", SHOWN[tool])
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": watch})
        with server(command, folder) as serving:
            driver.get(serving.address)
            deadline = time.monotonic() + patience
            while (shown := driver.execute_script("return window.__shown || 0")) == 0:
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.1)
            whole = driver.execute_script("return performance.timeOrigin") + shown - 1000 * serving.started
            time.sleep(2)
            if pictures := os.environ.get("BENCH_PICTURES"):
                driver.save_screenshot(f"{pictures}/{tool}-{time.time():.0f}.png")
            frames = panning(driver, CANVAS[tool])
            driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
            heap = driver.execute_script("return performance.memory.usedJSHeapSize") / 2**20
            browser, answering = (resident(pid) / 2**20 for pid in (driver.service.process.pid, serving.pid))
            return [shown, whole, frames, browser + answering, heap, answering]


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


def has_adapter(explorer: str) -> bool:
    """Whether Model Explorer can read ONNX files."""
    python = Path(explorer).with_name("python")
    return (
        subprocess.run([python, "-c", f"import {ADAPTER}"], capture_output=True, check=False).returncode == 0
    )


def run(kind: str, explorer: str, rounds: int, patience: float) -> bool:
    """Measure in turns, and print the medians; whether studio is behind in anything."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # A folder of its own for studio, which shows folders; Model Explorer is given the file.
        (folder / "project").mkdir()
        file = folder / "project" / f"{kind}.onnx"
        write_onnx(kind, file)
        write_json(kind, folder / f"{kind}.json")
        commands = {
            "studio": [str(Path(sys.executable).with_name("npuc")), "studio", str(file), "--no-browser"],
            "explorer, JSON": [explorer, f"{folder}/{kind}.json", "--no_open_in_browser"],
        }
        if has_adapter(explorer):
            commands["explorer, ONNX"] = [
                explorer,
                str(file),
                "--no_open_in_browser",
                f"--extensions={ADAPTER}",
            ]
        rows: dict[str, list[list[float]]] = {tool: [] for tool in commands}
        for _ in range(rounds):
            for tool, command in commands.items():
                figures = measured(tool.partition(",")[0], command, folder, patience)
                if figures is not None:
                    rows[tool].append(figures)
    print(f"\n{kind}: {LAYERS:,} layers, median of {rounds}")
    print(f"{'':26}" + "".join(f"{tool:>24}" for tool in commands))
    behind = False
    for number, (words, more) in enumerate(FIGURES):
        values = [
            statistics.median(row[number] for row in rows[tool]) if rows[tool] else None for tool in commands
        ]
        cells = [f"{'nothing' if values[0] is None else f'{values[0]:.1f}':>24}"]
        for theirs in values[1:]:
            if theirs is None or values[0] is None:
                cells.append(f"{'nothing' if theirs is None else f'{theirs:.1f}':>24}")
                behind = behind or values[0] is None
                continue
            is_behind = more is not None and (values[0] < theirs if more else values[0] > theirs)
            behind = behind or is_behind
            word = " behind" if is_behind else ""
            ratio = values[0] / theirs if theirs else math.inf
            cells.append(f"{f'{theirs:.1f} ({ratio:.2f}{word})':>24}")
        print(f"{words:26}{''.join(cells)}")
    for tool, found in rows.items():
        if len(found) < rounds:
            print(f"{tool} drew nothing within {patience:.0f} s in {rounds - len(found)} of {rounds} runs")
    return behind


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model-explorer", required=True, metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=120.0, help="Seconds until a tool is given up on.")
    parser.add_argument("--graph", choices=("blocks", "flat"), action="append")
    arguments = parser.parse_args()
    explorer = str(Path(arguments.model_explorer).absolute())
    kinds = arguments.graph or ("blocks", "flat")
    behind = [kind for kind in kinds if run(kind, explorer, arguments.rounds, arguments.patience)]
    raise SystemExit(f"studio is behind in {', '.join(behind)}" if behind else 0)


if __name__ == "__main__":
    main()
