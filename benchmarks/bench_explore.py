"""How long `npuc explore` takes for 10,000 machines, in units of one full compilation of its networks.

The unit is the wall time of one `npuc compile` command for each of the three networks on the base target, one after the other, in
the same run. The exploration is one command with two processes.

    python benchmarks/bench_explore.py [--machines 32]
"""

from __future__ import annotations

import argparse
import json
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


def timed(*arguments: object) -> tuple[float, str]:
    """Seconds of an npuc command, and what it printed."""
    npuc = Path(sys.executable).with_name("npuc")
    began = time.perf_counter()
    done = subprocess.run([npuc, *map(str, arguments)], check=True, capture_output=True, text=True)
    return time.perf_counter() - began, done.stdout


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=32)
    chosen = parser.parse_args()
    files = [MODELS / f"{name}.tflite" for name in NETWORKS]
    with tempfile.TemporaryDirectory() as folder:
        units = [
            sum(
                timed("compile", file, "--target", "edge-4t", "-o", f"{folder}/{file.stem}.npu")[0]
                for file in files
            )
        ]
        vary = [part for name, values in SPACE.items() for part in ("--vary", f"{name}={values}")]
        options = ("--machines", chosen.machines, "--workers", 2, "-o", f"{folder}/out", "--json")
        seconds, text = timed("explore", *files, *vary, *options)
        units.append(
            sum(
                timed("compile", file, "--target", "edge-4t", "-o", f"{folder}/{file.stem}.npu")[0]
                for file in files
            )
        )
    result = json.loads(text)
    unit = sum(units) / len(units)
    print(
        f"{result['machines']} machines, {result['compiled']} compiled for, {len(result['front'])} on the front"
    )
    print(f"one full compilation of {', '.join(NETWORKS)}: {' and '.join(f'{each:.1f}' for each in units)} s")
    print(
        f"explore: {seconds:.1f} s, {seconds / unit:.1f} x ({'ok' if seconds <= BAR * unit else 'OVER'} {BAR} x)"
    )


if __name__ == "__main__":
    main()
