"""Import time and peak memory, against onnxslim and against onnx.load + shape inference, on the same files.

    python benchmarks/bench_import.py            everything (`make bench-import`)
    python benchmarks/bench_import.py --quick    fewer runs, up to 1,000 nodes and 100 MB
    python benchmarks/bench_import.py --only weights

Every measurement is a process of its own on one thread. It loads its libraries, warms them up on a small model, notes
its resident memory, then does the work. Peak memory is what it grew by: all resident pages (of which those of a mapped
file are the kernel's to take back), and the anonymous ones alone, which are the process's own.

Times are of the processor, user and system, so that a busy machine changes them little. Growth is the slope of a line
through the logarithms: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
_SHARED = Path(__file__).resolve().parents[2] / "shared" / "models" / "onnx"
_SHAPES = {
    "cifar10_resnet20": {"input": [1, 3, 32, 32]},
    "ppocrv3_text_det": {"x": [1, 3, 320, 320]},
    "super_resolution": {"input": [1, 1, 224, 224]},
}
TOOLS = ("npuc", "npuc import", "onnxslim", "onnx infer")
"""npuc: import, canonical form, and saving .mlir and .safetensors; npuc import: the first of these alone; onnxslim:
load, simplify, save; onnx infer: load and infer shapes, nothing saved."""
MB = 1_000_000


# --- the files ----------------------------------------------------------------------------------------------------


def chain(nodes: int, channels: int = 8, seed: int = 0) -> Any:
    """Blocks of Conv, BatchNormalization, Relu and Add: what a network is mostly made of."""
    import numpy as np
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(seed)
    layers: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, *shape: int) -> str:
        values = rng.random(shape, dtype=np.float32) * 0.2
        constants.append(numpy_helper.from_array(values, name))
        return name

    current = "x"
    for block in range(max(1, nodes // 4)):
        size = (channels, channels, 1, 1)
        layers.append(
            helper.make_node("Conv", [current, constant(f"w{block}", *size)], [f"c{block}"], f"conv{block}")
        )
        parameters = [constant(f"{kind}{block}", channels) for kind in ("scale", "bias", "mean", "var")]
        layers.append(
            helper.make_node("BatchNormalization", [f"c{block}", *parameters], [f"n{block}"], f"bn{block}")
        )
        layers.append(helper.make_node("Relu", [f"n{block}"], [f"r{block}"], f"relu{block}"))
        layers.append(helper.make_node("Add", [f"r{block}", current], [f"a{block}"], f"add{block}"))
        current = f"a{block}"
    shape = [1, channels, 16, 16]
    graph = helper.make_graph(
        layers,
        "chain",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info(current, 1, shape)],
        constants,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="bench"
    )


def shape_arithmetic(nodes: int) -> Any:
    """Reshapes whose shapes are computed in the graph, as exporters spell them: Shape, Gather, Concat, Reshape."""
    import numpy as np
    from onnx import helper, numpy_helper

    constants = [
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
        numpy_helper.from_array(np.array([0], np.int64), "axis"),
        numpy_helper.from_array(np.array([-1], np.int64), "rest"),
        numpy_helper.from_array(np.array([8, 4], np.int64), "tail"),
    ]
    layers: list[Any] = []
    current = "x"
    for block in range(max(1, nodes // 8)):
        b = str(block)
        layers += [
            helper.make_node("Shape", [current], [f"s{b}"]),
            helper.make_node("Gather", [f"s{b}", "zero"], [f"g{b}"], axis=0),
            helper.make_node("Unsqueeze", [f"g{b}", "axis"], [f"u{b}"]),
            helper.make_node("Concat", [f"u{b}", "rest"], [f"k{b}"], axis=0),
            helper.make_node("Reshape", [current, f"k{b}"], [f"f{b}"]),
            helper.make_node("Sigmoid", [f"f{b}"], [f"e{b}"]),
            helper.make_node("Concat", [f"u{b}", "tail"], [f"t{b}"], axis=0),
            helper.make_node("Reshape", [f"e{b}", f"t{b}"], [f"y{b}"]),
        ]
        current = f"y{b}"
    shape = [2, 8, 4]
    graph = helper.make_graph(
        layers,
        "shapes",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info(current, 1, shape)],
        constants,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="bench"
    )


def write_weights(path: Path, megabytes: int, external: bool, folded: bool) -> None:
    """A chain of matrix products with weights of 10 MB each (smaller in small files).

    With `folded` they are convolutions of one pixel with a batch norm each, so that a compiler rewrites every weight.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    count = max(4, megabytes // 10)
    rows = 512
    columns = megabytes * MB // count // (4 * rows)
    rng = np.random.default_rng(0)
    nodes, constants = [], []
    current = "x"
    data = path.with_suffix(".bin")
    with open(data, "wb") if external else open(os.devnull, "wb") as out:
        for index in range(count):
            # Up and down again, so that the widths fit.
            size: tuple[int, ...] = (rows, columns) if index % 2 == 0 else (columns, rows)
            size = (*reversed(size), 1, 1) if folded else size
            raw = (rng.random(size, dtype=np.float32) - 0.5).tobytes()
            tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=size)
            if external:
                tensor.data_location = TensorProto.EXTERNAL
                entries = {"location": data.name, "offset": str(out.tell()), "length": str(len(raw))}
                for key, value in entries.items():
                    tensor.external_data.add(key=key, value=value)
                out.write(raw)
            else:
                tensor.raw_data = raw
            constants.append(tensor)
            if folded:
                parameters = [f"{kind}{index}" for kind in ("scale", "bias", "mean", "var")]
                for name in parameters:
                    constants.append(numpy_helper.from_array(np.ones(size[0], np.float32), name))
                nodes.append(helper.make_node("Conv", [current, f"w{index}"], [f"c{index}"]))
                nodes.append(
                    helper.make_node("BatchNormalization", [f"c{index}", *parameters], [f"m{index}"])
                )
            else:
                nodes.append(helper.make_node("MatMul", [current, f"w{index}"], [f"m{index}"]))
            nodes.append(helper.make_node("Relu", [f"m{index}"], [f"y{index}"]))
            current = f"y{index}"
    width = rows if count % 2 == 0 else columns
    pixel = [1, 1] if folded else []
    graph = helper.make_graph(
        nodes,
        "weights",
        [helper.make_tensor_value_info("x", 1, [1, rows, *pixel])],
        [helper.make_tensor_value_info(current, 1, [1, width, *pixel])],
        constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="bench"
    )
    path.write_bytes(model.SerializeToString())


