"""The runtime: what `run` costs beside the native call, jobs in the background, and the time to load a large file.

    python benchmarks/bench_runtime.py             everything (`make bench-runtime`)
    python benchmarks/bench_runtime.py --model model.npu --jobs 50 --load 100

Overhead: the demo network, the best of many runs, over the best of the bare calls of the simulator for its NPU subgraphs.
Throughput: jobs a second of `execute_async` with two workers over `run` in a loop, in turns; on a network of about a
millisecond unless `--model` names another. It needs two free cores; on a machine that has other work, a second line leaves out
the time that threads were ready and had no core. Load: a file with so many megabytes of constants that is
mapped, without and with checksums (those of the constants are compared by the first run, so that time is printed as well), and
an ONNX Runtime session on an ONNX model with the same constants.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import enumerate as enumerate_threads
from threading import get_native_id
from typing import Any

import numpy as np

from npuc.calib.sources import random_data
from npuc.codegen.compile_model import compile_model
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.frontend.onnx import ImportOptions
from npuc.program.file import load_compiled, save_compiled
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.runtime import Runner
from npuc.sim import Simulator, calls
from npuc.target import load_target

_ROOT = Path(__file__).resolve().parents[1]
_TARGET = load_target("edge-1t")


def digits(batch: int) -> CompiledModel:
    """The demo network for so many images at a time."""
    options = ImportOptions(input_shapes={"image": (batch, 1, 8, 8)})
    graph = network_to_quantize(_ROOT / "examples" / "digits.onnx", options)
    ranges = ranges_from(graph, random_data(graph, 4, 0), schemes_of(graph, None, _TARGET), "max")
    return compile_model(quantize_network(graph, ranges, None, _TARGET).graph, _TARGET, level=1)


def best(function: Callable[[], Any], times: int) -> float:
    """The shortest of many runs, in seconds."""
    shortest = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def inputs_of(runner: Runner) -> dict[str, Any]:
    """Zeros for all inputs."""
    return {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in runner.input_tensors}


def bare_calls(model: CompiledModel) -> Callable[[], None]:
    """The calls of the simulator for all NPU subgraphs, and nothing else."""
    simulator, error = Simulator(model), calls.RawError(core=-1, instruction=-1)
    run = calls.function("npuc_sim_run")
    numbers = [k for k, subgraph in enumerate(model.subgraphs) if isinstance(subgraph, NpuSubgraph)]
    arguments = [
        (simulator.handle, simulator.program(k).address, 1, ctypes.addressof(error)) for k in numbers
    ]

    def call() -> None:
        for values in arguments:
            if run(*values):
                raise SystemExit(error.message.decode())

    call.__dict__["kept"] = simulator
    return call


def overhead(times: int) -> None:
    """Print what `run` costs beside the native call."""
    model = digits(1)
    native = best(bare_calls(model), times)
    print(f"overhead of run over the native call ({native * 1e6:.1f} us), the bar is 50 us")
    for title, raw in (("reals", False), ("raw integers", True)):
        with Runner(model, raw=raw, workers=1) as runner:
            inputs = inputs_of(runner)
            outputs = {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in runner.output_tensors}
            taken = best(lambda runner=runner, inputs=inputs: runner.run(inputs), times)  # type: ignore[misc]
            lent = best(lambda: runner.run(inputs, outputs), times)  # noqa: B023
            print(
                f"  {title:14}{(taken - native) * 1e6:8.1f} us, into the caller's arrays {(lent - native) * 1e6:.1f} us"
            )


def waited(threads: Iterable[int]) -> float:
    """Seconds that threads of this process were ready and had no core, as Linux counts them; elsewhere 0."""
    total = 0
    for thread in threads:
        try:
            total += int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0.0
    return total / 1e9


@dataclass(frozen=True)
class Round:
    """A number of jobs, in seconds: as the clock tells, and without the time that threads waited for a core."""

    loop: float
    jobs: float
    own_loop: float
    own_jobs: float


def one_round(runner: Runner, inputs: dict[str, Any], jobs: int) -> Round:
    """The jobs by `run` in a loop, and then in the background."""
    caller = get_native_id()
    workers = [thread.native_id or 0 for thread in enumerate_threads() if thread.name.startswith("npuc-")]
    begin, lost = time.perf_counter(), waited([caller])
    for _ in range(jobs):
        runner.run(inputs)
    loop, lost = time.perf_counter() - begin, waited([caller]) - lost
    begin, spent, missed = time.perf_counter(), time.thread_time(), waited(workers)
    for job in [runner.execute_async(inputs) for _ in range(jobs)]:
        job.result()
    taken, missed = time.perf_counter() - begin, (waited(workers) - missed) / len(workers)
    # What the caller's own thread takes of the two cores would be missing on an idle machine as well.
    return Round(loop, taken, loop - lost, taken - missed + (time.thread_time() - spent) / len(workers))


def throughput(model: CompiledModel, jobs: int, rounds: int) -> None:
    """Print jobs a second in a loop and in the background."""
    with Runner(model, workers=2) as runner:
        inputs = inputs_of(runner)
        for job in [runner.execute_async(inputs) for _ in range(4)]:
            job.result()
        done = [one_round(runner, inputs, jobs) for _ in range(rounds)]
    for title, ratios in (
        ("", [round_.loop / round_.jobs for round_ in done]),
        ("  without waits for a core: ", [round_.own_loop / round_.own_jobs for round_ in done]),
    ):
        head = title or (
            f"execute_async with 2 workers over run in a loop ({jobs / min(round_.loop for round_ in done):.0f} jobs a second): "
        )
        print(
            f"{head}{max(ratios):.2f} at best, {statistics.median(ratios):.2f} in the middle of {rounds}; the bar is 1.6"
        )
    share = sum(round_.own_loop for round_ in done) / sum(round_.loop for round_ in done)
    print(f"  the loop had a core for {share:.0%} of the time; other programs had it for the rest")


def loading(megabytes: int) -> None:
    """Print the time to load constants of a size, and what an ONNX Runtime session takes."""
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper

    size = megabytes << 20
    model = digits(1)
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    data[: model.weights.size] = model.weights
    segments = (replace(model.segments[0], size=size), *model.segments[1:])
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "large.npu", Path(folder) / "large.onnx"
        save_compiled(replace(model, weights=data, segments=segments), ours)
        table = helper.make_tensor("table", TensorProto.UINT8, (size // 1024, 1024), data.tobytes(), raw=True)
        node = helper.make_node("Gather", ["table", "index"], ["row"])
        ports = [
            helper.make_tensor_value_info("index", TensorProto.INT64, (1,)),
            helper.make_tensor_value_info("row", TensorProto.UINT8, (1, 1024)),
        ]
        graph = helper.make_graph([node], "g", ports[:1], ports[1:], [table])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), theirs)
        del table, graph, data
        session = best(lambda: ort.InferenceSession(theirs, providers=["CPUExecutionProvider"]), 3)
        print(f"load of {megabytes} MB of constants; an ONNX Runtime session takes {session * 1e3:.1f} ms")
        for title, verify in (("no checksums", False), ("with checksums", True)):
            taken = best(lambda verify=verify: Runner(ours, verify=verify).close(), 5)  # type: ignore[misc]
            print(
                f"  {title:14}{taken * 1e3:8.1f} ms, {taken / session:.3f} of the session; the bar is 20 ms"
            )

        def used(verify: bool) -> None:
            with Runner(ours, verify=verify) as runner:
                runner.run(inputs_of(runner))

        firsts = {verify: best(lambda verify=verify: used(verify), 5) for verify in (False, True)}  # type: ignore[misc]
        print(
            f"  load and first run {firsts[True] * 1e3:.1f} ms, {firsts[True] / session:.3f} of the session; "
            f"without checksums {firsts[False] * 1e3:.1f} ms"
        )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a .npu file for the throughput")
    parser.add_argument("--jobs", type=int, default=400, help="jobs of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=2000, help="runs that the best is taken of")
    parser.add_argument("--load", type=int, default=100, metavar="MB", help="constants of the large file")
    given = parser.parse_args()
    overhead(given.times)
    throughput(load_compiled(given.model) if given.model else digits(64), given.jobs, given.rounds)
    loading(given.load)


if __name__ == "__main__":
    main()
