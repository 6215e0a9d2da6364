"""The runtime under load: no job is lost, every result is right, memory stays flat, every failure is a defined error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.errors import JobTimeoutError
from npuc.program.model import CompiledModel
from npuc.runtime import Runner, SimulatedDevice
from support.programs.runtime_load import (
    Sample,
    on_many_runners,
    on_one_runner,
    resident,
    with_failures,
    with_shutdown,
)

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def sample(images: np.ndarray, expected: np.ndarray) -> Sample:
    inputs = [{"image": images[k : k + 1]} for k in range(len(expected))]
    return Sample(inputs, [{"logits": expected[k : k + 1]} for k in range(len(expected))])


def test_eight_threads_on_one_runner(model: CompiledModel, sample: Sample) -> None:
    with Runner(model, workers=4) as runner:
        assert on_one_runner(runner, sample, threads=8, jobs=200) == {"done": 1600}
        grown: list[int] = []
        # What threads leave in the allocator comes once; what jobs keep comes in every round.
        while len(grown) < 3 and min(grown, default=2 * MEGABYTE) >= 2 * MEGABYTE:
            before = resident()
            assert on_one_runner(runner, sample, threads=8, jobs=1000) == {"done": 8000}
            grown.append(resident() - before)
    # 8,000 jobs that each kept as little as one of their arrays would be far more.
    assert min(grown) < 2 * MEGABYTE, grown


def test_fifty_runners(model: CompiledModel, sample: Sample) -> None:
    assert on_many_runners(model, sample, runners=50, jobs=8) == {"done": 400}
    before = resident()
    for _ in range(4):
        assert on_many_runners(model, sample, runners=50, jobs=8) == {"done": 400}
    # The allocator keeps up to 25 MB, now more and now less; runners that stay would be another 30 MB in every round.
    grown = resident() - before
    assert grown < 60 * MEGABYTE, grown


def test_a_device_that_fails_under_load(model: CompiledModel, sample: Sample) -> None:
    ended = with_failures(model, sample, threads=8, jobs=100, every=10)
    # The device is called once a job: one in ten fails, and no other job suffers.
    assert ended == {"done": 720, "DeviceError": 80}


def test_closing_under_load(model: CompiledModel, sample: Sample) -> None:
    ended = with_shutdown(model, sample, threads=8, jobs=100)
    assert sum(ended.values()) == 800 and set(ended) == {"done", "ShutdownError"}
    assert ended["done"] >= 350 and ended["ShutdownError"] > 0


def test_waits_that_are_too_short_lose_nothing(model: CompiledModel, sample: Sample) -> None:
    late = 0
    with Runner(model, SimulatedDevice(timing=True, slowdown=30), workers=2) as runner:
        jobs = [runner.execute_async(sample.inputs[k % 32]) for k in range(64)]
        for k, job in enumerate(jobs):
            for _ in range(100_000):
                try:
                    sample.check(k % 32, job.result(timeout=0))
                    break
                except JobTimeoutError:
                    late += 1
    assert late > 64


@pytest.mark.slow
def test_a_real_network_under_load(shared: Path) -> None:
    from npuc.calib.compiled import interface_of
    from npuc.calib.random_inputs import random_inputs
    from npuc.codegen.compile_model import compile_model
    from npuc.flow import network_to_quantize, quantize_network
    from npuc.sim import Simulator
    from npuc.target import load_target

    target = load_target("edge-4t")
    graph = network_to_quantize(shared / "models/tflite/kws_int8.tflite")
    model = compile_model(quantize_network(graph, None, None, target).graph, target, level=1)
    inputs = [random_inputs(interface_of(model), seed) for seed in range(8)]
    sample = Sample(inputs, [Simulator(model).run(one) for one in inputs])
    with Runner(model, raw=True, workers=2) as runner:
        on_one_runner(runner, sample, threads=8, jobs=50)
        before = resident()
        assert on_one_runner(runner, sample, threads=8, jobs=1000) == {"done": 8000}
        assert resident() - before < 4 * MEGABYTE
    assert on_many_runners(model, sample, runners=50, jobs=20) == {"done": 1000}
