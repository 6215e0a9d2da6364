"""npuc inside of other frameworks: what a call costs beside the bare C runtime, and how long a session takes to start.

    python benchmarks/bench_frameworks.py                    every row (`make bench-frameworks`)
    python benchmarks/bench_frameworks.py --only onnx --model model.onnx --times 500

A row is a function that `row` registers: it gets the model and its samples, and returns what it measured. Calls through the
framework, bare calls of `npu_run` on the same programs and calls of the framework without npuc take turns, so that all have the
same neighbours and find the caches as an application's calls do. Overhead is the difference of the first two, of the best calls
and of the medians; the bar is 100 us. For torch.compile, `without` is a graph that does nothing: dynamo's own cost. The cold
start compiles, the warm one finds everything in its cache; both stand beside the framework's own session on the same file.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc import native

_ROOT = Path(__file__).resolve().parents[1]
Array = np.ndarray[Any, Any]
STARTS = 15
"""Warm starts, and starts of the framework without npuc."""


@dataclass(frozen=True)
class Workload:
    """What is measured."""

    model: Path
    """A float ONNX model."""
    inputs: dict[str, Array]
    folder: Path
    """For caches and calibration files, empty."""
    times: int


@dataclass(frozen=True)
class CallTime:
    """Seconds of a call."""

    best: float
    median: float


@dataclass(frozen=True)
class Measured:
    """Seconds."""

    calls: tuple[CallTime, CallTime, CallTime]
    """Through the framework, by the C runtime alone, and by the framework without npuc."""
    cold: float
    warm: float
    plain: float
    """The framework's own session."""


ROWS: dict[str, Callable[[Workload], Measured | None]] = {}


def row(
    title: str,
) -> Callable[[Callable[[Workload], Measured | None]], Callable[[Workload], Measured | None]]:
    """Add a row to the table."""

    def add(measure: Callable[[Workload], Measured | None]) -> Callable[[Workload], Measured | None]:
        ROWS[title] = measure
        return measure

    return add


def best(function: Callable[[], Any], times: int) -> float:
    """The shortest of many calls, in seconds."""
    shortest = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def best_in_turns(times: int, *functions: Callable[[], Any]) -> list[float]:
    """The shortest call of each function, in seconds; they take turns, so that all have the same neighbours."""
    rounds = [[best(function, 1) for function in functions] for _ in range(times)]
    return [min(column) for column in zip(*rounds, strict=True)]


def in_turns(
    times: int, framework: Callable[[], Any], bare: Callable[[], Any], plain: Callable[[], Any]
) -> tuple[CallTime, CallTime, CallTime]:
    """Calls of the three in turns."""
    functions = (framework, bare, plain)
    seconds: tuple[list[float], ...] = ([], [], [])
    for _ in range(times):
        for function, taken in zip(functions, seconds, strict=True):
            begin = time.perf_counter()
            function()
            taken.append(time.perf_counter() - begin)
    first, second, third = (CallTime(min(taken), statistics.median(taken)) for taken in seconds)
    return first, second, third


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * 8),
        ("elements", ctypes.c_int64),
        ("size", ctypes.c_size_t),
    )


