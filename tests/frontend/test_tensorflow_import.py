"""Frozen graphs and SavedModels, written byte by byte and judged by NumPy: ops, layout, control flow, functions, options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import (
    DynamicShapeError,
    FileMissingError,
    InvalidModelError,
    NpucError,
    UnknownTensorError,
    UnsupportedOpError,
    UnsupportedTypeError,
    UsageError,
)
from npuc.flow import quantize_network
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.frontend.tensorflow import import_tensorflow
from npuc.frontend.tensorflow.crc32c import crc32c
from npuc.ir import Graph, shape_of, top
from npuc.target import load_target
from npuc.transform import canonicalize
from support.networks import tensorflow_graphs as b
from support.networks.tensorflow_graphs import Function, Type, const, graph, node, placeholder


def imported(folder: Path, nodes: list[bytes], functions: list[bytes] | None = None, **options: Any) -> Graph:
    """A graph through a file."""
    path = folder / "graph.pb"
    path.write_bytes(graph(nodes, functions or []))
    return import_tensorflow(path, ImportOptions(**options))


def run(made: Graph, *arrays: Array) -> list[Array]:
    """The outputs in order."""
    feed = {port.name: array for port, array in zip(made.inputs, arrays, strict=True)}
    found = FloatEngine(made, threads=1).run(feed)
    return [found[port.name] for port in made.outputs]


def normal(*sizes: int) -> Array:
    """Random numbers."""
    return np.random.default_rng(sum(sizes)).normal(size=sizes).astype(np.float32)


def conv_oracle(x: Array, kernel: Array, stride: int) -> Array:
    """SAME convolution in NHWC, pixel by pixel."""
    n, height, width, _ = x.shape
    kh, kw, _, channels = kernel.shape
    out_h, out_w = -(-height // stride), -(-width // stride)
    pad_h, pad_w = max(0, (out_h - 1) * stride + kh - height), max(0, (out_w - 1) * stride + kw - width)
    padded = np.pad(x, ((0, 0), (pad_h // 2, pad_h - pad_h // 2), (pad_w // 2, pad_w - pad_w // 2), (0, 0)))
    out = np.zeros((n, out_h, out_w, channels), np.float32)
    for i in range(out_h):
        for j in range(out_w):
            window = padded[:, i * stride : i * stride + kh, j * stride : j * stride + kw]
            out[:, i, j] = np.tensordot(window, kernel, 3)
    return out


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_a_convolution_in_either_layout(tmp_path: Path, data_format: str) -> None:
    x, kernel, bias = normal(1, 8, 6, 3), normal(3, 2, 3, 4), normal(4)
    first = data_format == "NCHW"
    sizes = (1, 3, 8, 6) if first else (1, 8, 6, 3)
    strides = [1, 1, 2, 2] if first else [1, 2, 2, 1]
    made = imported(
        tmp_path,
        [
            placeholder("x", *sizes),
            const("k", kernel),
            const("b", bias),
            node("conv", "Conv2D", ["x", "k"], strides=strides, padding="SAME", data_format=data_format),
            node("sum", "BiasAdd", ["conv", "b"], data_format=data_format),
            node("relu", "Relu", ["sum"]),
        ],
    )
    wanted = np.maximum(conv_oracle(x, kernel, 2) + bias, 0)
    given = x.transpose(0, 3, 1, 2) if first else x
    (found,) = run(made, given)
    np.testing.assert_allclose(found.transpose(0, 2, 3, 1) if first else found, wanted, atol=1e-5)
    assert made.find("relu") is not None and made.find("conv") is not None
    turns = sum(isinstance(op, top.Permute) for op in made.ops)
    assert turns == (0 if first else 2)


UNARY = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Square": np.square,
    "Exp": np.exp,
    "Tanh": np.tanh,
    "Relu6": lambda x: np.clip(x, 0, 6),
    "Log1p": lambda x: np.log1p(x),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "IsNan": np.isnan,
    "ZerosLike": np.zeros_like,
    "L2Loss": lambda x: np.array((x**2).sum() / 2),
    "Softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
}


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_tensor(tmp_path: Path, op: str) -> None:
    x = np.abs(normal(2, 5)) if op == "Log1p" else normal(2, 5)
    (found,) = run(imported(tmp_path, [placeholder("x", 2, 5), node("y", op, ["x"])]), x)
    np.testing.assert_allclose(found, UNARY[op](x), rtol=1e-5, atol=1e-6)


BINARY = {
    "AddV2": np.add,
    "Sub": np.subtract,
    "RealDiv": np.divide,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Maximum": np.maximum,
    "SquaredDifference": lambda x, y: (x - y) ** 2,
    "NotEqual": np.not_equal,
    "GreaterEqual": np.greater_equal,
    "DivNoNan": lambda x, y: np.where(y == 0, 0, x / np.where(y == 0, 1, y)),
}


@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_tensors_broadcast(tmp_path: Path, op: str) -> None:
    x, y = normal(2, 1, 5), np.array([1.5, -2.0, 0.5, 3.0, 0.0 if op == "DivNoNan" else 1.0], np.float32)
    made = imported(tmp_path, [placeholder("x", 2, 1, 5), placeholder("y", 5), node("z", op, ["x", "y"])])
    (found,) = run(made, x, y)
    np.testing.assert_allclose(found, BINARY[op](x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "equation",
    [
        "abc,cd->abd",
        "abcd,aecd->acbe",
        "acbe,aecd->abcd",
        "...ab,bc->...ac",
        "ab,ab->a",
        "abc->cab",
        "abc->a",
        "ab,cd->abcd",
    ],
)
def test_einstein_sums(tmp_path: Path, equation: str) -> None:
    sizes = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 3}
    terms = [term.replace("...", "ed") for term in equation.partition("->")[0].split(",")]
    arrays = [normal(*(sizes[letter] for letter in term)) for term in terms]
    names = [f"x{i}" for i in range(len(terms))]
    inputs = [placeholder(name, *array.shape) for name, array in zip(names, arrays, strict=True)]
    made = imported(tmp_path, [*inputs, node("y", "Einsum", names, equation=equation)])
    np.testing.assert_allclose(run(made, *arrays)[0], np.einsum(equation, *arrays), rtol=1e-4, atol=1e-4)


@given(st.binary(max_size=5000))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_checksum_is_that_of_its_polynomial(data: bytes) -> None:
    remainder = 0xFFFFFFFF
    for octet in data:
        remainder ^= octet
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    assert crc32c(data) == remainder ^ 0xFFFFFFFF
    assert crc32c(data + bytes(3000)) != crc32c(data + bytes(3001))


def test_slices_with_masks(tmp_path: Path) -> None:
    x = normal(3, 4, 5)
    made = imported(
        tmp_path,
        [
            placeholder("x", 3, 4, 5),
            const("begin", [0, 0, 1], "int32"),
            const("end", [0, 0, 4], "int32"),
            const("step", [1, 1, 2], "int32"),
            node("y", "StridedSlice", ["x", "begin", "end", "step"], shrink_axis_mask=1, ellipsis_mask=2),
        ],
    )
    (found,) = run(made, x)
    np.testing.assert_array_equal(found, x[0, ..., 1:4:2])


def test_shapes_are_computed_at_import(tmp_path: Path) -> None:
    """The way Keras writes Flatten: shape, slice, pack, reshape."""
    made = imported(
        tmp_path,
        [
            placeholder("x", -1, 4, 3),
            node("shape", "Shape", ["x"], out_type=Type(3)),
            const("zero", [0], "int32"),
            const("one", [1], "int32"),
            node("n", "StridedSlice", ["shape", "zero", "one", "one"], shrink_axis_mask=1),
            const("rest", 12, "int32"),
            node("wanted", "Pack", ["n", "rest"], axis=0),
            node("y", "Reshape", ["x", "wanted"]),
        ],
        input_shapes={"x": (2, 4, 3)},
    )
    assert shape_of(made.outputs[0].value) == (2, 12)
    assert len([op for op in made.ops if not isinstance(op, top.WeightOp)]) == 1


def test_an_open_batch_is_one_and_other_open_sizes_are_asked_for(tmp_path: Path) -> None:
    made = imported(tmp_path, [placeholder("x", -1, 4), node("y", "Relu", ["x"])])
    assert shape_of(made.inputs[0].value) == (1, 4) and "batch" in made.notes[0]
    with pytest.raises(DynamicShapeError, match="--input-shape 'x=1,64,3'"):
        imported(tmp_path, [placeholder("x", 1, -1, 3), node("y", "Relu", ["x"])])


def _training() -> list[bytes]:
    """Dropout as TensorFlow 1 draws it: one of two ways, by a placeholder."""
    return [
        placeholder("x", 1, 4),
        placeholder("training", dtype=b.BOOL),
        node("to", "Switch", ["x", "training"]),
        node("dropped", "Neg", ["to:1"]),
        node("kept", "Abs", ["to"]),
        node("y", "Merge", ["kept", "dropped"]),
    ]


def test_a_branch_on_a_placeholder_folds_away(tmp_path: Path) -> None:
    x = normal(1, 4)
    for value, wanted in (("false", np.abs(x)), ("1", -x)):
        made = imported(tmp_path, _training(), constants={"training": value})
        assert [port.name for port in made.inputs] == ["x"]
        np.testing.assert_allclose(run(made, x)[0], wanted)
    with pytest.raises(UnsupportedOpError, match="--constant NAME=VALUE"):
        imported(tmp_path, _training())
    with pytest.raises(UsageError, match="not numbers"):
        imported(tmp_path, _training(), constants={"training": "maybe"})


def _loop(turns: int) -> list[bytes]:
    """x doubled `turns` times, in a loop of TensorFlow 1."""
    return [
        placeholder("x", 1, 3),
        const("zero", 0, "int32"),
        const("turns", turns, "int32"),
        const("one", 1, "int32", ["^i/id"]),
        node("i/enter", "Enter", ["zero"], frame_name="f"),
        node("v/enter", "Enter", ["x"], frame_name="f"),
        node("limit", "Enter", ["turns"], frame_name="f", is_constant=True),
        node("i", "Merge", ["i/enter", "i/next"]),
        node("v", "Merge", ["v/enter", "v/next"]),
        node("less", "Less", ["i", "limit"]),
        node("go", "LoopCond", ["less"]),
        node("i/to", "Switch", ["i", "go"]),
        node("v/to", "Switch", ["v", "go"]),
        node("i/id", "Identity", ["i/to:1"]),
        node("more", "Add", ["i/id", "one"]),
        node("twice", "Add", ["v/to:1", "v/to:1"]),
        node("i/next", "NextIteration", ["more"]),
        node("v/next", "NextIteration", ["twice"]),
        node("out", "Exit", ["v/to"]),
    ]


def test_a_loop_of_constant_length_is_written_out(tmp_path: Path) -> None:
    x = normal(1, 3)
    made = imported(tmp_path, _loop(5))
    np.testing.assert_allclose(run(made, x)[0], 32 * x, rtol=1e-6)
    assert made.find("twice[4]") is not None


def test_functions_are_written_out_under_the_names_of_their_calls(tmp_path: Path) -> None:
    body = b.function("f", ["a"], {"r": "act:activations:0"}, [node("act", "Tanh", ["a"])])
    made = imported(
        tmp_path,
        [
            placeholder("x", 2),
            node("dense/StatefulPartitionedCall", "StatefulPartitionedCall", ["x"], f=Function("f")),
        ],
        [body],
    )
    assert made.find("dense/act") is not None
    np.testing.assert_allclose(run(made, normal(2))[0], np.tanh(normal(2)), rtol=1e-6)
    cut = imported(
        tmp_path,
        [
            placeholder("x", 2),
            node("dense/StatefulPartitionedCall", "StatefulPartitionedCall", ["x"], f=Function("f")),
        ],
        [body],
        outputs=("dense/act",),
    )
    assert [port.name for port in cut.outputs] == ["dense/act"]


def test_a_network_may_begin_inside_a_function(tmp_path: Path) -> None:
    nodes = [node("p", "Neg", ["a"]), node("q", "Tanh", ["p:y:0"])]
    body = b.function("f", ["a"], {"r": "q:y:0"}, nodes)
    call = [placeholder("x", 2), node("m/PartitionedCall", "PartitionedCall", ["x"], f=Function("f"))]
    made = imported(tmp_path, call, [body], inputs=("m/p",))
    assert [port.name for port in made.inputs] == ["m/p"]
    np.testing.assert_allclose(run(made, normal(2))[0], np.tanh(normal(2)), rtol=1e-6)


def test_a_while_function_fills_a_list(tmp_path: Path) -> None:
    """The way Keras 3 exports a recurrent layer."""
    test = b.function(
        "test",
        ["i", "s", "l"],
        {"r": "z:z:0"},
        [const("n", 3, "int32"), node("z", "Less", ["i", "n:output:0"])],
    )
    step = b.function(
        "step",
        ["i", "s", "l"],
        {"i2": "i3:z:0", "s2": "s3:z:0", "l2": "l3:output_handle:0"},
        [
            const("one", 1, "int32"),
            node("i3", "AddV2", ["i", "one:output:0"]),
            node("s3", "AddV2", ["s", "s"]),
            node("l3", "TensorListSetItem", ["l", "i", "s3:z:0"]),
        ],
    )
    made = imported(
        tmp_path,
        [
            placeholder("x", 2),
            const("zero", 0, "int32"),
            const("sizes", [2], "int32"),
            const("three", 3, "int32"),
            node("list", "TensorListReserve", ["sizes", "three"], element_dtype=Type(1)),
            node("w", "While", ["zero", "x", "list"], cond=Function("test"), body=Function("step")),
            node("y", "TensorListStack", ["w:2", "sizes"]),
        ],
        [test, step],
        outputs=("y",),
    )
    x = normal(2)
    np.testing.assert_allclose(run(made, x)[0], np.stack([2 * x, 4 * x, 8 * x]), rtol=1e-6)


def test_cuts_take_their_shapes_from_the_whole_network(tmp_path: Path) -> None:
    nodes = [
        placeholder("x", 1, 6),
        const("k", normal(6, 4)),
        node("a", "MatMul", ["x", "k"]),
        node("b", "Relu", ["a"]),
        node("c", "Softmax", ["b"]),
    ]
    made = imported(tmp_path, nodes, inputs=("a",), outputs=("b",))
    assert shape_of(made.inputs[0].value) == (1, 4)
    np.testing.assert_allclose(run(made, normal(1, 4))[0], np.maximum(normal(1, 4), 0))
    with pytest.raises(UnknownTensorError, match="Did you mean 'a'"):
        imported(tmp_path, nodes, inputs=("aa",))
    with pytest.raises(UsageError, match="still need the input 'x'"):
        imported(tmp_path, nodes, inputs=("b",), outputs=("a",))
    with pytest.raises(UnknownTensorError, match="--input-shape"):
        imported(tmp_path, nodes, input_shapes={"q": (1,)})


def test_an_input_of_text_says_where_to_begin(tmp_path: Path) -> None:
    nodes = [
        placeholder("wav", dtype=b.STRING),
        node("decode", "DecodeWav", ["wav"]),
        node("Mfcc", "Mfcc", ["decode", "decode:1"]),
        node("y", "Relu", ["Mfcc"]),
    ]
    with pytest.raises(UnsupportedTypeError, match="--inputs Mfcc"):
        imported(tmp_path, nodes)
    made = imported(tmp_path, nodes, inputs=("Mfcc",), input_shapes={"Mfcc": (1, 3)})
    assert made.inputs[0].name == "Mfcc"


def test_an_unknown_op_becomes_a_custom_one(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        [
            placeholder("x", 1, 3),
            node("q", "Frobnicate", ["x"], T=Type(1), depth=3, mode="odd"),
            node("y", "Relu", ["x"]),
        ],
    )
    (op,) = [op for op in made.ops if isinstance(op, top.Onnx)]
    assert op.domain == "npuc.tensorflow" and op.op_type == "Frobnicate"
    assert set(op.onnx_attributes) == {"T", "depth", "mode"}
    assert any("Frobnicate" in note for note in made.notes)


def test_a_graph_is_known_by_its_content(tmp_path: Path) -> None:
    for name in ("x", "a/long/name" * 20):
        path = tmp_path / "file.bin"
        path.write_bytes(graph([placeholder(name, 1, 4), node("y", "Relu", [name])]))
        assert describe_content(path).kind == "tensorflow"
    path.write_text("node {\n  name: 'x'\n}")
    assert describe_content(path).kind == "other" and "as_text=False" in describe_content(path).fix


def test_training_mode_is_refused(tmp_path: Path) -> None:
    nodes = [
        placeholder("x", 1, 2, 2, 3),
        *(const(name, np.ones(3)) for name in ("s", "o", "m", "v")),
        node("y", "FusedBatchNormV3", ["x", "s", "o", "m", "v"], is_training=True),
    ]
    with pytest.raises(UnsupportedOpError, match="training mode"):
        imported(tmp_path, nodes)


def _saved(folder: Path, kernel: Array) -> Path:
    """A SavedModel of one product, whose variable goes by another name in its checkpoint."""
    body = b.function(
        "serve",
        ["x", "w"],
        {"y": "y:product:0"},
        [node("r", "ReadVariableOp", ["w"], dtype=Type(1)), node("y", "MatMul", ["x", "r:value:0"])],
    )
    restore = b.function(
        "restore",
        ["file", "w"],
        {"r": "file"},
        [
            node("names", "Const", dtype=Type(b.STRING), value=["key/of/kernel"]),
            node("read", "RestoreV2", ["file", "names:output:0", "names:output:0"]),
            node("same", "Identity", ["read:tensors:0"]),
            node("set", "AssignVariableOp", ["w", "same:output:0"]),
        ],
    )
    nodes = [
        placeholder("serving_x", -1, kernel.shape[0]),
        placeholder("saver", dtype=b.STRING),
        node("dense/kernel", "VarHandleOp", dtype=Type(1), shared_name="dense/kernel"),
        node("call", "StatefulPartitionedCall", ["serving_x", "dense/kernel"], f=Function("serve")),
        node("back", "StatefulPartitionedCall", ["saver", "dense/kernel"], f=Function("restore")),
    ]
    return b.write_saved_model(
        folder,
        graph(nodes, [body, restore]),
        {"x": "serving_x:0"},
        {"y": "call:0"},
        {"key/of/kernel": kernel},
        "back",
    )


def test_a_saved_model_finds_its_variables(tmp_path: Path) -> None:
    kernel = normal(4, 3)
    for path in (_saved(tmp_path / "m", kernel), tmp_path / "m" / "saved_model.pb"):
        made = import_tensorflow(path)
        assert [port.name for port in made.inputs] == ["x"] and [port.name for port in made.outputs] == ["y"]
        np.testing.assert_allclose(run(made, normal(1, 4))[0], normal(1, 4) @ kernel, rtol=1e-5)


def test_variables_of_tensorflow_1(tmp_path: Path) -> None:
    nodes = [
        placeholder("x", 1, 4),
        node("w", "VariableV2", dtype=Type(1)),
        node("w/read", "Identity", ["w"]),
        node("y", "MatMul", ["x", "w/read"]),
        node("save/names", "Const", dtype=Type(b.STRING), value=["other", "scope/w"]),
        node("save/read", "RestoreV2", ["save/names", "save/names", "save/names"]),
        node("save/assign", "Assign", ["w", "save/read:1"]),
        node("save/all", "NoOp", ["^save/assign"]),
    ]
    variables = {"scope/w": normal(4, 3), "other": np.zeros(2, np.float32)}
    folder = b.write_saved_model(
        tmp_path / "m", graph(nodes), {"x": "x:0"}, {"y": "y:0"}, variables, "save/all"
    )
    np.testing.assert_allclose(
        run(import_tensorflow(folder), normal(1, 4))[0], normal(1, 4) @ normal(4, 3), rtol=1e-5
    )


def test_damaged_variables_are_told(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "m", normal(4, 3))
    data = folder / "variables" / "variables.data-00000-of-00001"
    whole = data.read_bytes()
    data.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(InvalidModelError, match="checksum"):
        import_tensorflow(folder)
    data.write_bytes(whole[:-8])
    with pytest.raises(InvalidModelError, match="cut short"):
        import_tensorflow(folder)
    data.unlink()
    with pytest.raises(NpucError, match="missing"):
        import_tensorflow(folder)
    index = folder / "variables" / "variables.index"
    index.write_bytes(index.read_bytes()[:-3])
    with pytest.raises(NpucError, match="footer"):
        import_tensorflow(folder)


@pytest.mark.parametrize(("number", "taken"), [(0, 1.0), (1, 2.0), (2, 4.0), (7, 4.0), (-1, 4.0)])
def test_one_of_several_functions(tmp_path: Path, number: int, taken: float) -> None:
    """TensorFlow takes the last branch for a number that none has."""
    functions = [
        b.function(
            f"f{k}", ["v"], {"r": "y:z:0"}, [const("c", 2.0**k), node("y", "Mul", ["v", "c:output:0"])]
        )
        for k in range(3)
    ]
    nodes = [
        placeholder("x", 2, 3),
        const("n", number, "int32"),
        node("pick/Case", "Case", ["n", "x"], branches=[Function(f"f{k}") for k in range(3)]),
    ]
    x = normal(2, 3)
    np.testing.assert_allclose(run(imported(tmp_path, nodes, functions), x)[0], x * taken, rtol=1e-6)
    asked = [placeholder("x", 2, 3), placeholder("n", dtype=b.INT), nodes[-1]]
    with pytest.raises(UnsupportedOpError, match="its branch is computed at run time"):
        imported(tmp_path, asked, functions)


def _with_variables() -> list[bytes]:
    """A product with a variable of TensorFlow 1, and the nodes that would restore it."""
    return [
        placeholder("x", 2, 3),
        node("dense/w", "VariableV2", dtype=Type(b.FLOAT), shape=b.Shape((3, 4))),
        node("dense/w/read", "Identity", ["dense/w"], T=Type(b.FLOAT)),
        node("y", "MatMul", ["x", "dense/w/read"]),
    ]


def test_a_checkpoint_beside_a_graph(tmp_path: Path) -> None:
    kernel, x = normal(3, 4), normal(2, 3)
    path = tmp_path / "net.pb"
    path.write_bytes(graph(_with_variables()))
    with pytest.raises(InvalidModelError, match="no values for them") as refused:
        import_tensorflow(path)
    assert "--weights" in (refused.value.fix or "")
    b.write_bundle(tmp_path / "elsewhere" / "step-100", {"dense/w": kernel})
    for name in ("step-100", "step-100.index", "step-100.data-00000-of-00001", "step-100.meta"):
        imported_graph = import_tensorflow(path, ImportOptions(weights=tmp_path / "elsewhere" / name))
        np.testing.assert_allclose(run(imported_graph, x)[0], x @ kernel, rtol=1e-5)
    with pytest.raises(FileMissingError, match="no such checkpoint"):
        import_tensorflow(path, ImportOptions(weights=tmp_path / "elsewhere" / "step-200"))
    for prefix in ("net.ckpt", "net", "model.ckpt"):
        b.write_bundle(tmp_path / prefix, {"dense/w": 2 * kernel})
        beside = import_tensorflow(path)
        np.testing.assert_allclose(run(beside, x)[0], 2 * x @ kernel, rtol=1e-5)
        assert any(f"checkpoint '{prefix}'" in note for note in beside.notes)
        for file in tmp_path.glob(f"{prefix}.*"):
            if file != path:
                file.unlink()


def test_a_saved_model_takes_no_other_weights(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "m", normal(3, 4))
    with pytest.raises(UsageError, match="has its variables inside"):
        import_tensorflow(folder, ImportOptions(weights=tmp_path / "x"))


def fake_quantized(x: Array, low: Any, high: Any, bits: int = 8, narrow: bool = False) -> Array:
    """TensorFlow's FakeQuantWithMinMaxVars, from its documentation."""
    first, last = int(narrow), (1 << bits) - 1
    scale = (np.float32(high) - np.float32(low)) / np.float32(last - first)
    zero = np.floor(np.clip(first - np.float32(low) / scale, first, last) + 0.5)
    grid = np.clip(np.rint(x / scale) + zero, first, last)
    return np.asarray((grid - zero) * scale, np.float32)


