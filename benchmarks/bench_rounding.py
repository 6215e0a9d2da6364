"""How long learned rounding takes on a network of ResNet-50's size: under five minutes on CUDA is the bar.

The network is built by code with random weights and learns from random samples, so that nothing has to be at hand but npuc
and torch: time depends on neither. The step is timed as the ladder runs it, with the judging of its result and the
correction of biases on the processor; the part that learns is given beside it.

    python benchmarks/bench_rounding.py [--device cuda] [--samples 128] [--iterations N] [--network resnet50]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import torch
from networks import BUILT, network, quantized, size

from npuc.calib.random_inputs import random_inputs
from npuc.calib.table import CalibrationTable
from npuc.flow import schemes_of
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder import Candidate, QuantizationContext
from npuc.quant.rounding import learn as learning
from npuc.quant.rounding.step import LearnRounding

BAR = 300.0
"""Seconds, on CUDA."""


class Stopwatch:
    """Stands in for `learn`: notes how long it takes, and says how far it is."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._learn = learning.learn

    def __call__(self, *arguments: Any) -> Any:
        """Learn."""
        begun = time.perf_counter()

        def report(done: int, total: int) -> None:
            words = f"block {done} of {total}: {time.perf_counter() - begun:.1f} s"
            print(words, file=sys.stderr, flush=True)

        learned = self._learn(*arguments, report=report)
        self.seconds = time.perf_counter() - begun
        return learned


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--samples", type=int, default=128, help="three quarters of them are learned from")
    parser.add_argument("--iterations", type=int, help="for each block; without it, as the ladder has it")
    parser.add_argument("--network", default="resnet50", choices=sorted(BUILT))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    device = arguments.device
    if device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("this torch finds no CUDA device")
    graph = network(arguments.network)
    parameters, macs = size(graph)
    scheme_of = schemes_of(graph, QuantizationConfig(scheme="int8"))
    samples = [random_inputs(graph, seed) for seed in range(arguments.samples)]
    context = QuantizationContext(graph, samples, scheme_of, threads=arguments.threads, device=device)
    integers = quantized(graph)
    start = Candidate(graph, integers, CalibrationTable({}), scheme_of, context.validated_sqnr(integers))
    watch = Stopwatch()
    learning.learn = watch
    begun = time.perf_counter()
    proposed = LearnRounding(arguments.iterations).propose(start, context)
    seconds = time.perf_counter() - begun
    if proposed is None:
        raise SystemExit("the step found nothing to do: is torch there?")
    where = (
        torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{arguments.threads} threads"
    )
    print(f"{arguments.network}: {parameters / 1e6:.1f} M parameters, {macs / 1e9:.1f} G MACs a sample")
    print(
        f"{len(context.fit)} samples to learn from, {len(context.validation_samples)} judge; {device}, {where}"
    )
    print(f"learning {watch.seconds:.1f} s; the whole step {seconds:.1f} s")
    print(f"SQNR of the outputs {start.sqnr:.2f} to {proposed.sqnr:.2f} dB ({'; '.join(proposed.notes)})")
    if device.startswith("cuda"):
        verdict = "under" if seconds < BAR else "NOT under"
        print(f"{verdict} the bar of {BAR:.0f} s")


if __name__ == "__main__":
    main()
