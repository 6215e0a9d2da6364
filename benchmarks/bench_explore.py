"""How long `npuc explore` takes for 10,000 machines, in units of one full compilation of its networks.

The unit is the time of one `npuc compile` command for each of the three networks on the base target, one after the other, in the
same run, without the cache of schedules. The exploration is one command with two processes. The bar is for the wall time; CPU
time is printed beside it, for machines that have other things to do.

    python benchmarks/bench_explore.py [--machines 32]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "models" / "tflite"
NETWORKS = ("mobilenet_v2_224_ptq", "resnet8_int8", "vww_int8")
SPACE = {
    "lanes": "8x8x8,16x8x8,16x16x8,16x16x16,32x16x16",
    "vector_lanes": "32,64,128,256",
    "local_memory": "256KiB,512KiB,1MiB,2MiB,4MiB",
    "banks": "8,16",
    "bandwidth": "2GB/s,4GB/s,8GB/s,16GB/s,32GB/s",
    "cores": "1",
    "decoder": "none,64B/cycle",
    "clock": "500MHz,750MHz,1GHz,1250MHz,1500MHz",
}
"""10,000 machines."""
BAR = 60


def timed(*arguments: object) -> tuple[float, float, str]:
    """Wall and CPU seconds of an npuc command, and what it printed."""
    command = [Path(sys.executable).with_name("npuc"), *map(str, arguments)]
    uncached = {**os.environ, "NPUC_CACHE": "off"}
    began, used = time.perf_counter(), _children_time()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=uncached)
    return time.perf_counter() - began, _children_time() - used, done.stdout


def _children_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compiled(files: list[Path], folder: str) -> tuple[float, float]:
    """Wall and CPU seconds of compiling all networks once."""
    times = [
        timed("compile", file, "--target", "edge-4t", "-o", f"{folder}/{file.stem}.npu") for file in files
    ]
    return sum(wall for wall, _, _ in times), sum(cpu for _, cpu, _ in times)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=32)
    chosen = parser.parse_args()
    files = [MODELS / f"{name}.tflite" for name in NETWORKS]
    with tempfile.TemporaryDirectory() as folder:
        units = [compiled(files, folder)]
        vary = [part for name, values in SPACE.items() for part in ("--vary", f"{name}={values}")]
        options = ("--machines", chosen.machines, "--workers", 2, "-o", f"{folder}/out", "--json")
        wall, cpu, text = timed("explore", *files, *vary, *options)
        units.append(compiled(files, folder))
    result = json.loads(text)
    unit, unit_cpu = (sum(times) / len(units) for times in zip(*units, strict=True))
    print(
        f"{result['machines']} machines, {result['compiled']} compiled for, {len(result['front'])} on the front"
    )
    print(
        f"one full compilation of {', '.join(NETWORKS)}: {unit:.1f} s, {unit_cpu:.1f} s of CPU (mean of before and after)"
    )
    print(
        f"explore: {wall:.1f} s, {wall / unit:.1f} x ({'ok' if wall <= BAR * unit else 'OVER'} {BAR} x);",
        end=" ",
    )
    print(f"{cpu:.1f} s of CPU, {cpu / unit_cpu:.1f} x")


if __name__ == "__main__":
    main()