def bare_call(programs: list[Path]) -> Callable[[], None]:
    """`npu_run` of all programs, one after the other, on random reals."""
    core = native.library()
    for name in ("npu_input", "npu_output"):
        getattr(core, name).restype = ctypes.POINTER(_Tensor)
    calls, kept = [], []
    for path in programs:
        model = ctypes.c_void_p()
        if core.npu_load(str(path).encode(), ctypes.byref(model)):
            raise SystemExit(f"{path} does not load")
        sides = []
        for side in ("input", "output"):
            count = getattr(core, f"npu_{side}_count")(model)
            sizes = [getattr(core, f"npu_{side}")(model, i).contents.size for i in range(count)]
            reals = [
                np.random.default_rng(0).uniform(0, 1, size // 4 + 1).astype(np.float32) for size in sizes
            ]
            buffers = [array.view(np.uint8)[:size] for array, size in zip(reals, sizes, strict=True)]
            kept.append(buffers)
            sides.append((ctypes.c_void_p * count)(*(buffer.ctypes.data for buffer in buffers)))
        calls.append((model, *sides))

    def call() -> None:
        for arguments in calls:
            core.npu_run(*arguments)

    call.__dict__["kept"] = kept
    return call


@row("ONNX Runtime provider")
def onnxruntime_provider(work: Workload) -> Measured:
    """A session with the provider against ONNX Runtime's CPU session on the same file, with one thread each."""
    import onnxruntime

    from npuc.integrations import onnxruntime as provider

    samples = work.folder / "samples.npz"
    np.savez(samples, **work.inputs)
    options = {"calibration": str(samples), "cache_dir": str(work.folder / "cache"), "cache_key": "model"}

    def settings() -> Any:
        chosen = onnxruntime.SessionOptions()
        chosen.intra_op_num_threads = 1
        chosen.log_severity_level = 3
        return chosen

    def plain_session() -> Any:
        return onnxruntime.InferenceSession(str(work.model), settings(), providers=["CPUExecutionProvider"])

    provider.register()
    cold = best(lambda: provider.session(work.model, options, settings()), 1)
    warm, plain = best_in_turns(
        STARTS, lambda: provider.session(work.model, options, settings()), plain_session
    )
    session, other = provider.session(work.model, options, settings()), plain_session()
    names = [value.name for value in session.get_outputs()]
    return Measured(
        in_turns(
            work.times,
            lambda: session.run(names, work.inputs),
            bare_call(sorted((work.folder / "cache" / "model").glob("*.npu"))),
            lambda: other.run(names, work.inputs),
        ),
        cold,
        warm,
        plain,
    )


@row("LiteRT delegate")
def litert_delegate(work: Workload) -> Measured:
    """An interpreter with the delegate against one with LiteRT's own kernels, on the model as full-integer TFLite; one thread."""
    from ai_edge_litert.interpreter import Interpreter

    from npuc import flow
    from npuc.calib.sources import open_data
    from npuc.export.tflite import TFLiteOptions, export_tflite
    from npuc.integrations import litert
    from npuc.quant.config import QuantizationConfig

    graph = flow.network_to_quantize(work.model)
    source = open_data(graph, [work.inputs])
    quantized, _ = flow.quantize_on_data(graph, source, QuantizationConfig(scheme="tflite"))
    path, cache = work.folder / "model.tflite", work.folder / "cache"
    export_tflite(quantized.graph, path, TFLiteOptions(integer_io=True, channels_last=True))

    def interpreter(*delegates: Any) -> Any:
        prepared = Interpreter(str(path), experimental_delegates=list(delegates) or None, num_threads=1)
        prepared.allocate_tensors()
        return prepared

    def with_npu() -> Any:
        return interpreter(litert.delegate(path, target="edge-4t", cache_dir=cache, report="off"))

    cold = best(with_npu, 1)
    warm, plain = best_in_turns(STARTS, with_npu, interpreter)
    machine, other = with_npu(), interpreter()
    return Measured(
        in_turns(work.times, machine.invoke, bare_call(sorted(cache.glob("*.npu"))), other.invoke),
        cold,
        warm,
        plain,
    )


def _torch_network(shape: tuple[int, ...]) -> Any:
    """A small network for images of this shape: the rows of torch and Keras need one of their own."""
    import torch

    _, channels, height, width = shape
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(channels, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * height * width, 10),
    ).eval()


@row("torch.compile")
def torch_compile(work: Workload) -> Measured | None:
    """A network under torch.compile after calibration. The starts are first calls: cold and warm are conversions (the warm one
    finds its schedule in the cache), plain is that of dynamo with the backend `eager`."""
    import copy

    import torch

    from npuc.integrations.torch.backend import npuc_backend
    from npuc.integrations.torch.session import sessions
    from npuc.program.file import save_compiled

    torch.set_num_threads(1)
    [array] = work.inputs.values()
    model, x = _torch_network(array.shape), torch.from_numpy(array)

    def started(backend: Any, options: dict[str, Any] | None) -> Any:
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=backend, options=options)
        compiled(x)
        return compiled

    options = {"data": [x] * 4}
    with torch.no_grad():
        plain = best(lambda: started("eager", None), 3)
        cold = best(lambda: started(npuc_backend, options), 1)
        warm = best(lambda: started(npuc_backend, options), 2)
        compiled = started(npuc_backend, options)
        [program] = [plan.program for plan in sessions()[-1]._plans.values()]
        assert program is not None
        save_compiled(program.runner.model, work.folder / "torch.npu")
        nothing = torch.zeros(1, 10)
        idle = torch.compile(copy.deepcopy(model), backend=lambda graph, examples: lambda *args: (nothing,))
        idle(x)
        return Measured(
            in_turns(
                work.times, lambda: compiled(x), bare_call([work.folder / "torch.npu"]), lambda: idle(x)
            ),
            cold,
            warm,
            plain,
        )


