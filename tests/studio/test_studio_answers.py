"""What the studio answers is what the commands of npuc say."""

from __future__ import annotations

import base64
import gzip
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

from npuc.cli.app import app
from npuc.errors import UsageError
from npuc.flow import network_to_quantize
from npuc.ir import load_graph
from npuc.quant.mixed_precision.sensitivity import tensor_types
from npuc.studio.export import _key, export
from npuc.studio.graphs import GraphNode, StudioGraph, put_in_scopes
from npuc.studio.instructions import WINDOW
from npuc.studio.maps import channel_map, constant_record
from npuc.studio.networks import graph_of_network
from npuc.studio.project import Project
from npuc.studio.sensitivity import SAMPLES
from npuc.studio.studio import Sample, Studio


def graph_named(names: list[str]) -> StudioGraph:
    drawn = StudioGraph("float", [GraphNode(name, "conv", "1xf32", (name,)) for name in names])
    put_in_scopes(drawn)
    return drawn


def embedded_answers(page: str) -> dict[str, Any]:
    """What an exported page can be asked, unpacked as the page does it."""
    data = json.loads(page.partition('id="answers">')[2].partition("</script>")[0])
    return {key: json.loads(gzip.decompress(base64.b64decode(text))) for key, text in data["answers"].items()}


def path_of(drawn: StudioGraph, node: GraphNode) -> list[str]:
    path, at = [], node.scope
    while at > 0:
        path.append(drawn.scopes[at].name)
        at = drawn.scopes[at].parent
    return path[::-1]


def test_files_are_listed_by_what_they_contain(studio_files: Path):
    kinds = {file.name: file.kind for file in Project(studio_files).files()}
    assert kinds == {
        "digits.mlir": "network",
        "digits.npu": "program",
        "digits.onnx": "model",
        "digits_samples.npz": "tensors",
    }


def test_scopes_come_from_names_and_lone_ones_dissolve():
    drawn = graph_named(
        ["/a/0/conv", "/a/0/relu", "/a/1/conv", "/b/deep/er/x", "/b/deep/er/y", "/c/d/only", "top"]
    )
    paths = [path_of(drawn, node) for node in drawn.nodes]
    assert paths == [["a", "0"], ["a", "0"], ["a"], ["b/deep/er"], ["b/deep/er"], [], []]
    assert [
        path_of(graph_named(["m.0.conv", "m.0.bn", "m.1"]), node) for node in graph_named(["m.0.conv"]).nodes
    ]


def test_no_scope_has_more_members_than_a_screen_takes():
    drawn = graph_named([f"layer{number}" for number in range(10_000)])
    members: dict[int, int] = {}
    for node in drawn.nodes:
        members[node.scope] = members.get(node.scope, 0) + 1
    for scope in drawn.scopes[1:]:
        members[scope.parent] = members.get(scope.parent, 0) + 1
    assert max(members.values()) <= 120 and sum(len(path_of(drawn, node)) for node in drawn.nodes) == 10_000
    order = [node.scope for node in drawn.nodes]
    assert order == sorted(order)


def test_a_graph_has_every_layer_and_edge_of_the_network(studio_files: Path):
    network = network_to_quantize(studio_files / "digits.onnx")
    drawn = graph_of_network(network, "float")
    convolutions = [node for node in drawn.nodes if node.kind == "conv"]
    assert len(convolutions) == 5 and convolutions[0].macs == 16 * 8 * 8 * 9
    adds = [number for number, node in enumerate(drawn.nodes) if node.kind == "add"]
    assert all(sum(end == number for _, end, _ in drawn.edges) == 2 for number in adds)
    assert drawn.nodes[0].device == "input" and drawn.nodes[-1].device == "output"
    assert json.dumps(drawn.as_json())


