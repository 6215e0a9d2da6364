"""The default of quantization against plain `max` ranges, by slice, on samples that neither has seen.

The default lets several range methods compete, corrects biases and widens tensors; on its calibration data it is never behind
plain `max` ranges (no clipping, no tuning). This prints how both do on other samples: the mean of the slices, the worst slice of
the worst sample, and the difference, where more than 0.5 dB behind is marked.

    python benchmarks/bench_default.py [--networks resnet20,...] [--target edge-4t] [--calib 24] [--samples 24]
"""

from __future__ import annotations

import argparse
import time

from accuracy_networks import Network
from accuracy_npuc import network_of
from bench_accuracy import NETWORKS

from npuc.calib.sources import open_data
from npuc.compare import OutputFigures, find_slices, measure_outputs
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import quantize_network, quantize_on_data, ranges_from, schemes_of
from npuc.ir import Graph
from npuc.target import Target, load_target

BEHIND = 0.5
"""Decibels that the default may lose to plain ranges on unseen data."""


def compared(
    network: Network, target: Target | None, calib: int, count: int
) -> tuple[OutputFigures, OutputFigures]:
    """Figures of the default and of plain ranges on unseen samples."""
    graph = network_of(network)
    name = graph.inputs[0].name
    calibration = network.calibration(calib)
    default, _ = quantize_on_data(graph, open_data(graph, calibration), target=target)
    schemes = schemes_of(graph, None, target)
    plain = quantize_network(
        graph, ranges_from(graph, open_data(graph, calibration), schemes, "max"), target=target
    )
    samples = [{name: case.read()} for case in network.measured(count)]
    engine = FloatEngine(graph)
    exact = [engine.run(sample) for sample in samples]
    slices = find_slices(graph, exact)

    def figures(integers: Graph) -> OutputFigures:
        return measure_outputs(IntegerEngine(integers).run, samples, exact, slices)

    return figures(default.graph), figures(plain.graph)


def main() -> None:
    """Print a line a network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--target", help="quantize for this machine; without it, the default scheme")
    parser.add_argument("--calib", type=int, default=24)
    parser.add_argument("--samples", type=int, default=24)
    given = parser.parse_args()
    target = load_target(given.target) if given.target else None
    print(f"{'network':16} {'default':>8} {'max':>8} {'difference':>10}   worst slice of the worst sample")
    for name in given.networks.split(","):
        start = time.perf_counter()
        default, plain = compared(NETWORKS[name], target, given.calib, given.samples)
        gain = default.mean - plain.mean
        worst = [
            result.worst.sqnr if result.worst is not None else float("nan") for result in (default, plain)
        ]
        mark = "" if gain >= -BEHIND else f"   more than {BEHIND} dB BEHIND"
        print(
            f"{name:16} {default.mean:8.1f} {plain.mean:8.1f} {gain:+10.1f}   {worst[0]:.1f} and {worst[1]:.1f} dB"
            f" ({time.perf_counter() - start:.0f} s){mark}",
            flush=True,
        )


if __name__ == "__main__":
    main()
