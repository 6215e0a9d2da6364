"""Golden schedules: what `tests/golden_schedules.yaml` says of compiled networks, measured again.

    python tests/golden_schedules.py           print the figures of every pair, and how they differ from the file
    python tests/golden_schedules.py --write   keep them

A pair is a network and a target. Its figures are the cycles of the simulator, the bytes on the DRAM channel and the number of
instructions: the three that tell whether a change of the scheduler made programs worse. The networks are built, not
loaded, and have made-up ranges: a schedule depends on shapes and types alone.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from npuc.codegen.compile_model import compile_model
from npuc.flow import expanded, import_model, quantize_network
from npuc.ir import Graph, result_names, top
from npuc.profile.timeline import profile_of
from npuc.program.model import NpuSubgraph
from npuc.sim import simulate
from npuc.target import load_target
from support.networks import backend as backend_networks

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_suffix(".yaml")
FIGURES = ("cycles", "bytes", "instructions")
PAIRS = (
    ("digits", "edge-1t"),
    ("digits", "edge-4t"),
    ("digits", "server-32t"),
    ("efficientnet_lite0", "edge-1t"),
    ("efficientnet_lite0", "edge-4t"),
    ("efficientnet_lite0", "server-32t"),
    ("efficientnet_lite0", "ethos-u65-256-like"),
    ("efficientnet_lite0", "dpuczdx8g-b4096-like"),
    ("resnet50", "edge-1t"),
    ("resnet50", "edge-4t"),
    ("resnet50", "server-32t"),
    ("yolov5s", "edge-4t"),
    ("vit_s16", "edge-4t"),
    *((f"random {seed}", name) for seed in (3, 11, 27) for name in ("edge-4t", "edge-4t, 24 KiB")),
    ("random 42", "server-32t, 64 KiB"),
)


@cache
def _benchmark_networks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks", ROOT / "benchmarks" / "networks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def network(name: str) -> Graph:
    """A float network by its name."""
    if name.startswith("random "):
        return backend_networks.network(int(name.split()[1]), most_steps=24)[0]
    if name == "digits":
        return expanded(import_model(ROOT / "examples" / "digits.onnx"))
    graph: Graph = _benchmark_networks().network(name)
    return graph


def machine(name: str) -> Any:
    """A target by its name; `NAME, N KiB` has that much local memory."""
    preset, _, size = name.partition(", ")
    if not size:
        return load_target(preset)
    kibibytes = int(size.split()[0])
    return backend_networks.machine(kibibytes << 10, *((2, 256 << 10) if preset == "server-32t" else ()))


def measured(name: str, target_name: str) -> dict[str, int]:
    """The figures of a pair as they are now."""
    graph, target = network(name), machine(target_name)
    ranges = {port.name: (-4.0, 4.0) for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-4.0, 4.0))
    compiled = compile_model(quantize_network(graph, ranges, target=target).graph, target)
    parts = [part for part in compiled.subgraphs if isinstance(part, NpuSubgraph)]
    profile = profile_of(compiled, simulate(compiled))
    return {
        "cycles": profile.cycles,
        "bytes": profile.dram,
        "instructions": sum(len(stream) for part in parts for stream in part.streams),
    }


def load() -> dict[str, dict[str, dict[str, int]]]:
    """Figures by network and target."""
    return yaml.safe_load(FILE.read_text())["schedules"] if FILE.exists() else {}


def main() -> None:
    """Measure all pairs."""
    kept, found = load(), {}
    for name, target in PAIRS:
        found.setdefault(name, {})[target] = now = measured(name, target)
        before = kept.get(name, {}).get(target, {})
        words = [f"{key} {now[key]:,} ({now[key] - before.get(key, now[key]):+,})" for key in FIGURES]
        print(f"{name:20} {target:22} {', '.join(words)}", flush=True)
    if "--write" in sys.argv[1:]:
        FILE.write_text(yaml.safe_dump({"version": 1, "schedules": found}, sort_keys=False))


if __name__ == "__main__":
    main()
