"""What a program takes and gives: integers as a property of the file, the order of axes, rows with gaps in C."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import CompileOptions
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import CompileError, UsageError
from npuc.flow import compile_network, quantize_network
from npuc.host import TensorConversion
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, shape_of
from npuc.ir.passes import run_pipeline
from npuc.native import library
from npuc.program.file import load_compiled, save_compiled
from npuc.program.model import CpuSubgraph, HostConversion, NpuSubgraph
from npuc.quant import SCHEMES, quantize
from npuc.runtime.runner import Runner
from npuc.target import load_target

TARGET = load_target("edge-4t")


def network(pipeline: str = "") -> Graph:
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 3, 10, 14))
    weight = lang.constant(rng.normal(0, 0.4, (8, 3, 3, 3)).astype(np.float32))
    y = lang.relu(lang.conv(x, weight, pads=(1, 1, 1, 1)))
    graph = lang.build({"y": lang.avg_pool(y, kernel=(2, 2), strides=(2, 2))})
    return run_pipeline(graph, pipeline) if pipeline else graph


def integers(graph: Graph, scheme: str = "int8") -> Graph:
    return quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-3.0, 3.0)), SCHEMES[scheme])


def test_only_the_named_ends_are_integers() -> None:
    a, b = (lang.input(name, (1, 4, 6, 6)) for name in "ab")
    graph = lang.build({"y": lang.add(a, b), "z": lang.relu(b)})
    made = quantize(graph, dict.fromkeys(["a", "b", *graph.tensor_names()], (-3.0, 3.0)), SCHEMES["int8"])
    options = CompileOptions(integer_ends="both", integer_ports=("b", "y"))
    model = compile_network(made, TARGET, options).model
    assert {name: model.tensor(name).dtype for name in "abyz"} == {
        "a": "f32",
        "b": "i8",
        "y": "i8",
        "z": "f32",
    }


@pytest.mark.parametrize("ends", ["inputs", "outputs", "both"])
@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16"])
def test_integers_at_the_ends_are_a_property_of_the_file(ends: str, scheme: str, tmp_path: Path) -> None:
    made = integers(network(), scheme)
    save_compiled(compile_network(made, TARGET, CompileOptions(integer_ends=ends)).model, tmp_path / "m.npu")
    model = load_compiled(tmp_path / "m.npu")
    kinds = {"int8": "i8", "uint8": "ui8", "int16": "i16"}
    for end, name in (("inputs", "x"), ("outputs", "y")):
        tensor = model.tensor(name)
        is_integer = ends in (end, "both")
        assert tensor.dtype == (kinds[scheme] if is_integer else "f32")
        assert bool(tensor.scale) == is_integer
    conversions = [part for part in model.subgraphs if isinstance(part, HostConversion)]
    assert len(conversions) == (0 if ends == "both" else 1)
    inputs = random_inputs(made)
    expected = IntegerEngine(made).run(inputs)["y"]
    with Runner(model) as runner:  # reals are converted by the runner, to the same bits
        np.testing.assert_array_equal(runner.run(inputs)["y"], expected)


def test_a_runner_of_raw_tensors_takes_what_the_file_has() -> None:
    made = integers(network())
    plain, whole = (
        compile_network(made, TARGET, CompileOptions(integer_ends=ends)).model for ends in ("", "both")
    )
    with Runner(plain, raw=True) as one, Runner(whole, raw=True) as other:
        x = np.random.default_rng(0).integers(-128, 128, (1, 3, 10, 14)).astype(np.int8)
        np.testing.assert_array_equal(one.run({"x": x})["y"], other.run({"x": x})["y"])
        assert [(t.dtype, t.scale, t.zero_point) for t in one.input_tensors] == [
            (t.dtype, t.scale, t.zero_point) for t in other.input_tensors
        ]


def test_ends_that_are_no_integers_are_said_in_words() -> None:
    x = lang.input("x", (1, 3, 8, 8), preprocess=Preprocess())
    graph = integers(run_pipeline(lang.build({"y": lang.relu(x)}), "fuse-preprocess"))
    with pytest.raises(CompileError, match="no conversion is at the inputs"):
        compile_network(graph, TARGET, CompileOptions(integer_ends="inputs"))
    with pytest.raises(UsageError, match="not at 'middle'"):
        compile_network(graph, TARGET, CompileOptions(integer_ends="middle"))


@pytest.mark.parametrize(
    ("inputs", "outputs"), [("nhwc", "nhwc"), ("nhwc", ""), ("", "nhwc"), ("nchw", "nchw")]
)
def test_the_order_of_axes_at_the_ends(inputs: str, outputs: str) -> None:
    plain = network()
    words = " ".join(f"{end}={word}" for end, word in (("inputs", inputs), ("outputs", outputs)) if word)
    graph = network(f"set-layout{{{words}}}")
    x = random_inputs(plain)["x"]
    turned = x.transpose(0, 2, 3, 1) if inputs == "nhwc" else x
    assert shape_of(graph.inputs[0].value) == turned.shape
    wanted = FloatEngine(plain).run({"x": x})["y"]
    wanted = wanted.transpose(0, 2, 3, 1) if outputs == "nhwc" else wanted
    np.testing.assert_allclose(FloatEngine(graph).run({"x": turned})["y"], wanted, atol=1e-5)
    made = integers(graph)
    done = compile_network(made, TARGET)
    assert dict(done.partition.reasons) == {}
    (part,) = [part for part in done.model.subgraphs if isinstance(part, NpuSubgraph)]
    straight = compile_network(integers(plain), TARGET).model.subgraphs
    (reference,) = [part for part in straight if isinstance(part, NpuSubgraph)]
    # Images lie in memory as N x H x W x C anyway: a turn costs no instruction at the input, and one at the output.
    assert len(part.streams[0]) <= len(reference.streams[0]) + 1


def test_a_layout_that_is_none() -> None:
    with pytest.raises(Exception, match="'hwcn' is no layout"):
        network("set-layout{inputs=hwcn}")


class View(ctypes.Structure):
    """`npu_view`."""

    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64 * 8))


def with_gaps(
    shape: tuple[int, ...], dtype: Any, tensor: int, dense: int, alignment: int
) -> tuple[Array, View]:
    """An array in memory with the strides that C gives for an alignment, and its view."""
    core = library()
    core.npu_strides.restype = ctypes.c_int64
    strides = (ctypes.c_int64 * 8)()
    size = core.npu_strides(ctypes.c_void_p(tensor), dense, ctypes.c_int64(alignment), strides)
    assert size >= np.prod(shape) * np.dtype(dtype).itemsize
    memory = np.full(size, 77, np.uint8)
    array = np.ndarray(shape, dtype, memory, strides=tuple(strides[: len(shape)]))
    return array, View(memory.ctypes.data, strides)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("ends", ["", "both"])
@pytest.mark.parametrize("alignment", [1, 64])
def test_rows_with_gaps_in_c(layout: str, ends: str, alignment: int, tmp_path: Path) -> None:
    made = integers(network(f"set-layout{{inputs={layout} outputs={layout}}}"))
    model = compile_network(made, TARGET, CompileOptions(integer_ends=ends)).model
    save_compiled(model, tmp_path / "m.npu")
    core = library()
    for name in ("npu_input", "npu_output"):
        getattr(core, name).restype = ctypes.c_void_p
    handle = ctypes.c_void_p()
    assert core.npu_load(str(tmp_path / "m.npu").encode(), ctypes.byref(handle)) == 0
    with Runner(model, raw=bool(ends)) as runner:
        (taken,), (given,) = runner.input_tensors, runner.output_tensors
        dense = 1 if layout == "nchw" else 2
        x, x_view = with_gaps(taken.shape, taken.dtype, core.npu_input(handle, 0), dense, alignment)
        y, y_view = with_gaps(given.shape, given.dtype, core.npu_output(handle, 0), dense, alignment)
        rng = np.random.default_rng(0)
        x[...] = rng.integers(-90, 90, taken.shape) if ends else rng.random(taken.shape)
        assert core.npu_run_views(handle, ctypes.byref(x_view), ctypes.byref(y_view)) == 0
        np.testing.assert_array_equal(y, runner.run({"x": np.ascontiguousarray(x)})["y"])
        if alignment == 64:
            assert x.strides[-dense - 1] % 64 == 0 and not x.flags.c_contiguous
    assert core.npu_run_views(handle, None, ctypes.byref(y_view)) == 4
    core.npu_free(handle)


@pytest.mark.parametrize("dtype", ["ui16", "i16", "ui8", "i8"])
@pytest.mark.parametrize(
    ("name", "scheme"), [("edge-4t", "int8"), ("edge-4t", "int16"), ("vipnano-like", ""), ("aries-like", "")]
)
def test_inputs_of_plain_integers(dtype: str, name: str, scheme: str, tmp_path: Path) -> None:
    """Whatever the machine computes with, the host converts them in one step: there is no CPU subgraph, and C has the bits."""
    kind = dtype_of(dtype).numpy
    limits = np.iinfo(kind)
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 2, 9, 7), dtype)
    weight = lang.constant(rng.normal(0, 0.4, (4, 2, 3, 3)).astype(np.float32))
    graph = lang.build({"y": lang.conv(lang.cast(x, to="f32"), weight)})
    most = float(max(limits.max, -limits.min))
    ranges = {"x": (-most, most)} | {name: (-2 * most, 2 * most) for name in graph.tensor_names()}
    target = load_target(name)
    made = (
        quantize(graph, ranges, SCHEMES[scheme])
        if scheme
        else quantize_network(graph, ranges, None, target).graph
    )
    options = CompileOptions(island_threshold=0)
    save_compiled(compile_network(made, target, options).model, tmp_path / "m.npu")
    model = load_compiled(tmp_path / "m.npu")
    assert not any(isinstance(part, CpuSubgraph) for part in model.subgraphs)
    assert model.tensor("x").dtype == dtype and not model.tensor("x").scale
    inputs = {"x": rng.integers(limits.min, limits.max, (1, 2, 9, 7), kind, endpoint=True)}
    inputs["x"].ravel()[:4] = limits.min, limits.max, 0, 1
    expected = IntegerEngine(made).run(inputs)["y"]
    with Runner(model) as runner:
        np.testing.assert_array_equal(runner.run(inputs)["y"], expected)
    for part in model.subgraphs:
        for conversion in part.conversions if isinstance(part, HostConversion) else ():
            tensor = model.tensor(conversion.result)
            if conversion.source != "x":
                continue
            whole = np.rint(inputs["x"].astype(np.float64) / tensor.scale) + tensor.zero_point
            assert np.abs(TensorConversion(conversion, model, 1)(inputs["x"]) - whole).max() <= (
                tensor.scale != 1
            )
    core, handle, y = library(), ctypes.c_void_p(), np.empty_like(expected)
    assert core.npu_load(str(tmp_path / "m.npu").encode(), ctypes.byref(handle)) == 0
    pointers = (ctypes.c_void_p * 1)(inputs["x"].ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)
    assert core.npu_run(handle, *pointers) == 0
    core.npu_free(handle)
    np.testing.assert_array_equal(y, expected)
