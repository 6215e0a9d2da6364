"""The names of ONNX nodes serve wherever those of tensors do, and one name of a layer is shown everywhere.

The model of the fixtures is conv (c), relu (r), pool (p), flatten (f), classify (scores): conv and relu become one layer, r.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import UnknownTensorError
from npuc.flow import import_model, quantize_network
from npuc.ir import load_graph
from npuc.origins import Origins
from npuc.program.file import load_compiled
from npuc.quant.config import QuantizationConfig

RANGES = dict.fromkeys(("x", "r", "p", "f", "scores"), (-4.0, 4.0))


def test_a_network_is_cut_at_nodes(npuc: Any, model: Path) -> None:
    assert npuc("import", model, "--inputs", "relu", "--outputs", "flatten", "-o", "cut.mlir").status == 0
    graph = load_graph("cut.mlir")
    assert [port.name for port in (*graph.inputs, *graph.outputs)] == ["r", "f"]
    done = npuc("import", model, "--outputs", "flaten", "-o", "cut.mlir")
    assert done.status == 2 and "Did you mean 'f'" in done.err
    done = npuc(
        "compile",
        model,
        "--target",
        "edge-1t",
        "--random",
        "--inputs",
        "relu",
        "--outputs",
        "flatten",
        "-o",
        "cut.npu",
    )
    assert done.status == 0
    compiled = load_compiled("cut.npu")
    assert (compiled.inputs, compiled.outputs) == (("r",), ("f",))
    npuc("import", model, "-o", "whole.mlir")
    done = npuc("compile", "whole.mlir", "--target", "edge-1t", "--random", "--outputs", "r")
    assert done.status == 2 and "--outputs is for models that are imported" in done.err


def test_a_node_with_several_results_is_asked_which(npuc: Any, here: Path) -> None:
    info = [helper.make_tensor_value_info(name, 1, [1, n]) for name, n in (("x", 4), ("a", 2), ("b", 2))]
    node = helper.make_node("Split", ["x"], ["a", "b"], name="split", axis=1, num_outputs=2)
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), "s.onnx")
    done = npuc("import", "s.onnx", "--outputs", "split")
    assert (
        done.status == 2 and "the node 'split' makes 2 tensors. Name those that are wanted: a, b." in done.err
    )


def test_tensors_are_fetched_by_the_names_of_nodes_in_every_form(npuc: Any, model: Path) -> None:
    npuc("import", model, "-o", "m.mlir")
    graph = load_graph("m.mlir")
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    found = FloatEngine(graph, fetch=["relu", "r", "pool"], threads=1).run(x)
    np.testing.assert_array_equal(found["relu"], found["r"])
    done = npuc("run", "m.mlir", "--random", "--fetch", "relu,flatten", "-o", "o.npz")
    assert done.status == 0 and set(np.load("o.npz")) == {"scores", "relu", "flatten"}
    for name in ("conv", "c"):
        done = npuc("run", "m.mlir", "--random", "--fetch", name, "-o", "o.npz")
        assert (
            done.status == 2 and f"'{name}' is no longer there: it became part of the layer 'r'" in done.err
        )
    done = npuc("run", "m.mlir", "--random", "--fetch", "reluu", "-o", "o.npz")
    assert done.status == 2 and "The nearest names are: r." in done.err
    integers = quantize_network(graph, RANGES).graph
    assert set(IntegerEngine(integers, fetch=["pool"], threads=1).run(x)) == {"scores", "pool"}
    with pytest.raises(UnknownTensorError, match="became part of the layer 'r'"):
        IntegerEngine(integers, fetch=["conv"], threads=1)


def _float_layers(graph: Any, config: QuantizationConfig) -> list[str]:
    return [
        layer.name for layer in quantize_network(graph, RANGES, config).outcome.layers if not layer.integer
    ]


@pytest.mark.parametrize(
    ("pattern", "layers"),
    [
        ("conv", ["r"]),
        ("relu", ["r"]),
        ("c", ["r"]),
        ("co?v", ["r"]),
        ("classify", ["scores"]),
        ("x", ["r"]),
    ],
)
def test_configurations_name_nodes_fused_tensors_and_inputs(
    model: Path, pattern: str, layers: list[str]
) -> None:
    config = QuantizationConfig(layers={pattern: "float"})
    assert _float_layers(import_model(model), config) == layers


def test_a_layer_of_a_program_is_found_and_placed_by_the_name_of_its_node(npuc: Any, model: Path) -> None:
    done = npuc("compile", model, "--target", "edge-1t", "--random", "-o", "m.npu")
    assert done.status == 0
    wanted = npuc("objdump", "m.npu", "--layer", "r").out
    assert all(npuc("objdump", "m.npu", "--layer", name).out == wanted for name in ("conv", "relu", "c"))
    options = (
        "--target",
        "edge-1t",
        "--random",
        "--device",
        "conv=cpu",
        "-O",
        "0",
        "--island-threshold",
        "0",
    )
    done = npuc("compile", model, *options, "-o", "p.npu")
    assert done.status == 0 and "r: as asked" in done.out
    done = npuc("compile", model, "--target", "edge-1t", "--random", "--device", "cnv=cpu", "-o", "p.npu")
    assert done.status == 2 and "there is no layer 'cnv'" in done.err


def test_one_name_of_a_layer_in_all_commands(npuc: Any, model: Path) -> None:
    texts = [
        npuc("show", model).out,
        npuc("inspect", model, "--target", "edge-1t", "--all").out,
        npuc("quantize", model, "--random", "--keep-float", "conv,classify", "-o", "q.mlir").out,
    ]
    for text in texts:
        for line in text.splitlines():
            words = line.replace(",", " ").split()
            assert not {"relu", "classify"} & set(words[1:2] if words[:1] == ["float:"] else words[:1]), line


def test_names_survive_saving_and_quantizing_and_hostile_ones_harm_nothing(
    model: Path, tmp_path: Path
) -> None:
    graph = import_model(model)
    assert graph.origins.nodes["conv"] == "c" and graph.copy().origins == graph.origins
    assert quantize_network(graph, RANGES).graph.origins == graph.origins
    rings = Origins({"n": "a"}, {"a": "b", "b": "a"})
    assert rings.find("n", {"z"}) is None and rings.names_of({"z"}) == {}
    text = Path(model.with_name("odd.mlir"))
    from npuc.ir import save_graph

    save_graph(graph, text)
    odd = text.read_text().replace('top.nodes = ["conv", ', 'top.nodes = [7 : i64, "lonely", "conv", ')
    text.write_text(odd)
    assert load_graph(text).find("p") is not None
