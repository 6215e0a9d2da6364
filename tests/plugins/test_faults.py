"""What goes wrong in a plugin's code is the plugin's fault, with its file and line; its claims hold in every command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.cli.app import run_command
from npuc.errors import PluginFaultError
from npuc.ir import load_graph
from npuc.plugin_code import fault_of
from npuc.plugins import load, loading
from npuc.program import custom_kernels as kernels
from support.paths import PLUGINS


def gated_model(domain: str = "com.example") -> Any:
    """Two convolutions, a node of the plugin, a pool."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((4, 3, 3, 3)).astype(np.float32) / 4 for name in ("wa", "wb")}
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"], name="a", pads=[1] * 4),
        helper.make_node("Conv", ["x", "wb"], ["b"], name="b", pads=[1] * 4),
        helper.make_node("HardGlu", ["a", "b"], ["glu"], name="glu", domain=domain, slope=0.25),
        helper.make_node("MaxPool", ["glu"], ["y"], name="y", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 4, 4))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 10
    return model


def broken(
    name: str, place: str, to: Path, statement: str = 'raise RuntimeError("boom")'
) -> tuple[Path, int]:
    """An example plugin whose function fails in its first line, and that line."""
    lines = (PLUGINS / name).read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if re.match(rf"\s*(def|class) {place}\b", line))
    indent = re.match(r"\s*", lines[at])[0] + "    "  # type: ignore[index]
    lines.insert(at + 1, f"{indent}{statement}")
    (to / name).write_text("\n".join(lines) + "\n")
    if (PLUGINS / name).with_suffix(".c").exists():
        (to / name).with_suffix(".c").write_bytes((PLUGINS / name).with_suffix(".c").read_bytes())
    return to / name, at + 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(gated_model(), "model.onnx")
    onnx.save(gated_model("npuc.custom"), "custom.onnx")
    np.savez("data.npz", x=np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype(np.float32))
    return tmp_path


COMPILE = ("compile", "model.onnx", "--random", "--target", "edge-4t", "-o", "m.npu")


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("from_onnx", ("import", "model.onnx")),
        ("infer", ("import", "model.onnx")),
        ("from_custom", ("import", "custom.onnx", "--no-check")),
        ("forward", ("run", "model.onnx", "--random")),
        ("forward", ("import", "model.onnx")),
        ("to_integers", ("quantize", "model.onnx", "--random", "-o", "q.mlir")),
        ("numbers_of", COMPILE),
        ("hard_glu", ("analyze", "model.onnx", "--data", "data.npz", "--no-tune")),
    ],
)
def test_the_plugin_is_blamed_with_its_line(
    folder: Path, capsys: Any, place: str, command: tuple[str, ...]
) -> None:
    plugin, line = broken("hard_glu.py", place, folder)
    assert run_command([*command, "--plugin", str(plugin)]) == 2
    words = capsys.readouterr().err.strip().splitlines()[-1]
    assert words.startswith(f"error[E603]: plugin '{plugin}': its code failed at line {line} of hard_glu.py")
    assert f"in {place}: RuntimeError: boom" in words
    assert not list(folder.glob("*.mlir")) and not list(folder.glob("*.npu"))


