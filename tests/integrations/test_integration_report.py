"""The report that every integration gives: nodes, share of MACs, and reason and lever for what is not on the NPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npuc import lang
from npuc.codegen.compile_model import CompileOptions
from npuc.errors import UsageError
from npuc.flow import compile_network, quantize_network
from npuc.integrations.report import IntegrationReport, ReportedNode, joined, report_of
from npuc.target import load_target


@pytest.fixture(scope="module")
def report() -> IntegrationReport:
    """Of two equal convolutions, the second of which a user put on the CPU, and a node that the framework kept."""
    target = load_target("edge-4t")
    weights = np.linspace(-1, 1, 8 * 8 * 9, dtype=np.float32).reshape(8, 8, 3, 3)
    x = lang.input("x", (1, 8, 16, 16))
    first = lang.conv(x, weights, pads=1, relu=True, name="first")
    graph = lang.build({"y": lang.conv(first, weights, pads=1, name="second")})
    quantized = quantize_network(graph, {"x": (-1, 1), "first": (0, 9), "second": (-80, 80)}, target=target)
    compilation = compile_network(quantized.graph, target, CompileOptions(devices={"second": "cpu"}))
    kept = ReportedNode("vote", "mode", "framework", reason="it has no rule", lever="Leave it to the caller")
    return report_of("torch.compile", quantized.source, compilation, target, [kept], ["8 samples"])


def test_half_of_the_work_is_on_the_npu(report: IntegrationReport) -> None:
    assert report.macs == 2 * 8 * 8 * 9 * 256
    assert report.npu_share == 0.5
    assert [node.device for node in report.nodes] == ["npu", "cpu", "framework"]


def test_what_is_left_has_the_compilers_reason(report: IntegrationReport) -> None:
    on_cpu, kept = report.rest
    assert on_cpu.name == "second" and on_cpu.reason == "as asked"
    assert kept.lever == "Leave it to the caller"


def test_the_text_names_each_reason(report: IntegrationReport) -> None:
    lines = str(report).splitlines()
    assert (
        lines[0]
        == "torch.compile for edge-4t: 3 nodes in 1 graph, 1 on the NPU; 50.0 % of 294,912 MACs on the NPU"
    )
    assert lines[1].startswith("  CPU        second: ")
    assert lines[2] == "  framework  vote: it has no rule. Leave it to the caller"
    assert lines[3] == "  note       8 samples"


def test_json_brings_the_whole_report_back(report: IntegrationReport) -> None:
    values = json.loads(json.dumps(report.as_json()))
    assert IntegrationReport.from_json(values) == report
    assert values["npu_nodes"] == 1 and values["npu_share"] == 0.5
    del values["nodes"][0]["macs"]
    with pytest.raises(UsageError, match="not whole"):
        IntegrationReport.from_json(values)


def test_graphs_of_one_network_are_one_report(report: IntegrationReport) -> None:
    both = joined([report, report])
    assert both.graphs == 2 and both.macs == 2 * report.macs and both.notes == report.notes
    with pytest.raises(UsageError, match="no graph"):
        joined([])