def test_the_original_form_is_what_the_file_states(studio_files: Path):
    """Nodes, edges, types and constants are those of the protobuf; the protobuf itself is the judge."""
    graph = onnx.load(studio_files / "digits.onnx").graph
    drawn = Studio(Project(studio_files)).graph("digits.onnx", "original")
    inner = [node for node in drawn.nodes if node.device not in ("input", "output")]
    assert [(node.name, node.kind, node.tensors) for node in inner] == [
        (node.name, node.op_type, tuple(node.output)) for node in graph.node
    ]
    makers = {name: node.name for node in graph.node for name in node.output} | {
        port.name: port.name for port in graph.input
    }
    expected = {(makers[name], node.name) for node in graph.node for name in node.input if name in makers}
    expected |= {(makers[port.name], port.name) for port in graph.output}
    assert {(drawn.nodes[a].name, drawn.nodes[b].name) for a, b, _ in drawn.edges} == expected
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in graph.initializer}
    assert sum(node.parameters for node in inner) == sum(
        sizes.get(name, 0) for node in graph.node for name in node.input
    )
    conv = next(node for node in graph.node if node.op_type == "Conv")
    kernel = next(one for one in conv.attribute if one.name == "kernel_shape")
    shown = next(node for node in inner if node.name == conv.name)
    assert shown.attributes["kernel_shape"] == ", ".join(map(str, kernel.ints))
    weight = next(tensor for tensor in graph.initializer if tensor.name == conv.input[1])
    operands = Studio(Project(studio_files)).node("digits.onnx", "original", conv.output[0])["operands"]
    values = onnx.numpy_helper.to_array(weight)
    assert operands[1]["name"] == weight.name and operands[1]["low"] == float(values.min())
    assert sum(operands[1]["histogram"]) == values.size


def test_the_original_form_needs_no_import(project_folder: Path):
    """An operator that no importer knows, a tensor without a type and one with named sizes are shown as they are."""
    sizes = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, ["batch", 3, None])
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    nodes = [
        onnx.helper.make_node("Mystery", ["x"], ["between"], domain="nobody", level=3, words=["a", "b"]),
        onnx.helper.make_node("Relu", ["between"], ["y"]),
    ]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "odd", [sizes], [output]))
    onnx.save(model, project_folder / "odd.onnx")
    studio = Studio(Project(project_folder))
    drawn = studio.graph("odd.onnx", "original").as_json()
    assert [(node["name"], node.get("type", "")) for node in drawn["nodes"]] == [
        ("x", "batchx3x?xf16"), ("between", ""), ("y", "1xf32"), ("y", "1xf32")
    ]  # fmt: skip
    assert drawn["nodes"][1]["attributes"] == {"level": "3", "words": "a, b", "domain": "nobody"}
    assert studio.node("odd.onnx", "original", "y")["operands"] == [
        {"field": "", "name": "between", "type": ""}
    ]
    with pytest.raises(UsageError, match="no layer makes"):
        studio.node("odd.onnx", "original", "nothing")


def test_numbers_are_those_of_diff(client, studio_files: Path):
    client.enter()
    answer = client.json("/api/compare?reference=digits.onnx&other=digits.mlir&sample=digits_samples.npz")
    sample = studio_files / "digits_samples.npz"
    command = [
        "diff",
        str(studio_files / "digits.onnx"),
        str(studio_files / "digits.mlir"),
        "--data",
        str(sample),
    ]
    result = CliRunner().invoke(
        app, [*command, "--max-count", "1", "--isolated", "--sort", "order", "--json"]
    )
    expected = json.loads(result.stdout)["layers"]
    assert [row["name"] for row in answer["layers"]] == [row["name"] for row in expected]
    for row, other in zip(answer["layers"], expected, strict=True):
        assert row["cosine"] == other["accumulated"]["cosine"] and row["saturation"] == other["saturation"]
        assert float(row["sqnr"]) == float(other["accumulated"]["sqnr"])
        assert float(row["isolated"]) == float(other["isolated"]["sqnr"])