# --- the work, in a process of its own ----------------------------------------------------------------------------


def _npuc(path: str, out: Path, shapes: dict[str, Any]) -> None:
    from npuc.frontend.onnx import ImportOptions, import_onnx
    from npuc.ir import save_graph
    from npuc.transform import canonicalize

    options = ImportOptions(input_shapes={name: tuple(shape) for name, shape in shapes.items()})
    save_graph(canonicalize(import_onnx(path, options)), out / "model.mlir")


def _npuc_import(path: str, out: Path, shapes: dict[str, Any]) -> None:
    from npuc.frontend.onnx import ImportOptions, import_onnx

    import_onnx(path, ImportOptions(input_shapes={name: tuple(shape) for name, shape in shapes.items()}))


def _onnxslim(path: str, out: Path, shapes: dict[str, Any]) -> None:
    import onnxslim

    given = [f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items()]
    large = os.path.getsize(path) > 1_900 * MB or Path(path).with_suffix(".bin").exists()
    onnxslim.slim(path, str(out / "slim.onnx"), input_shapes=given or None, save_as_external_data=large)


def _onnx_infer(path: str, out: Path, shapes: dict[str, Any]) -> None:
    import onnx

    model = onnx.load(path)
    for info in model.graph.input:
        if info.name in shapes:
            for dim, size in zip(info.type.tensor_type.shape.dim, shapes[info.name], strict=True):
                dim.dim_value = size
    onnx.shape_inference.infer_shapes(model)


_WORK: dict[str, Callable[[str, Path, dict[str, Any]], None]] = {
    "npuc": _npuc,
    "npuc import": _npuc_import,
    "onnxslim": _onnxslim,
    "onnx infer": _onnx_infer,
}


