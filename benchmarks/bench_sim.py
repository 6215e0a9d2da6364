"""Instruction mode against graph mode: seconds of a run of each, on the same compiled network.

Both compute the same bits; instruction mode moves every tile through local memory besides. The time of a mode is the best of
several runs, after one that prepares it.

    python benchmarks/bench_sim.py [--models mobilenet_v2,...] [--target edge-4t] [--levels 0,2] [--threads 1,2]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import networks
import numpy as np

from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_model
from npuc.engine import IntegerEngine
from npuc.sim import Simulator
from npuc.target import load_target

MODELS = ("cifar10_resnet20", "mobilenet_v2", "yolox_nano")
ALLOWED = 3.0
"""Times graph mode that instruction mode may take."""


def best(run: Callable[[], Any], seconds: float = 1.0) -> float:
    """The shortest of the runs that fit some seconds, three at least."""
    run()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--levels", default="0,2")
    parser.add_argument("--threads", default="1,2")
    arguments = parser.parse_args()
    target = load_target(arguments.target)
    worst = 0.0
    print(
        "| network | -O | threads | instructions | graph mode | instruction mode | times |\n|---|---|---|---|---|---|---|"
    )
    for name in arguments.models.split(","):
        graph = networks.integer(name)
        inputs = random_inputs(graph)
        for level in map(int, arguments.levels.split(",")):
            compiled = compile_model(graph, target, level=level)
            count = sum(
                len(stream) for subgraph in compiled.subgraphs for stream in getattr(subgraph, "streams", ())
            )
            for threads in map(int, arguments.threads.split(",")):
                engine, simulator = IntegerEngine(graph, threads=threads), Simulator(compiled, threads)
                expected, got = engine.run(inputs), simulator.run(inputs)
                assert all(np.array_equal(got[key], expected[key]) for key in expected), (
                    f"{name}: bits differ"
                )
                slow, fast = best(partial(simulator.run, inputs)), best(partial(engine.run, inputs))
                worst = max(worst, slow / fast)
                print(
                    f"| {name} | {level} | {threads} | {count} | {fast * 1e3:.1f} ms | {slow * 1e3:.1f} ms | {slow / fast:.2f} |",
                    flush=True,
                )
    print(f"\nat most {worst:.2f} times; {ALLOWED:.0f} are allowed")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    raise SystemExit(main())