def test_a_kernel_that_fails_in_the_simulator(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_command([*COMPILE, "--plugin", str(PLUGINS / "hard_glu.py"), "-q"]) == 0
    monkeypatch.setitem(kernels.KERNELS["hard_glu"].function.__globals__, "NUMPY", ())
    capsys.readouterr()
    assert run_command(["run", "m.npu", "--random"]) == 2
    words = capsys.readouterr().err
    assert "error[E603]" in words and "in hard_glu: IndexError: tuple index out of range" in words


@pytest.mark.parametrize("place", ["claims", "compile_pools", "run"])
def test_an_accelerator_that_fails(folder: Path, capsys: Any, place: str) -> None:
    plugin, line = broken("pooling_engine.py", place, folder)
    arguments = [*COMPILE, "--plugin", str(PLUGINS / "hard_glu.py"), "--plugin", str(plugin), "-q"]
    status = run_command(arguments)
    if place == "run":
        assert status == 0
        status = run_command(["run", "m.npu", "--random"])
    assert status == 2
    assert f"error[E603]: plugin '{plugin}': its code failed at line {line} of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "place", "command"),
    [
        ("house_rules.py", "narrow_softmax", ("import", "plain.onnx")),
        (
            "house_rules.py",
            "propose",
            ("quantize", "plain.onnx", "--data", "data.npz", "--ladder", "wide-outputs", "-o", "q.mlir"),
        ),
        ("glu_subgraphs.py", "slope", ("import", "spelled.onnx")),
        (
            "evaluation.py",
            "saturation",
            ("eval", "plain.onnx", "--data", "labelled.npz", "--metric", "saturation"),
        ),
        (
            "evaluation.py",
            "saturation",
            ("eval", "plain.onnx", "--data", "labelled.npz", "--metric", "saturation", "--workers", "2"),
        ),
    ],
)
def test_rules_steps_and_metrics(
    folder: Path, capsys: Any, name: str, place: str, command: tuple[str, ...]
) -> None:
    model = gated_model()
    del model.graph.node[2]
    model.graph.node[2].input[0] = "a"
    onnx.save(model, "plain.onnx")
    model.graph.node.insert(2, helper.make_node("HardSigmoid", ["b"], ["gate"], name="gate"))
    model.graph.node.insert(3, helper.make_node("Mul", ["a", "gate"], ["glu"], name="glu"))
    model.graph.node[4].input[0] = "glu"
    onnx.save(model, "spelled.onnx")
    data = np.load("data.npz")["x"]
    np.savez("labelled.npz", x=data, labels=np.zeros(4, np.int64))
    for other in ("hard_glu.py", "hard_glu.c"):
        (folder / other).write_bytes((PLUGINS / other).read_bytes())
    plugin, line = broken(name, place, folder)
    assert run_command([*command, "--plugin", str(plugin)]) == 2
    words = capsys.readouterr().err
    assert (
        f"plugin '{plugin}': its code failed at line {line} of {name}, in {place}: RuntimeError: boom"
        in words
    )


def test_a_plugin_that_leaves_or_misses_a_file(folder: Path, capsys: Any) -> None:
    for statement, words in (
        ("raise SystemExit(0)", "SystemExit: 0"),
        ('open("missing.txt")', "FileNotFoundError"),
        ("raise KeyError", "in from_onnx: KeyError"),
    ):
        loading._LOADED.clear()
        from npuc.frontend.onnx import registry

        if ("com.example", "HardGlu") in registry.RULES:
            registry.RULES.remove(("com.example", "HardGlu"))
        plugin = folder / f"leaves{len(words)}.py"
        plugin.write_text(
            "from npuc.plugins.api import onnx_rule\n\n"
            '@onnx_rule("HardGlu", domain="com.example")\n'
            f"def from_onnx(ctx):\n    {statement}\n"
        )
        assert run_command(["import", "model.onnx", "--plugin", str(plugin)]) == 2
        told = capsys.readouterr().err
        assert "error[E603]" in told and f"line 5 of {plugin.name}" in told and words in told
        registry.RULES.remove(
            *(key for key, rule in registry.RULES.items() if rule.__module__.startswith("npuc_plugin"))
        )


def test_what_a_plugin_says_on_purpose_is_no_fault(folder: Path, capsys: Any) -> None:
    plugin, _ = broken("hard_glu.py", "infer", folder, 'require(False, "not on Mondays")')
    assert run_command(["import", "model.onnx", "--plugin", str(plugin)]) == 2
    assert "error[E201]" in (told := capsys.readouterr().err) and "not on Mondays" in told


def test_programs_get_the_error_too(folder: Path) -> None:
    from npuc import flow

    plugin, line = broken("hard_glu.py", "from_custom", folder)
    load(plugin)
    with pytest.raises(
        PluginFaultError, match=f"line {line} of hard_glu.py, in from_custom: RuntimeError: boom"
    ):
        flow.import_model("custom.onnx")
    assert fault_of(ValueError("of nobody")) is None


