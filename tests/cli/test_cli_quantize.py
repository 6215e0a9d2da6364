"""`npuc quantize`, `npuc run` on integer networks, and `npuc diff`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

from npuc import lang
from npuc.calib.table import load_table
from npuc.ir import save_graph
from support.networks.detector import data as samples
from support.networks.detector import detector


@pytest.fixture
def data(here: Path) -> Path:
    np.savez("data.npz", x=np.random.default_rng(0).random((12, 3, 8, 8), np.float32))
    return here / "data.npz"


@pytest.fixture
def integer(npuc: Any, program: Path, data: Path) -> Path:
    done = npuc("quantize", program, "--data", data, "--no-tune", "-o", "int.mlir", "-q")
    assert done.status == 0, done.err
    return Path("int.mlir")


def test_a_model_is_imported_calibrated_and_quantized(npuc: Any, model: Path, data: Path) -> None:
    done = npuc("quantize", model, "--data", data, "--save-table", "t.cali", "-o", "q.mlir")
    assert done.status == 0, done.err
    assert "integer, 0 float" in done.out and "int8" in done.out and "528 bytes -> " in done.out
    for name in ("q.mlir", "q.safetensors", "q.quant.yaml", "t.cali"):
        assert Path(name).is_file(), name
    assert "npu.conv" in Path("q.mlir").read_text()
    assert "ranges by" in done.err


def test_the_worst_slice_is_printed_and_a_lost_one_is_named_with_a_remedy_that_works(
    npuc: Any, here: Path
) -> None:
    save_graph(detector(), here / "detector.mlir")
    np.savez("boxes.npz", x=np.concatenate([sample["x"] for sample in samples(12)]))
    asked = ("quantize", "detector.mlir", "--data", "boxes.npz", "-o", "q.mlir")
    done = npuc(*asked)
    assert done.status == 0 and "accuracy worst slice scores (in y) 4" in done.out, done.out
    assert "above its error" not in done.err and "--keep-float" not in done.err
    lost = npuc(*asked, "--scheme", "int8")
    assert lost.status == 0 and "'scores' of the output 'y' is only 0." in lost.err, lost.err
    assert "'joined' has one scale" in lost.err and "--keep-float joined" in lost.err
    remedy = re.search(r"(--scheme \S+) gives all slices", lost.err)
    assert remedy is not None
    for words in (remedy[1].split(), ["--scheme", "int8", "--keep-float", "joined"]):
        helped = npuc(*asked, *words)
        assert helped.status == 0 and "above its error" not in helped.err, helped.err
    found = json.loads(npuc(*asked, "--scheme", "int8", "--json").out)
    assert [one["slice"] for one in found["accuracy"]["slices"] if one["lost"]] == ["scores"]
    assert found["accuracy"]["warnings"] and found["crowded"]


def test_a_table_gives_the_same_bytes_again(npuc: Any, model: Path, data: Path) -> None:
    done = npuc("quantize", model, "--data", data, "--no-tune", "--save-table", "t.cali", "-o", "q.mlir")
    assert done.status == 0, done.err
    again = npuc("quantize", model, "--table", "t.cali", "-o", "r.mlir")
    assert again.status == 0, again.err
    assert Path("r.safetensors").read_bytes() == Path("q.safetensors").read_bytes()


def test_ranges_of_scaled_channels_are_said_to_be_of_another_network(npuc: Any, here: Path) -> None:
    rng = np.random.default_rng(2)
    sizes = np.exp(np.linspace(-4, 4, 8)).astype(np.float32)
    first, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 3, 3, 3), (4, 8, 3, 3)))
    hidden = lang.conv(lang.input("x", (1, 3, 8, 8)), first * sizes[:, None, None, None], relu=True, name="a")
    graph = lang.build({"y": lang.conv(hidden, second / sizes[None, :, None, None], name="b")})
    save_graph(graph, here / "uneven.mlir")
    np.savez("data.npz", x=rng.standard_normal((24, 3, 8, 8)).astype(np.float32))
    asked = ("quantize", "uneven.mlir", "--scheme", "pow2", "--data", "data.npz", "--save-table", "t.cali")
    done = npuc(*asked)
    assert done.status == 0 and "quick steps" in done.err, done.err
    assert "t.cali: its ranges are those of the network whose channels the ladder scaled" in done.err
    for name in ("t.cali", "uneven.int.quant.yaml"):
        assert "do not fit the model" in Path(name).read_text(), name
    plain = npuc(*asked, "--no-tune")
    assert plain.status == 0 and "scaled" not in plain.err + Path("t.cali").read_text()
    assert "makes the same of the same ranges\n" in Path("uneven.int.quant.yaml").read_text()


def test_one_method_does_not_compete(npuc: Any, model: Path, data: Path) -> None:
    done = npuc(
        "quantize", model, "--data", data, "--method", "auto", "--save-table", "t.cali", "-o", "q.mlir"
    )
    assert done.status == 0, done.err
    assert "ranges by" not in done.err
    assert len({entry.method for entry in load_table(Path("t.cali")).values()}) > 1


def test_random_ranges_are_for_smoke_runs(npuc: Any, program: Path) -> None:
    done = npuc("quantize", program, "--random", "-o", "q.mlir", "--json")
    assert done.status == 0 and "smoke run" in done.err
    result = json.loads(done.out)
    assert result["integer"] == len(result["layers"]) and result["bytes_after"] < result["bytes_before"]


@pytest.mark.parametrize("scheme", ["int16", "uint8", "pow2", "int4-weights"])
def test_schemes_by_name(npuc: Any, program: Path, data: Path, scheme: str) -> None:
    assert npuc("quantize", program, "--data", data, "--scheme", scheme, "-o", "q.mlir", "-q").status == 0
    assert yaml.safe_load(Path("q.quant.yaml").read_text())["scheme"] == scheme
    assert npuc("run", "q.mlir", "--random").status == 0


def test_shortcuts_and_the_effective_configuration(npuc: Any, program: Path, data: Path) -> None:
    done = npuc(
        "quantize", program, "--data", data, "--first-last", "int16", "--keep-float", "scores", "-o", "q.mlir"
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "float" in done.out and "as asked" in done.out
    effective = yaml.safe_load(Path("q.quant.yaml").read_text())
    assert effective["layers"]["scores"] == "float" and "int16" in effective["layers"].values()
    again = npuc("quantize", program, "--data", data, "--config", "q.quant.yaml", "-o", "r.mlir")
    assert again.status == 0, again.err
    assert Path("r.mlir").read_text().replace("r.safetensors", "q.safetensors") == Path("q.mlir").read_text()


def test_a_target_decides_the_arithmetic(npuc: Any, program: Path, data: Path) -> None:
    done = npuc("quantize", program, "--data", data, "--target", "dpuczdx8g-b4096-like", "-o", "q.mlir")
    assert done.status == 0, done.err
    assert 'kind = "pow2"' in Path("q.mlir").read_text()
    done = npuc(
        "quantize", program, "--data", data, "--target", "aries-like", "--scheme", "int16", "-o", "q.mlir"
    )
    assert done.status == 2 and "aries-like" in done.err and "i16" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no ranges to quantize with"),
        (["--random", "--table", "t.cali"], "contradict"),
        (["--random", "--scheme", "int9"], "no scheme 'int9'"),
        (["--random", "--keep-float", "scroes"], "no layer 'scroes'.*'scores'"),
        (["--random", "--first-last", "int17"], "no scheme 'int17'"),
        (["--random", "--target", "nonsense"], "nonsense"),
        (["--random", "--config", "missing.yaml"], "missing.yaml"),
        (["--random", "-o", "q.onnx"], "does not end in .mlir"),
        (["--random", "-o", "model.mlir"], "replace the network"),
        (["--table", "missing.cali"], "missing.cali"),
    ],
)
def test_mistakes_are_named(npuc: Any, program: Path, arguments: list[str], words: str) -> None:
    import re

    done = npuc("quantize", program, *arguments)
    assert done.status == 2 and re.search(words, done.err), done.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [("scores", "scroes", "no tensor of the network"), ("max", "nan", "line")],
)
def test_a_bad_table_is_refused(npuc: Any, program: Path, data: Path, old: str, new: str, words: str) -> None:
    assert npuc("calibrate", program, "--data", data, "-o", "t.cali", "-q").status == 0
    lines = Path("t.cali").read_text().splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("scores"))
    if old == "scores":
        lines[row] = lines[row].replace(old, new)
    else:
        parts = lines[row].split()
        lines[row] = " ".join([*parts[:3], new, parts[4]])
    Path("t.cali").write_text("\n".join(lines))
    done = npuc("quantize", program, "--table", "t.cali", "-o", "q.mlir")
    assert done.status == 2 and words in done.err


def test_a_table_that_lacks_a_tensor_is_refused(npuc: Any, program: Path, data: Path) -> None:
    assert npuc("calibrate", program, "--data", data, "-o", "t.cali", "-q").status == 0
    lines = [line for line in Path("t.cali").read_text().splitlines() if not line.startswith("scores")]
    Path("t.cali").write_text("\n".join(lines))
    assert "scores" not in load_table("t.cali")
    done = npuc("quantize", program, "--table", "t.cali", "-o", "q.mlir")
    assert done.status == 2 and "no range for the tensor 'scores'" in done.err


def test_an_integer_network_is_not_quantized_again(npuc: Any, integer: Path) -> None:
    done = npuc("quantize", integer, "--random", "-o", "q.mlir")
    assert done.status == 2 and "integer network already" in done.err


def test_running_an_integer_network(npuc: Any, program: Path, integer: Path, data: Path) -> None:
    for name, source, more in (
        ("f", program, []),
        ("i", integer, []),
        ("r", integer, ["--raw", "--threads", 2]),
    ):
        done = npuc("run", source, "-i", data, "-o", f"{name}.npz", *more)
        assert done.status == 0, done.err
    exact, reals, raw = (np.load(f"{name}.npz")["scores"] for name in "fir")
    assert raw.dtype == np.int8 and reals.dtype == np.float32
    assert np.abs(exact - reals).max() < 0.05 * np.abs(exact).max()
    assert npuc("run", integer, "-i", data, "--dump-all-tensors", "--raw", "-o", "all.npz").status == 0
    with np.load("all.npz") as everything:
        assert everything["r"].dtype == np.int8 and everything["x"].dtype == np.float32
    done = npuc("run", program, "--random", "--raw")
    assert done.status == 2 and "--raw is for integer networks" in done.err
    done = npuc("run", integer, "--random", "--fetch", "rr", "-o", "f.npz")
    assert done.status == 2 and "'rr'" in done.err


def test_diff_lists_the_worst_first_and_draws(npuc: Any, program: Path, integer: Path, data: Path) -> None:
    done = npuc("diff", program, integer, "--data", data, "--isolated", "--plot", "p.svg", "--json")
    assert done.status == 0, done.err
    layers = json.loads(done.out)["layers"]
    figures = [entry["accumulated"]["sqnr"] for entry in layers]
    assert figures == sorted(figures) and figures[0] > 15
    assert {"scores", "r"} <= {entry["name"] for entry in layers}
    assert all(entry["isolated"]["sqnr"] > 15 for entry in layers)
    assert Path("p.svg").read_text().startswith("<svg")
    done = npuc("diff", program, integer, "-i", data, "--limit", 1)
    assert done.status == 0 and "--limit 0 shows all" in done.out
    assert npuc("diff", program, integer, "--random", "--sort", "order").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model.mlir", "int.mlir"], "missing, or given twice"),
        (["model.mlir", "int.mlir", "--random", "--data", "data.npz"], "given twice"),
        (["int.mlir", "model.mlir", "--random", "--isolated"], "int.mlir is an integer one"),
        (["model.mlir", "model.mlir", "--random", "--isolated"], "model.mlir is a float one"),
        (["model.mlir", "int.mlir", "--random", "--sort", "isolated"], "needs --isolated"),
    ],
)
def test_diff_refuses(npuc: Any, integer: Path, program: Path, arguments: list[str], words: str) -> None:
    done = npuc("diff", *arguments)
    assert done.status == 2 and words in done.err


def test_a_quantized_model_keeps_its_quantization_or_is_forced(npuc: Any, here: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    constants = {"s": np.float32(0.02), "z": np.uint8(128)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["rq"]),
        helper.make_node("DequantizeLinear", ["rq", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 6))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "m.onnx")
    done = npuc("quantize", "m.onnx", "-o", "q.mlir")
    assert done.status == 0, done.err
    assert "the model's own" in done.out and "!npu.q<ui8, 0.0199" in Path("q.mlir").read_text()
    done = npuc("quantize", "m.onnx", "--random", "-o", "q.mlir")
    assert done.status == 2 and "--force-float" in done.err
    done = npuc("quantize", "m.onnx", "--force-float", "-o", "q.mlir")
    assert done.status == 2 and "no ranges" in done.err
    done = npuc("quantize", "m.onnx", "--force-float", "--random", "-o", "q.mlir")
    assert done.status == 0 and "!npu.q<i8" in Path("q.mlir").read_text()


@pytest.mark.parametrize("scheme", ["bf16", "f16", "mx9"])
def test_short_floats_need_no_data(npuc: Any, program: Path, scheme: str) -> None:
    done = npuc("quantize", program, "--scheme", scheme, "-o", "q.mlir")
    assert done.status == 0, done.err
    assert f" {scheme}, " in done.out and "none needed" in done.out
    assert npuc("run", "q.mlir", "--random").status == 0
    found = npuc("diff", program, "q.mlir", "--random", "--isolated", "--json")
    assert found.status == 0, found.err
    assert {layer["type"] for layer in json.loads(found.out)["layers"]} <= {scheme, "f32"}
    mixed = npuc("quantize", program, "--scheme", scheme, "--first-last", "int8", "-o", "r.mlir")
    assert mixed.status != 0 and "no ranges" in mixed.err


def test_the_first_and_the_last_layer_may_be_short_floats(npuc: Any, program: Path, data: Path) -> None:
    done = npuc("quantize", program, "--data", data, "--first-last", "bf16", "--json", "-o", "q.mlir")
    assert done.status == 0, done.err
    types = [layer["type"] for layer in json.loads(done.out)["layers"]]
    assert types.count("bf16") == 2 or types.count("bf16") == 1 == len(types)
    assert npuc("run", "q.mlir", "--random").status == 0
