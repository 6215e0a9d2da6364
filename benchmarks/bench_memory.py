"""The memory planner: the eleven public instances, and how the time grows with the number of buffers.

    python benchmarks/bench_memory.py             everything (`make bench-memory`)
    python benchmarks/bench_memory.py --instances AK --largest 2000

Public instances: time to fit the capacity of 1,048,576 (the bar: all of them), what the best greedy order reaches, and
the size and the gap to the lower bound when the plan is made as small as possible. Growth: networks with branches, made by
a fixed rule, from 100 to 10,000 buffers; the exponent is that of a power law through the largest two sizes. Steps are the
same on every machine, times are not.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sys
import time
from pathlib import Path

from npuc.errors import MemoryPlanError
from npuc.schedule.memory import Buffer, plan

_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "memory-planning"
CAPACITY = 1 << 20
STEPS = 1_000_000_000


def instance(letter: str) -> list[Buffer]:
    """The buffers of a public instance."""
    with (_FOLDER / f"{letter}.{CAPACITY}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [Buffer(r["id"], int(r["size"]), int(r["lower"]), int(r["upper"])) for r in rows]


def network(count: int) -> list[Buffer]:
    """Buffers of a network: one an op, most of them short-lived, some skips, a few for a long time."""
    rng = random.Random(count)
    buffers = []
    for k in range(count):
        life = 2 if rng.random() < 0.7 else rng.randint(3, 12) if rng.random() < 0.9 else rng.randint(20, 60)
        buffers.append(Buffer(f"t{k}", 64 * rng.randint(1, 400), k, k + life, alignment=64))
    return buffers


def instances(letters: str) -> bool:
    """Print the table of public instances; whether all fit."""
    print(f"public instances, capacity {CAPACITY:,}")
    print(
        f"  {'':2}{'buffers':>8}{'bound':>11}{'greedy':>9}{'fits in':>10}{'smallest':>12}{'over bound':>12}{'':>9}"
    )
    fits = True
    for letter in letters:
        buffers = instance(letter)
        greedy = plan(buffers, steps=0).size
        started = time.perf_counter()
        try:
            plan(buffers, CAPACITY, steps=STEPS)
            taken = f"{time.perf_counter() - started:.2f} s"
        except MemoryPlanError:
            fits, taken = False, "no"
        started = time.perf_counter()
        best = plan(buffers, steps=STEPS)
        bound = best.lower_bound
        proof = "proven" if best.proven else f"{time.perf_counter() - started:.0f} s"
        print(
            f"  {letter:2}{len(buffers):8}{bound:11,}{greedy / bound:8.3f}x{taken:>10}{best.size:12,}"
            f"{best.size / bound - 1:12.2%}{proof:>9}",
            flush=True,
        )
    return fits


def growth(largest: int) -> None:
    """Print times for more and more buffers."""
    print("growth: placing greedily in six ways, and all of it with the default steps")
    print(f"  {'buffers':>8}{'greedy':>12}{'all':>10}{'size/bound':>12}  method")
    points = []
    for count in (100, 300, 1000, 3000, 10_000):
        if count > largest:
            break
        buffers = network(count)
        started = time.perf_counter()
        plan(buffers, steps=0)
        greedy = time.perf_counter() - started
        started = time.perf_counter()
        result = plan(buffers)
        taken = time.perf_counter() - started
        points.append((count, greedy))
        proof = "proven" if result.proven else "not proven"
        print(
            f"  {count:8,}{greedy * 1e3:9.1f} ms{taken:8.2f} s{result.size / result.lower_bound:12.4f}"
            f"  {result.method}, {proof}",
            flush=True,
        )
    if len(points) > 1:
        (n, a), (m, b) = points[-2:]
        print(f"  exponent of greedy from {n:,} to {m:,}: {math.log(b / a) / math.log(m / n):.2f}")


def main() -> int:
    """Run what the arguments ask for; 1 if an instance does not fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", default="ABCDEFGHIJK")
    parser.add_argument("--largest", type=int, default=10_000)
    arguments = parser.parse_args()
    fits = True
    if _FOLDER.is_dir():
        fits = instances(arguments.instances)
    else:
        print("the public instances are not here")
    growth(arguments.largest)
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
