"""Objects of public classes, used by several threads at once and in a forked child; as a program it prints a verdict for each.

    python tests/support/shared_objects.py NAME...

A case makes an object and says how it is used; every use must give what the first one gave. `ONE` are those that several threads
may share, `EACH` those of which every thread needs its own. A child uses the object of its parent, or a new one where
docs/stability.md says so (`NEW_IN_CHILD`). The program is one of its own because a process that forks should have few threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden_files" / "program-v2.npu"
THREADS, TURNS = 4, 5
Use = Callable[[], Any]
Case = Callable[[], Use]
"""Makes an object; what it returns uses that object, and gives something that can be compared."""

ONE: dict[str, Case] = {}
EACH: dict[str, Case] = {}
NEW_IN_CHILD = {"FloatEngine", "QatModule", "TrainableNetwork", "KerasQat"}
"""What ONNX Runtime and torch do with threads of their own does not survive a fork."""


def shared(name: str) -> Callable[[Case], Case]:
    """One object for all threads."""
    return lambda case: ONE.setdefault(name, case)


def owned(name: str) -> Callable[[Case], Case]:
    """An object for each thread."""
    return lambda case: EACH.setdefault(name, case)


def _inputs(tensors: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {tensor.name: rng.normal(size=tensor.shape).astype(np.float32) for tensor in tensors}


def _only_input() -> Any:
    from npuc.runtime import Runner

    with Runner(GOLDEN) as runner:
        (feed,) = _inputs(runner.input_tensors).values()
    return feed


@shared("Runner")
def _runner() -> Use:
    from npuc.runtime import Runner

    runner = Runner(GOLDEN, workers=2, threads=2)
    feed = _inputs(runner.input_tensors)
    return lambda: runner.run(feed)


@shared("Pool")
def _pool() -> Use:
    from npuc.runtime import Pool

    pool = Pool(GOLDEN, ["simulated", "simulated"])
    feed = _inputs(pool.input_tensors)
    return lambda: pool.run(feed)


@shared("Pipeline")
def _pipeline() -> Use:
    from npuc.runtime import Pipeline, Stage

    pipeline = Pipeline(Stage(lambda item: item + 1, workers=2), Stage(lambda item: item * item))
    return lambda: list(pipeline.run(range(20)))


@shared("Job")
def _job() -> Use:
    from npuc.runtime import Runner

    runner = Runner(GOLDEN)
    job = runner.execute_async(_inputs(runner.input_tensors))
    return lambda: job.result(30)


@shared("SimulatedDevice")
@shared("Device")
def _device() -> Use:
    from npuc.runtime import Runner, SimulatedDevice

    device = SimulatedDevice()

    def use() -> Any:
        with Runner(GOLDEN, device) as runner:
            return runner.run(_inputs(runner.input_tensors))

    return use


@owned("LoadedModel")
def _loaded() -> Use:
    from npuc.program.file import load_compiled
    from npuc.program.model import NpuSubgraph
    from npuc.runtime import open_device

    model = load_compiled(GOLDEN)
    loaded = open_device("simulated").load(model, 1)
    numbers = [i for i, part in enumerate(model.subgraphs) if isinstance(part, NpuSubgraph)]
    rng = np.random.default_rng(2)
    for segment in loaded.segments:
        if segment.flags.writeable and segment.size:
            segment.view(np.uint8).reshape(-1)[:] = rng.integers(0, 255, segment.nbytes, np.uint8)

    def use() -> Any:
        for number in numbers:
            loaded.execute(number)
        return [segment.tobytes() for segment in loaded.segments]

    return use


@shared("CompiledFunction")
def _function() -> Use:
    from npuc.keras import load

    function = load(GOLDEN)
    feed = _only_input()
    return lambda: function.predict(feed)


@shared("NpuModule")
def _module() -> Use:
    import torch

    from npuc.torch import load

    torch.set_num_threads(1)
    module = load(GOLDEN)
    tensor = torch.from_numpy(_only_input())

    def use() -> Any:
        with torch.no_grad():
            return [part.numpy() for part in module(tensor)]

    return use


def _digits() -> Any:
    from npuc.flow import network_to_quantize

    return network_to_quantize(ROOT / "examples" / "digits.onnx")


def _image() -> Any:
    return np.random.default_rng(3).normal(size=(1, 1, 8, 8)).astype(np.float32)


@shared("FloatEngine")
def _float_engine() -> Use:
    from npuc.engine import FloatEngine

    engine = FloatEngine(_digits(), fetch=["stem/relu"], threads=1)
    return lambda: engine.run(_image())


@shared("IntegerEngine")
def _integer_engine() -> Use:
    from npuc.calib.sources import random_data
    from npuc.engine import IntegerEngine
    from npuc.flow import quantize_network, ranges_from, schemes_of
    from npuc.target import load_target

    graph, target = _digits(), load_target("edge-1t")
    ranges = ranges_from(graph, random_data(graph, 4, 0), schemes_of(graph, None, target), "max")
    engine = IntegerEngine(quantize_network(graph, ranges, None, target).graph, threads=2)
    return lambda: engine.run(_image())


@shared("Machine")
@shared("DescribedMachine")
def _machine() -> Use:
    from npuc.target import DescribedMachine, load_target

    machine = DescribedMachine(load_target("edge-4t"))
    return lambda: machine.can("conv", {"kw": 3, "kh": 3, "ic": 8}).verdict


@owned("TopOp")
@owned("Value")
@owned("Graph")
@owned("Tensor")
def _network() -> Use:
    from npuc import lang
    from npuc.ir.text import print_graph

    def use() -> Any:
        x = lang.input("x", (1, 3, 8, 8))
        y = lang.conv(x, np.ones((4, 3, 3, 3), np.float32), pads=1, name="c")
        graph = lang.build({"y": lang.relu(y + y, name="r")})
        graph.verify()
        return print_graph(graph)

    return use


@owned("NpuOp")
def _integer_network() -> Use:
    from npuc.calib.sources import random_data
    from npuc.flow import quantize_network, ranges_from, schemes_of
    from npuc.ir.text import print_graph
    from npuc.target import load_target

    graph, target = _digits(), load_target("edge-1t")
    ranges = ranges_from(graph, random_data(graph, 2, 0), schemes_of(graph, None, target), "max")
    return lambda: print_graph(quantize_network(graph.copy(), ranges, None, target).graph)


@owned("TrainableNetwork")
def _trainable() -> Use:
    import torch

    from npuc.train import TrainableNetwork

    torch.set_num_threads(1)
    network = TrainableNetwork(_digits())
    tensor = torch.from_numpy(_image())

    def use() -> Any:
        network.zero_grad()
        network(tensor).square().sum().backward()
        return [
            parameter.grad.numpy().copy() for parameter in network.parameters() if parameter.grad is not None
        ]

    return use


@owned("KerasQat")
@owned("QatModule")
def _qat() -> Use:
    """A `KerasQat` is a `QatModule` and the names of files."""
    import torch

    from npuc.train import prepare

    torch.set_num_threads(1)
    data = np.random.default_rng(3).normal(size=(8, 1, 8, 8)).astype(np.float32)
    module = prepare(_digits(), data, target=None)
    tensor = torch.from_numpy(_image())

    def use() -> Any:
        with torch.no_grad():
            return module.eval()(tensor).numpy().copy()

    return use


@owned("NoIntegerForm")
def _refusal() -> Use:
    from npuc.plugins.api import NoIntegerForm

    def use() -> Any:
        try:
            raise NoIntegerForm("it has no table")
        except NoIntegerForm as refusal:
            return str(refusal)

    return use


def same(first: Any, second: Any) -> bool:
    """Whether two results are equal, arrays in them too."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(np.array_equal(first, second))


def verdict(name: str) -> str:
    """Use the object of a class; empty if all is well."""
    one = name in ONE
    case = ONE[name] if one else EACH[name]
    use = case()
    wanted = use()
    barrier = Barrier(THREADS)

    def client(number: int) -> bool:
        own = use if one else case()
        barrier.wait(60)
        return all(same(own(), wanted) for _ in range(TURNS))

    with ThreadPoolExecutor(THREADS) as pool:
        if not all(pool.map(client, range(THREADS))):
            return "threads get other results"
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(60)
            status = int(not same((case() if name in NEW_IN_CHILD else use)(), wanted))
        finally:
            os._exit(status)
    ended = os.waitpid(child, 0)[1]
    if ended:
        return f"a forked child ended with {ended}"
    return "" if same(use(), wanted) else "the parent gets other results after a fork"


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        try:
            told = verdict(asked)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
        print(json.dumps([asked, told]), flush=True)