@row("torch, ahead of time")
def torch_module(work: Workload) -> Measured | None:
    """`npuc.torch.compile_module`: cold compiles, warm loads the saved module; plain loads the network's state_dict."""
    import torch

    import npuc

    torch.set_num_threads(1)
    [array] = work.inputs.values()
    model, x = _torch_network(array.shape), torch.from_numpy(array)
    file = work.folder / "module.npu"
    compiled: Any = None

    def compile_it() -> None:
        nonlocal compiled
        compiled = npuc.torch.compile_module(model, [x] * 4)

    cold = best(compile_it, 1)
    compiled.save(file)
    torch.save(model.state_dict(), work.folder / "state.pt")
    with torch.no_grad():
        return Measured(
            in_turns(work.times, lambda: compiled(x), bare_call([file]), lambda: model(x)),
            cold,
            *best_in_turns(
                STARTS,
                lambda: npuc.torch.load(file),
                lambda: model.load_state_dict(torch.load(work.folder / "state.pt", weights_only=True)),
            ),
        )


@row("Keras")
def keras_function(work: Workload) -> Measured | None:
    """`npuc.keras.compile`: cold compiles, warm loads what was saved; plain loads the `.keras` file."""
    try:
        import keras
    except ImportError:
        return None
    import npuc

    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)
    [array] = work.inputs.values()
    x = np.moveaxis(array, 1, -1).copy()
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input(x.shape[1:]),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    file = work.folder / "keras.npu"
    compiled: Any = None

    def compile_it() -> None:
        nonlocal compiled
        compiled = npuc.keras.compile(model, [x] * 4)

    cold = best(compile_it, 1)
    compiled.save(file)
    model.save(work.folder / "model.keras")
    return Measured(
        in_turns(work.times, lambda: compiled.predict(x), bare_call([file]), lambda: model(x)),
        cold,
        *best_in_turns(
            STARTS,
            lambda: npuc.keras.load(file),
            lambda: keras.models.load_model(work.folder / "model.keras"),
        ),
    )


def workload(model: Path, folder: Path, times: int) -> Workload:
    """Random inputs of the shapes that a model states, with a batch of one."""
    import onnx

    graph = onnx.load(model).graph
    held = {tensor.name for tensor in graph.initializer}
    generator = np.random.default_rng(0)
    inputs = {
        value.name: generator.uniform(
            0, 1, [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in graph.input
        if value.name not in held
    }
    return Workload(model, inputs, folder, times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=_ROOT / "examples" / "digits.onnx")
    parser.add_argument("--only", default="", help="rows whose titles have this in them")
    parser.add_argument("--times", type=int, default=300)
    arguments = parser.parse_args()
    print(f"{arguments.model.name}, best (and median) of {arguments.times} calls; times in us, starts in ms")
    print(
        f"{'':24}{'call':>16}{'bare':>16}{'overhead':>16}{'without':>16}{'cold':>10}{'warm':>10}{'plain':>10}{'ratio':>8}"
    )
    for title, measure in ROWS.items():
        if arguments.only.lower() not in title.lower():
            continue
        with tempfile.TemporaryDirectory() as folder:
            figures = measure(workload(arguments.model, Path(folder), arguments.times))
        if figures is None:
            print(f"{title:24}  not installed here")
            continue
        call, bare, without = figures.calls
        micro = [call, bare, CallTime(call.best - bare.best, call.median - bare.median), without]
        milli = [figures.cold, figures.warm, figures.plain]
        print(
            f"{title:24}"
            + "".join(f"{1e6 * each.best:8.1f} ({1e6 * each.median:5.1f})" for each in micro)
            + "".join(f"{1e3 * value:10.1f}" for value in milli)
            + f"{figures.warm / figures.plain:8.2f}"
        )


if __name__ == "__main__":
    main()