@pytest.mark.parametrize("form", ["custom.onnx", "custom.mlir"])
def test_claims_hold_in_compile(folder: Path, capsys: Any, form: str) -> None:
    if form == "custom.mlir":
        # Imported without the plugin, from a file that states the shape of what the node makes.
        model = gated_model("npuc.custom")
        model.graph.value_info.append(helper.make_tensor_value_info("glu", TensorProto.FLOAT, (1, 4, 8, 8)))
        onnx.save(model, "custom.onnx")
        assert run_command(["import", "custom.onnx", "--no-check", "-q"]) == 0
        assert [op.name for op in load_graph(Path(form)).ops if op.name == "top.onnx"]
    capsys.readouterr()
    plugin = ["--plugin", str(PLUGINS / "hard_glu.py")]
    assert run_command(["compile", form, *COMPILE[2:], *plugin, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["device"] for one in found["subgraphs"]] == ["convert", "npu", "convert"]


CLAIM_ONLY = """
import numpy as np
from npuc.plugins.api import TopOp, claims, float_forward, operand, result, top_op

@top_op
class ClaimOnly(TopOp):
    name = "top.claim_only"
    a = operand()
    b = operand()
    y = result()

    def infer(self):
        return [self.a.type]

@float_forward(ClaimOnly)
def forward(arrays, attributes):
    return [np.minimum(*arrays)]

@claims("npuc.custom", "ClaimOnly")
def claim(op, graph):
    return ClaimOnly.make(*op.operands)
"""


@pytest.mark.parametrize(
    "words", [["run", "custom.mlir", "-o", "y.npz"], ["diff", "custom.mlir", "custom.mlir", "--limit", "0"]]
)
def test_claims_hold_for_a_network_that_was_imported_without_the_plugin(
    folder: Path, capsys: Any, words: list[str]
) -> None:
    """No kernel is registered for the custom op: only the op that stands for it computes."""
    model = gated_model("npuc.custom")
    model.graph.node[2].op_type = "ClaimOnly"
    del model.graph.node[2].attribute[:]
    model.graph.value_info.append(helper.make_tensor_value_info("glu", TensorProto.FLOAT, (1, 4, 8, 8)))
    onnx.save(model, "custom.onnx")
    (folder / "claim.py").write_text(CLAIM_ONLY)
    assert run_command(["import", "custom.onnx", "--no-check", "-q", "-o", "custom.mlir"]) == 0
    data = ["--input" if words[0] == "run" else "--data", "data.npz"]
    assert run_command([*words, *data, "--plugin", "claim.py"]) == 0, capsys.readouterr().err
    if words[0] == "run":
        model.graph.node[2].op_type, model.graph.node[2].domain = "Min", ""
        onnx.save(model, "plain.onnx")
        assert run_command(["run", "plain.onnx", *data, "-o", "plain.npz"]) == 0
        np.testing.assert_array_equal(np.load("y.npz")["y"], np.load("plain.npz")["y"])


def test_an_accelerator_takes_what_it_claims_in_compile(folder: Path, capsys: Any) -> None:
    plugins = [
        word for name in ("hard_glu.py", "pooling_engine.py") for word in ("--plugin", str(PLUGINS / name))
    ]
    assert run_command([*COMPILE, *plugins]) == 0
    told = capsys.readouterr().out
    assert "the accelerator 'pooling_engine': 1 layer" in told
    assert "y: the accelerator 'pooling_engine' takes it" in told
    assert run_command(["run", "m.npu", "--random"]) == 0


def test_subgraph_rules_that_match_nothing_are_told(folder: Path, capsys: Any) -> None:
    plugin = folder / "rules.py"
    plugin.write_text(
        "from npuc.plugins.api import onnx_pattern, onnx_subgraph\n\n"
        'onnx_subgraph("/blocks.*/glu", "com.acme", "Glu")\n'
        'onnx_pattern("com.acme", "Gate(a, b)", "g = Sigmoid(b)\\ny = Mul(a, g)")\n'
        'onnx_pattern("com.acme", "Pool(a)", "y = MaxPool(a)", attributes=lambda nodes: None)\n'
    )
    assert run_command(["import", "model.onnx", "--no-check", "--plugin", str(plugin)]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert (
        "the subgraph rule for com.acme:Glu by the name '/blocks.*/glu' takes nothing: no node has a name below"
        in told
    )
    assert (
        "com.acme:Gate by the pattern that ends in Mul takes nothing: nothing in this model computes it"
        in told
    )
    assert (
        "com.acme:Pool by the pattern that ends in MaxPool takes nothing: its attributes leave the one match"
        in told
    )
