"""An op of a plugin end to end: import, quantize, compile, simulate to the bit, and run in C.

    python demo.py [FOLDER]

It builds a small ONNX model with nodes com.example:HardGlu, which nothing but the plugin knows.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import npuc.plugins
from npuc import flow
from npuc.deploy.c import export_c
from npuc.engine import ALL_TENSORS, FloatEngine
from npuc.engine.integer import IntegerEngine
from npuc.program.file import load_compiled, save_compiled
from npuc.sim import Simulator
from npuc.target import load_target

HERE = Path(__file__).parent


def build_model(path, size=32):
    """A convolution, two branches that gate each other, and a head."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def conv(source, result, channels, filters):
        kernel = rng.standard_normal((filters, channels, 3, 3)) / np.sqrt(9 * channels)
        weights.append(numpy_helper.from_array(kernel.astype(np.float32), f"{result}.weight"))
        nodes.append(
            helper.make_node("Conv", [source, f"{result}.weight"], [result], name=result, pads=[1] * 4)
        )

    conv("x", "stem", 3, 16)
    conv("stem", "value", 16, 24)
    conv("stem", "gate", 16, 24)
    nodes.append(
        helper.make_node("HardGlu", ["value", "gate"], ["glu"], name="glu", domain="com.example", slope=0.25)
    )
    conv("glu", "y", 24, 8)
    shapes = {"x": [1, 3, size, size], "y": [1, 8, size, size]}
    ports = {name: [helper.make_tensor_value_info(name, 1, shape)] for name, shape in shapes.items()}
    graph = helper.make_graph(nodes, "gated", ports["x"], ports["y"], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 10
    onnx.save(model, path)
    return [{"x": rng.standard_normal(shapes["x"]).astype(np.float32)} for _ in range(4)]


def main(folder):
    """The way through all stages; returns the exit status of the C application."""
    npuc.plugins.load(HERE / "hard_glu.py")
    samples = build_model(folder / "gated.onnx")
    graph = flow.network_to_quantize(folder / "gated.onnx")
    report = flow.check_model(folder / "gated.onnx", graph, flow.ImportOptions())
    print("import:", "checked" if report.passed else "WRONG")

    engine = FloatEngine(graph, ALL_TENSORS)
    runs = [engine.run(sample) | sample for sample in samples]
    ranges = {
        name: (min(float(run[name].min()) for run in runs), max(float(run[name].max()) for run in runs))
        for name in runs[0]
    }
    target = load_target("edge-4t")
    integers = flow.quantize_network(graph, ranges, target=target).graph
    exact = [IntegerEngine(integers, raw=True).run(sample)["y"] for sample in samples]
    signal = sum(float(np.square(run["y"]).sum()) for run in runs)
    noise = sum(float(np.square(run["y"] - y).sum()) for run, y in zip(runs, exact, strict=True))
    print(f"quantize: {10 * np.log10(signal / noise):.1f} dB")

    save_compiled(flow.compile_network(integers, target, name="gated").model, folder / "gated.npu")
    compiled = load_compiled(folder / "gated.npu")
    simulator = Simulator(compiled)
    same = all(
        np.array_equal(simulator.run(sample)["y"], y) for sample, y in zip(samples, exact, strict=True)
    )
    print("simulate:", "the bits of graph mode" if same else "OTHER BITS")

    export_c(compiled, (folder / "gated.npu").read_bytes(), folder / "app", samples[0])
    if not same or shutil.which("make") is None:
        return int(not same)
    subprocess.run(["make", "-s", "-C", str(folder / "app"), "CFLAGS=-O1"], check=True)
    done = subprocess.run(["./app", "sample"], cwd=folder / "app", capture_output=True, text=True)
    print("C:", (done.stdout or done.stderr).strip().splitlines()[-1])
    return done.returncode


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(Path(made)))