def test_sensitivity_is_what_one_rounding_costs_at_the_outputs(client, studio_files: Path):
    """The judge is ONNX Runtime on inputs that are rounded here, and nothing else is."""
    studio, sample = Studio(Project(studio_files)), Sample("digits_samples.npz")
    answer = studio.sensitivity(["digits.mlir", "digits.onnx"], sample)
    found = {layer["name"]: layer["sensitivity"] for layer in answer["layers"]}
    kind = tensor_types(load_graph(studio_files / "digits.mlir"))["image"]
    with np.load(studio_files / "digits_samples.npz") as samples:
        images = next(samples[name] for name in samples if samples[name].ndim == 4)[:SAMPLES]
    low, high = kind.dtype.limits
    rounded = (
        np.clip(np.rint(images / kind.scale) + kind.zero_point, low, high) - kind.zero_point
    ) * kind.scale
    session = onnxruntime.InferenceSession(studio_files / "digits.onnx", providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    exact, other = (
        np.concatenate([session.run(None, {name: one[None].astype(np.float32)})[0] for one in batch])
        for batch in (images, rounded)
    )
    assert abs(found["image"] - 10 * np.log10((exact**2).sum() / ((other - exact) ** 2).sum())) < 1.5
    # Beside a program, or alone, the float network is probed in int8 with ranges of the sample.
    alone = studio.sensitivity(["digits.npu", "digits.onnx"], sample)
    assert (
        answer["types"] == "digits.mlir" and alone["types"] == "int8" and len(alone["layers"]) == len(found)
    )
    client.enter()
    query = "/api/sensitivity?other=digits.mlir&reference=digits.onnx&sample=digits_samples.npz"
    assert client.json(query) == answer
    assert "float network" in client.refusal("/api/sensitivity?other=digits.mlir")[1]


def test_a_tensor_is_shown_as_both_have_it(studio_files: Path):
    studio = Studio(Project(studio_files))
    answer = studio.tensor("digits.onnx", "digits.npu", Sample("digits_samples.npz"), "stem/relu", 3)
    assert answer["shape"] == [1, 16, 8, 8] and answer["channels"] == 16 and answer["channel"] == 3
    reference, ours = (np.array(part) for part in answer["maps"])
    assert reference.shape == ours.shape == (8, 8) and 0 < np.abs(reference - ours).max() < 0.1
    assert len(answer["channel_errors"]) == 16 and sum(answer["histograms"][1]) == 16 * 64
    assert (
        studio.tensor("digits.onnx", "digits.npu", Sample("digits_samples.npz"), "stem/relu", 99)["channel"]
        == 15
    )


@pytest.mark.parametrize(
    "shape", [(), (5,), (2, 3), (1, 7, 9), (1, 4, 300, 2), (1, 0, 4, 4), (2, 3, 4, 5, 6)]
)
def test_every_shape_has_a_map(shape):
    if 0 in shape:
        return
    plane = channel_map(np.ones(shape), 0)
    assert plane.ndim == 2 and plane.size and max(plane.shape) <= 150


@pytest.mark.parametrize(
    "values", [[1e6, np.nextafter(1e6, 2e6)], [0.0, 5e-324], [-3.0, -3.0], [1e308, -1e308]]
)
def test_numbers_that_hardly_differ_have_a_histogram(values):
    record = constant_record(np.array(values))
    assert sum(record["histogram"]) == 2 and record["low"] == min(values)


def test_time_is_that_of_profile_and_placement_that_of_inspect(client):
    client.enter()
    answer = client.json("/api/time?file=digits.npu")
    assert answer["summary"]["cycles"] == sum(layer["cycles"] for layer in answer["layers"])
    status, words = client.refusal("/api/time?file=digits.onnx")
    assert status == 400 and "not compiled" in words
    placed = client.json("/api/placement?file=digits.onnx&target=edge-4t")
    assert placed["npu_layers"] > 5 and placed["cpu_layers"] == 0


def test_a_file_that_is_written_again_is_read_again(client, project_folder: Path):
    client.enter()
    before = client.json("/api/graph?file=digits.onnx")
    state = client.json("/api/project")["state"]
    (project_folder / "digits.onnx").write_bytes(
        (project_folder / "digits.mlir").read_bytes()[:0] + b"broken"
    )
    assert client.json("/api/project")["state"] != state
    assert client.refusal("/api/graph?file=digits.onnx")[0] == 400
    assert before["nodes"]


def test_broken_files_are_told_and_nothing_ends(client, project_folder: Path):
    client.enter()
    for name, content in (
        ("a.onnx", b""),
        ("b.npu", b"\x7fELF" + bytes(60)),
        ("c.mlir", b"builtin.module {"),
    ):
        (project_folder / name).write_bytes(content)
        assert client.refusal(f"/api/graph?file={name}")[0] == 400
    assert client.refusal("/api/graph")[0] == 400 and client.refusal("/api/graph?file=none.onnx")[0] == 404
    assert client.refusal("/api/graph?file=digits.onnx&form=other")[0] == 400
    assert client.json("/api/project")["name"] == "project"


def test_two_tabs_do_not_overwrite_each_other(client, project_folder: Path):
    client.enter()
    first = client.json("/api/text", "PUT", {"file": "c.yaml", "text": "scheme: int8\n", "digest": ""})
    assert client.json("/api/text?file=c.yaml") == {"text": "scheme: int8\n", "digest": first["digest"]}
    second = client.json(
        "/api/text", "PUT", {"file": "c.yaml", "text": "scheme: int16\n", "digest": first["digest"]}
    )
    for stale in (first["digest"], ""):
        status, words = client.refusal(
            "/api/text", "PUT", {"file": "c.yaml", "text": "lost", "digest": stale}
        )
        assert status == 409 and "changed in between" in words
    assert (project_folder / "c.yaml").read_text() == "scheme: int16\n" and second["digest"] != first[
        "digest"
    ]


def wait_for(client, number: int) -> dict:
    deadline = time.monotonic() + 120
    while (job := client.json(f"/api/jobs/{number}"))["state"] == "running":
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
    return job


def test_a_job_writes_what_the_command_writes(client, project_folder: Path):
    client.enter()
    (project_folder / "studio.yaml").write_text("layers:\n  stem/relu: int16\n")
    body = {"action": "quantize", "model": "digits.onnx", "output": "wide.mlir", "config": "studio.yaml"}
    job = wait_for(client, client.json("/api/jobs", "POST", body | {"target": "edge-4t"})["number"])
    assert job["state"] == "done" and job["command"].startswith("npuc quantize ./digits.onnx -o ./wide.mlir")
    nodes = {node["name"]: node for node in client.json("/api/graph?file=wide.mlir")["nodes"]}
    assert nodes["stem/relu"]["bits"] == 16
    bad = {"action": "quantize", "model": "digits.npu", "output": "bad.mlir"}
    job = wait_for(client, client.json("/api/jobs", "POST", bad)["number"])
    assert job["state"] == "failed" and any("error[" in line for line in job["lines"])
    assert not (project_folder / "bad.mlir").exists()


def test_a_cancelled_job_leaves_files_as_they_were(client, project_folder: Path):
    client.enter()
    (project_folder / "kept.mlir").write_text("as it was")
    body = {"action": "quantize", "model": "digits.onnx", "output": "kept.mlir", "ladder": "all"}
    number = client.json("/api/jobs", "POST", body)["number"]
    client.json(f"/api/jobs/{number}", "DELETE")
    assert wait_for(client, number)["state"] == "cancelled"
    assert (project_folder / "kept.mlir").read_text() == "as it was"
    assert client.refusal("/api/jobs/99", "DELETE")[0] == 404


def test_uploads_go_into_their_own_folder(client, project_folder: Path):
    client.enter()
    content = (project_folder / "digits_samples.npz").read_bytes()
    status, text, _ = client.send("/api/upload?name=mine.npz", "POST", content)
    assert status == 200 and json.loads(text)["file"] == "uploads/mine.npz"
    assert (project_folder / "uploads/mine.npz").read_bytes() == content
    for name in ("../x.png", "a/b.png", "x.py", "x.yaml", ".png"):
        assert client.send(f"/api/upload?name={quote(name, safe='')}", "POST", b"x")[0] == 400


def test_an_exported_page_answers_every_question(studio_files: Path, monkeypatch):
    monkeypatch.setattr("npuc.studio.page.library_text", lambda: "")
    names = ["digits.mlir", "digits.onnx", "digits.npu", "digits_samples.npz"]
    studio = Studio(Project(studio_files))
    page = export(studio, names)
    answers = embedded_answers(page)
    assert _key("graph", file="digits.npu", form="canonical") in answers and "time?file=digits.npu" in answers
    pair = {"reference": "digits.onnx", "other": "digits.mlir", "sample": "digits_samples.npz"}
    for row in answers[_key("compare", **pair)]["layers"]:
        first = answers[_key("tensor", **pair, name=row["name"])]
        for channel in range(1, first["channels"]):
            shown = answers[_key("tensor", **pair, name=row["name"], channel=str(channel))]
            asked = studio.tensor(
                "digits.onnx", "digits.mlir", Sample("digits_samples.npz"), row["name"], channel
            )
            assert shown == asked
    for other in ("digits.mlir", "digits.npu"):
        assert _key("compare", **pair | {"other": other}) in answers
    assert answers[_key("sensitivity", **pair)]["types"] == "digits.mlir"
    (count,) = studio.stream_lengths("digits.npu")[0]
    lines = [
        row["text"]
        for first in range(0, count, WINDOW)
        for row in answers[_key("instructions", file="digits.npu", part="0", core="0", first=str(first))][
            "rows"
        ]
    ]
    assert len(lines) == count
    assert answers["placement?file=digits.onnx&target=edge-4t"]["npu_layers"]
    points = answers["frontier?reference=digits.onnx&sample=digits_samples.npz"]["points"]
    assert points == studio.frontier("digits.onnx", "digits_samples.npz")["points"]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    assert len(page) <= 2 * sum((studio_files / name).stat().st_size for name in names) + (2 << 20)
    assert export(Studio(Project(studio_files)), names) == page


def test_a_name_with_markup_stays_text(studio_files: Path, monkeypatch):
    monkeypatch.setattr("npuc.studio.page.library_text", lambda: "")
    studio = Studio(Project(studio_files))
    hostile = "</script><script>alert(1)</script>"
    node = next(node for node in studio.graph("digits.onnx").nodes if node.parameters)
    monkeypatch.setattr(studio, "node", lambda *question: {"operands": []})
    node.name, node.tensors = hostile, (hostile,)
    page = export(studio, ["digits.onnx"])
    assert hostile not in page and "\\u003c/script>" in page


def test_an_exported_page_stays_below_its_limit(studio_files: Path, monkeypatch):
    """With little room it leaves out what is looked at least, and says so."""
    monkeypatch.setattr("npuc.studio.page.library_text", lambda: "")
    names, told = ["digits.npu", "digits.onnx", "digits_samples.npz"], []
    whole = export(Studio(Project(studio_files)), names, tell=told.append)
    assert told == []
    data = sum((studio_files / name).stat().st_size for name in names)
    monkeypatch.setattr("npuc.studio.export.PAGE_BYTES", len(whole) - 2 * data - 50_000)
    page = export(Studio(Project(studio_files)), names, tell=told.append)
    assert len(page) <= len(whole) - 50_000 and len(told) == 1
    assert "time?file=digits.npu" in embedded_answers(page)
