"""What the learned steps of the ladder make on several devices and numbers of threads: the same, but for the order of sums.

A step runs from the same network on each; printed are the weights that differ from the first device's, by how many steps at
most, and the decibels on the validation samples.

    python benchmarks/learned_on_devices.py [--network resnet20] [--step adaquant] [--on cpu:1 cpu:2 cuda]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from accuracy_networks import NETWORKS
from accuracy_npuc import network_of

from npuc.arrays import Array
from npuc.quant.ladder import Candidate, QuantizationContext
from npuc.quant.ladder.sequence import chosen
from npuc.quant.layers import integer_layers
from npuc.quant.scheme import SCHEMES


def weights(candidate: Candidate) -> Array:
    """All integer weights of a network."""
    layers = integer_layers(candidate.source, candidate.quantized, candidate.scheme_of)
    return np.concatenate([layer.integers.ravel() for layer in layers])


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", choices=list(NETWORKS), default="resnet20")
    parser.add_argument("--scheme", choices=list(SCHEMES), default="int4-weights")
    parser.add_argument("--step", default="adaquant")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--on", nargs="+", default=["cpu:1", "cpu:2"], help="cpu:THREADS or cuda")
    given = parser.parse_args()
    network = NETWORKS[given.network]
    graph = network_of(network)
    samples = [{graph.inputs[0].name: x} for x in network.calibration(given.samples)]
    context = QuantizationContext(graph, samples, lambda op: SCHEMES[given.scheme])
    start = context.start()
    (entry,) = chosen([given.step])
    print(f"{given.network}, {given.scheme}, {len(samples)} samples: {start.sqnr:.2f} dB before {entry.name}")
    first: Array | None = None
    for place in given.on:
        context.device, _, threads = place.partition(":")
        context.threads = int(threads or 1)
        begun = time.perf_counter()
        found = entry.make().propose(start, context)
        if found is None:
            print(f"{place}: nothing to do")
            continue
        integers = weights(found)
        first = integers if first is None else first
        apart = np.abs(integers - first)
        print(
            f"{place}: {found.sqnr:.2f} dB, {100 * np.mean(apart > 0):.3f} % of {apart.size:,} weights differ from "
            f"{given.on[0]}, by {int(apart.max())} at most, {100 * np.mean(integers != weights(start)):.1f} % were moved "
            f"({time.perf_counter() - begun:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
