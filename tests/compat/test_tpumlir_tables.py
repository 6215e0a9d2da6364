"""Tables of TPU-MLIR: written as it writes them, read as it and its trainers write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.calib.table import CalibrationTable, Entry
from npuc.compat.tpumlir.ranges import layers_of, merged_like, ranges_for, weight_scales_for, with_measured
from npuc.compat.tpumlir.tables import (
    VendorTable,
    WeightScales,
    format_calibration,
    format_quantization,
    read_calibration,
    read_quantization,
)
from npuc.errors import FileFormatError, QuantizationError, UnknownTensorError
from npuc.ir import Graph, Value, tensor_type, top
from support.graphs import Builder, build

OF_THE_TOOL = """\
# mlir version: v1.30.2 cali version 1.0
# genetated time: 2026-11-16 15:38:36.070145
# histogram number: 2048
###
# op_name    threshold    min    max
images 1.0000080 0.0000000 1.0000080
122_Conv   56.4281803 -102.5830231 97.6811752

#int4_th
122_Conv 5.0 -1.0 2.0
"""


def network() -> Graph:
    """images -> 122 (a convolution) -> 124 (its absolute value)."""
    graph = Graph.empty([("images", tensor_type((1, 3, 4, 4), "f32"))])
    weight = graph.add_weight("w", np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1))
    graph.block.add_op(weight)
    conv = top.Conv.make(
        graph.inputs[0].value,
        weight.output,
        None,
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        name="122",
    )
    absolute = top.Abs.make(conv.results[0], name="124")
    graph.block.add_ops([conv, absolute])
    graph.set_outputs([("124", absolute.results[0])])
    graph.set_names_for("tpumlir", {"122": "122_Conv", "124": "124_Abs"})
    return graph


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table"
    path.write_text(text)
    return path


def test_a_table_goes_through_a_file_unchanged(tmp_path: Path) -> None:
    table = CalibrationTable.of(
        [Entry("images", 1.000008, 0.0, 1.000008), Entry("122_Conv", 56.4, -102.5, 97.6)]
    )
    text = format_calibration(table, 2048, 100, 5)
    assert text.splitlines()[-2:] == [
        "images 1.0000080 0.0000000 1.0000080",
        "122_Conv 56.4000000 -102.5000000 97.6000000",
    ]
    again = read_calibration(written(tmp_path, text))
    assert dict(again.ranges) == dict(table)
    assert (
        format_calibration(CalibrationTable(again.ranges), 2048, 100, 5).splitlines()[1:]
        == text.splitlines()[1:]
    )


def test_a_table_of_the_tool_itself(tmp_path: Path) -> None:
    table = read_calibration(written(tmp_path, OF_THE_TOOL))
    assert table.ranges["122_Conv"] == Entry("122_Conv", 56.4281803, -102.5830231, 97.6811752)
    assert len(table.ranges) == 2, "rows for four bits are no ranges for eight"


def test_a_table_of_training(tmp_path: Path) -> None:
    text = "# work_mode:QAT_all_int8 // x\nimages 1.0 -1.0 1.0\n472_Relu_weight 3 0.1 0.2 0.3 3 0 0 0\n"
    table = read_calibration(written(tmp_path, text))
    assert table.work_mode == "QAT_all_int8"
    assert table.weights["472_Relu"] == WeightScales((0.1, 0.2, 0.3), (0, 0, 0))


@pytest.mark.parametrize(
    "row",
    [
        "a 1.0 2.0",
        "a one 0 1",
        "a 1.0 3.0 2.0",
        "a nan 0 1",
        "a_weight 3 0.1 0.2 2 0 0",
        "a_weight 2 0.1 -0.2 2 0 0",
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str) -> None:
    with pytest.raises(FileFormatError, match="is no row of a calibration table") as caught:
        read_calibration(written(tmp_path, f"# x\n{row}\n"))
    assert caught.value.where is not None and caught.value.where.endswith("line 2")


def test_a_file_without_rows_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="has no row"):
        read_calibration(written(tmp_path, "# nothing\n"))


def test_quantization_tables(tmp_path: Path) -> None:
    text = format_quantization(
        {"122_Conv": "F32", "a": "F16"}, "bm1684x", "F32", 10, ["all int8 loss: -17.29"]
    )
    assert read_quantization(written(tmp_path, text)) == {"122_Conv": "F32", "a": "F16"}
    old = "# chip: x  mix_mode: BF16\n###\n122_Conv\n"
    assert read_quantization(written(tmp_path, old)) == {"122_Conv": "BF16"}
    with pytest.raises(FileFormatError, match="no row of a quantization table"):
        read_quantization(written(tmp_path, "122_Conv F33\n"))


def test_ranges_by_the_names_of_either_tool(capsys: pytest.CaptureFixture[str]) -> None:
    graph = network()
    rows = [Entry("images", 1.0, 0.25, 1.0), Entry("122_Conv", 2.0, -2.0, 1.0), Entry("124", 2.0, 0.0, 2.0)]
    ranges = ranges_for(
        graph, VendorTable({entry.name: entry for entry in (*rows, Entry("9_Gone", 1.0, 0.0, 1.0))}), "t"
    )
    assert list(ranges) == ["images", "122", "124"] and ranges["images"].min == 0.0
    assert "1 op is not in this network: 9_Gone" in capsys.readouterr().err
    with pytest.raises(UnknownTensorError, match="has no op of this network"):
        ranges_for(graph, VendorTable({"x": Entry("x", 1.0, 0.0, 1.0)}), "t")


def test_what_the_table_lacks_is_measured_or_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    graph = network()
    ranges = CalibrationTable.of([Entry("images", 1.0, -1.0, 1.0), Entry("124", 1.0, 0.0, 1.0)])
    with pytest.raises(QuantizationError, match="1 op has no row: 122"):
        with_measured(graph, ranges, None, "t")
    image = np.full((1, 3, 4, 4), -0.5, np.float32)
    measured = with_measured(graph, ranges, {"images": image}, "t")
    assert (measured["122"].min, measured["122"].max, measured["122"].threshold) == (-0.5, 0.0, 0.5)
    assert "the range is that on the test input" in capsys.readouterr().err


def test_convolutions_that_the_other_tool_merged_are_merged_here() -> None:
    def conv(b: Builder, x: Value, out: int, name: str) -> Value:
        weight = np.ones((out, x.type.get_shape()[1], 1, 1), np.float32)
        window = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1}
        return b(top.Conv, x, weight, None, name=name, **window)

    graph = build({"x": (1, 3, 4, 4)}, lambda b, x: conv(b, conv(b, x, 2, "middle"), 5, "last"))
    ends = [Entry("x", 1.0, -1.0, 1.0), Entry("last", 6.0, -6.0, 6.0)]
    merged = merged_like(graph, CalibrationTable.of(ends))
    assert set(merged.tensor_names()) == set(graph.tensor_names()) - {"middle"}
    assert with_measured(merged, CalibrationTable.of(ends), None, "t")["last"].max == 6.0
    complete = CalibrationTable.of([*ends, Entry("middle", 3.0, -3.0, 3.0)])
    assert merged_like(graph, complete) is graph


def test_scales_that_training_chose_by_layer(capsys: pytest.CaptureFixture[str]) -> None:
    graph = network()
    rows = {"images": Entry("images", 1.0, 0.0, 1.0)}
    own = WeightScales((0.5, 0.25, 0.125), (0, 0, 0))
    scales = weight_scales_for(graph, VendorTable(rows, {"122_Conv": own, "gone_Conv": own}), "t")
    assert list(scales) == ["122"] and scales["122"].tolist() == [0.5, 0.25, 0.125]
    assert "'gone_Conv', whose weights have a row, is not in this network" in capsys.readouterr().err
    with pytest.raises(QuantizationError, match="the weights of '122_Conv' have zero points"):
        weight_scales_for(graph, VendorTable(rows, {"122_Conv": WeightScales((0.5,), (3,))}), "t")


def test_types_of_layers() -> None:
    graph = network()
    assert layers_of(graph, {"122_Conv": "F16", "124": "F32"}, "q") == {"122": "f16", "124": "f32"}
    with pytest.raises(QuantizationError, match="INT4 of '122_Conv'"):
        layers_of(graph, {"122_Conv": "INT4"}, "q")