def _memory(key: str) -> int:
    """A figure of this process from the kernel, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def worker(tool: str, path: str, shapes: dict[str, Any]) -> None:
    """Do the work once and print seconds, peak growth of resident memory, and of anonymous memory, as JSON."""
    import threading
    import time

    import onnx

    work = _WORK[tool]
    with tempfile.TemporaryDirectory(
        dir=Path(path).parent if os.access(Path(path).parent, os.W_OK) else None
    ) as name:
        out = Path(name)
        warm = out / "warm.onnx"
        warm.write_bytes(chain(16).SerializeToString())
        work(str(warm), out, {})
        onnx.load(str(warm))
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        resident, anonymous = _memory("VmRSS:"), _memory("RssAnon:")
        highest = anonymous
        done = threading.Event()

        def watch() -> None:
            nonlocal highest
            while not done.wait(0.002):
                highest = max(highest, _memory("RssAnon:"))

        watcher = threading.Thread(target=watch, daemon=True)
        measure_memory = os.environ.get("BENCH_MEMORY") == "1"
        if measure_memory:
            watcher.start()
        start = time.process_time()
        work(path, out, shapes)
        seconds = time.process_time() - start
        done.set()
        print(
            json.dumps([seconds, _memory("VmHWM:") - resident, max(highest, _memory("RssAnon:")) - anonymous])
        )


# --- measuring ----------------------------------------------------------------------------------------------------


def _once(tool: str, path: Path, shapes: dict[str, Any], memory: bool) -> list[float] | str:
    environment = os.environ | _THREADS | {"BENCH_MEMORY": "1" if memory else "0"}
    command = [sys.executable, __file__, "--worker", tool, str(path), json.dumps(shapes)]
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    lines = process.stdout.strip().splitlines()
    if process.returncode == 0 and lines and lines[-1].startswith("["):
        return list(json.loads(lines[-1]))
    words = (process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
    return words[:90]


def measure(tool: str, path: Path, shapes: dict[str, Any], runs: int) -> dict[str, float] | str:
    """Best and median seconds of `runs` processes, and the memory of one more that is watched."""
    times = []
    for _ in range(runs):
        figures = _once(tool, path, shapes, memory=False)
        if isinstance(figures, str):
            return figures
        times.append(figures[0])
    watched = _once(tool, path, shapes, memory=True)
    if isinstance(watched, str):
        return watched
    return {
        "best": min(times),
        "median": statistics.median(times),
        "resident": watched[1],
        "anonymous": watched[2],
    }


def slope(sizes: list[float], values: list[float]) -> float:
    """The exponent of growth: least squares through the logarithms."""
    points = [(math.log(x), math.log(y)) for x, y in zip(sizes, values, strict=True) if x > 0 and y > 0]
    if len(points) < 2:
        return math.nan
    xs, ys = zip(*points, strict=True)
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


_Table = dict[str, dict[float, dict[str, float]]]
_Case = tuple[str, float, Path, dict[str, Any], int]
"""What the line says, the size, the file, its input shapes, and the number of runs."""


def report(cases: Iterator[_Case]) -> _Table:
    """Measure every tool on every file and print a line each; the results by tool and size."""
    table: _Table = {tool: {} for tool in TOOLS}
    print(f"  {'':24} {'tool':12} {'best s':>9} {'median s':>9} {'vs npuc':>8} {'peak MB':>9} {'own MB':>9}")
    for name, size, path, shapes, runs in cases:
        first = None
        for tool in TOOLS:
            figures = measure(tool, path, shapes, runs)
            if isinstance(figures, str):
                print(f"  {name:24} {tool:12} failed: {figures}", flush=True)
            else:
                table[tool][size] = figures
                first = first or figures["best"]
                print(
                    f"  {name:24} {tool:12} {figures['best']:9.3f} {figures['median']:9.3f} {figures['best'] / first:8.2f} "
                    f"{figures['resident'] / MB:9.1f} {figures['anonymous'] / MB:9.1f}",
                    flush=True,
                )
            name = ""
    return table


def growth(table: _Table, what: str, memory: bool = False) -> None:
    """Print the exponents of each tool."""
    print(f"  growth with {what} (log-log slope, 1 is linear):")
    for tool, figures in table.items():
        sizes = sorted(figures)
        if len(sizes) < 2:
            continue
        times = [figures[size]["best"] for size in sizes]
        text = f"    {tool:12} time {slope(sizes, times):5.2f}"
        if memory:
            largest = sizes[-1]
            own, resident = (figures[largest][key] / (largest * MB) for key in ("anonymous", "resident"))
            text += f", peak / weights at {largest:.0f} MB: {resident:.2f} resident, {own:.3f} of its own"
        else:
            text += f", over the last two sizes {slope(sizes[-2:], times[-2:]):5.2f}"
        print(text)


# --- what is measured ---------------------------------------------------------------------------------------------


def _shared_cases(runs: int) -> Iterator[_Case]:
    for path in sorted(_SHARED.glob("*.onnx")):
        yield path.stem, path.stat().st_size, path, _SHAPES.get(path.stem, {}), runs


def _node_cases(folder: Path, sizes: list[int], make: Callable[[int], Any], runs: int) -> Iterator[_Case]:
    for nodes in sizes:
        path = folder / "nodes.onnx"
        path.write_bytes(make(nodes).SerializeToString())
        yield f"{nodes:,} nodes", nodes, path, {}, runs if nodes < 3000 else max(1, runs // 2)
        path.unlink()


def _weight_cases(folder: Path, sizes: list[int], folded: bool, runs: int) -> Iterator[_Case]:
    for megabytes in sizes:
        external = megabytes > 2000  # beyond 2 GiB a protobuf cannot hold them: they lie beside it
        needed = 4 * megabytes * MB
        if shutil.disk_usage(folder).free < needed:
            print(f"  {megabytes} MB left out: {needed / 1e9:.0f} GB of disk are needed")
            continue
        path = folder / "weights.onnx"
        write_weights(path, megabytes, external, folded)
        # Twice over: the second reader finds the file in the page cache, as all later ones do.
        for file in folder.glob("weights.*"):
            with open(file, "rb") as stream:
                while stream.read(1 << 24):
                    pass
        name = f"{megabytes} MB {'external' if external else 'inline'}"
        yield name, megabytes, path, {}, runs if megabytes < 500 else max(1, runs // 2)
        for file in folder.glob("weights.*"):
            file.unlink()


def main() -> None:
    """Parse the command line and print the whole report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs and smaller files")
    parser.add_argument("--only", choices=("models", "nodes", "shapes", "weights", "folded"), help="one part")
    parser.add_argument("--runs", type=int, default=3, help="processes a measurement (default 3)")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker[0], arguments.worker[1], json.loads(arguments.worker[2]))
        return
    try:
        import onnxslim
    except ImportError:
        sys.exit("onnxslim is not installed: pip install 'npuc[bench]'")
    import onnx
    import onnxruntime
    import xdsl

    import npuc

    runs = 2 if arguments.quick else arguments.runs
    nodes = [100, 300, 1000] if arguments.quick else [100, 300, 1000, 3000, 10_000]
    weights = [10, 100] if arguments.quick else [10, 100, 500, 1900, 2200]
    print(
        f"npuc {npuc.__version__} (xdsl {xdsl.__version__}) against onnxslim {onnxslim.__version__} and onnx "
        f"{onnx.__version__}; onnxruntime {onnxruntime.__version__}, Python {sys.version.split()[0]}, one thread, "
        f"{runs} processes each"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.only in (None, "models"):
            print("real models")
            if _SHARED.is_dir():
                report(_shared_cases(runs))
            else:
                print("  the folder of shared models is not here")
        for part, make in (("nodes", chain), ("shapes", shape_arithmetic)):
            if arguments.only in (None, part):
                print({"nodes": "Conv-BatchNorm-Relu-Add", "shapes": "shape arithmetic"}[part])
                growth(report(_node_cases(folder, nodes, make, runs)), "nodes")
        for part, folded in (("weights", False), ("folded", True)):
            if arguments.only in (None, part):
                print("weights that are all rewritten (batch norms fold into them)" if folded else "weights")
                growth(report(_weight_cases(folder, weights, folded, runs)), "weights", memory=True)


if __name__ == "__main__":
    main()