@pytest.mark.parametrize(
    ("bits", "narrow", "low", "high"),
    [
        (8, False, -1.3, 2.1),
        (8, True, -2.0, 2.0),
        (4, False, -0.5, 1.0),
        (12, False, -1.5, 3.0),
        (16, False, -3.0, 3.0),
        (8, False, 0.0, 6.0),
    ],
)
def test_fake_quantization_is_quantize_and_dequantize(
    tmp_path: Path, bits: int, narrow: bool, low: float, high: float
) -> None:
    settings_of_node = {"num_bits": bits, "narrow_range": narrow}
    by_vars = [
        placeholder("x", 2, 3, 4, 5),
        const("low", low),
        const("high", high),
        node("y", "FakeQuantWithMinMaxVars", ["x", "low", "high"], **settings_of_node),
    ]
    by_args = [
        placeholder("x", 2, 3, 4, 5),
        node("y", "FakeQuantWithMinMaxArgs", ["x"], min=low, max=high, **settings_of_node),
    ]
    x = 2 * normal(2, 3, 4, 5)
    for nodes in (by_vars, by_args):
        made = imported(tmp_path, nodes)
        assert sum(isinstance(op, top.Quantize | top.Dequantize) for op in made.ops) == 2
        np.testing.assert_allclose(run(made, x)[0], fake_quantized(x, low, high, bits, narrow), atol=1e-6)


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_network_trained_with_fake_quantization_keeps_its_integers(
    tmp_path: Path, per_channel: bool
) -> None:
    kernel, x = normal(3, 3, 2, 4), normal(1, 6, 6, 2)
    high = np.abs(kernel).max(axis=(0, 1, 2)) if per_channel else np.abs(kernel).max()
    weights = "FakeQuantWithMinMaxVarsPerChannel" if per_channel else "FakeQuantWithMinMaxVars"
    nodes = [
        placeholder("x", 1, 6, 6, 2),
        node("xq", "FakeQuantWithMinMaxArgs", ["x"], min=-3.0, max=3.0),
        const("k", kernel), const("klow", -high), const("khigh", high),
        node("kq", weights, ["k", "klow", "khigh"], narrow_range=True),
        node("c", "Conv2D", ["xq", "kq"], strides=[1, 1, 1, 1], padding="SAME"),
        node("r", "Relu", ["c"]),
        node("y", "FakeQuantWithMinMaxArgs", ["r"], min=0.0, max=8.0),
    ]  # fmt: skip
    made = canonicalize(imported(tmp_path, nodes))
    plain = canonicalize(
        imported(tmp_path, [
            placeholder("x", 1, 6, 6, 2), const("k", fake_quantized(kernel, -high, high, narrow=True)),
            node("c", "Conv2D", ["x", "k"], strides=[1, 1, 1, 1], padding="SAME"), node("r", "Relu", ["c"]),
        ])
    )  # fmt: skip
    expected = fake_quantized(run(plain, fake_quantized(x, -3.0, 3.0))[0], 0.0, 8.0)
    step = 8.0 / 255
    assert (
        np.abs(run(made, x)[0] - expected).max() <= 1.01 * step
    )  # sums of floats may fall on the other side of a half
    target = load_target("edge-4t")
    integers = quantize_network(made, None, None, target).graph
    assert not [name for name in integers.float_reasons if name in ("c", "r")]
    got = IntegerEngine(integers).run({"x": x})[made.outputs[0].name]
    assert np.abs(got - expected).max() <= 1.01 * step


def test_fake_quantization_that_makes_no_sense(tmp_path: Path) -> None:
    for low, high in ((1.0, 1.0), (2.0, -2.0), (float("nan"), 1.0)):
        nodes = [
            placeholder("x", 2),
            const("a", low),
            const("b", high),
            node("y", "FakeQuantWithMinMaxVars", ["x", "a", "b"]),
        ]
        with pytest.raises(InvalidModelError, match="its range makes no sense"):
            imported(tmp_path, nodes)
    with pytest.raises(UnsupportedOpError, match="17 bits"):
        imported(tmp_path, [placeholder("x", 2), node("y", "FakeQuantWithMinMaxArgs", ["x"], num_bits=17)])
