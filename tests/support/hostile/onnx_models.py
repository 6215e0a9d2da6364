"""Models that mean harm, one builder each: what they do, and the words that the refusal must have.

A builder gets an empty folder and returns a model, the bytes of a file, or the path of what it wrote itself. `CASES`
has them all, by name.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

Made = ModelProto | bytes | Path
Builder = Callable[[Path], Made]


@dataclass(frozen=True)
class Case:
    """One hostile file."""

    name: str
    build: Builder
    code: str
    """The error's code; empty if the file is absurd but valid, and only has to be imported in bounded time."""
    words: tuple[str, ...]
    """What the message has to name."""

    def write(self, folder: Path) -> Path:
        """The file, written in the folder."""
        model = self.build(folder)
        if isinstance(model, Path):
            return model
        path = folder / "model.onnx"
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return path


CASES: dict[str, Case] = {}


def hostile(code: str, *words: str) -> Callable[[Builder], Builder]:
    """Add a builder to `CASES`."""

    def register(build: Builder) -> Builder:
        name = build.__name__
        assert name not in CASES
        CASES[name] = Case(name, build, code, words)
        return build

    return register


def value(name: str, shape: list[int | str] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A typed name."""
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, values: object, dtype: str = "int64") -> TensorProto:
    """A constant tensor."""
    return numpy_helper.from_array(np.array(values, dtype), name)


def model(
    nodes: list[onnx.NodeProto],
    constants: list[TensorProto] | None = None,
    inputs: list[onnx.ValueInfoProto] | None = None,
    outputs: list[onnx.ValueInfoProto] | None = None,
    opset: int = 17,
    functions: list[onnx.FunctionProto] | None = None,
) -> ModelProto:
    """A model from float[4] x to float[4] y, unless told otherwise."""
    graph = helper.make_graph(
        nodes, "g", inputs or [value("x", [4])], outputs or [value("y", [4])], constants or []
    )
    imports = [helper.make_opsetid("", opset)]
    if functions:
        imports.append(helper.make_opsetid("local", 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions or [])


node = helper.make_node


def relu() -> ModelProto:
    """The model that the others are bent from."""
    return model([node("Relu", ["x"], ["y"], name="activation")])


# Files that are no ONNX files


@hostile("E102")
def empty_file(folder: Path) -> Made:
    return b""


@hostile("E102")
def text_file(folder: Path) -> Made:
    return b"The quick brown fox jumps over the lazy dog.\n" * 40


@hostile("E102")
def json_file(folder: Path) -> Made:
    return b'{"format": "onnx", "graph": {"node": []}}'


@hostile("E102")
def png_file(folder: Path) -> Made:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@hostile("E102")
def zip_file(folder: Path) -> Made:
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("model.onnx", relu().SerializeToString())
    return out.getvalue()


@hostile("E102")
def safetensors_file(folder: Path) -> Made:
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    return len(header).to_bytes(8, "little") + header + bytes(8)


@hostile("E102")
def pickle_file(folder: Path) -> Made:
    import pickle

    return pickle.dumps({"model": [1, 2, 3]})


@hostile("E102")
def zeros_only(folder: Path) -> Made:
    return bytes(4096)


@hostile("E102")
def random_bytes(folder: Path) -> Made:
    return np.random.default_rng(1).bytes(20_000)


@hostile("E101")
def a_folder(folder: Path) -> Made:
    path = folder / "model.onnx"
    path.mkdir()
    return path


@hostile("E101")
def a_missing_file(folder: Path) -> Made:
    return folder / "nothing.onnx"


@hostile("E102")
def truncated_model(folder: Path) -> Made:
    data = relu().SerializeToString()
    return data[: len(data) - 7]


@hostile("E102")
def truncated_weights(folder: Path) -> Made:
    weights = constant("w", np.zeros(30_000), "float32")
    data = model([node("Add", ["x", "w"], ["y"])], [weights]).SerializeToString()
    return data[: len(data) // 2]


# Lies in the wire format


def _field(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


@hostile("E102")
def length_beyond_the_end(folder: Path) -> Made:
    return relu().SerializeToString() + _field(7, 2) + b"\xff\xff\xff\xff\x07"


@hostile("E102")
def length_of_2_to_63(folder: Path) -> Made:
    return relu().SerializeToString() + _field(7, 2) + b"\xff" * 8 + b"\x7f"


@hostile("E102")
def varint_that_never_ends(folder: Path) -> Made:
    return relu().SerializeToString() + _field(1, 0) + b"\x80" * 5000


@hostile("E102")
def varint_of_eleven_bytes(folder: Path) -> Made:
    return relu().SerializeToString() + _field(1, 0) + b"\xff" * 10 + b"\x01"


@hostile("E102")
def group_wire_type(folder: Path) -> Made:
    return relu().SerializeToString() + _field(9, 3) * 3000


@hostile("E102")
def unknown_wire_type(folder: Path) -> Made:
    return relu().SerializeToString() + _field(9, 7) + b"\x01"


@hostile("E102")
def field_number_zero(folder: Path) -> Made:
    return relu().SerializeToString() + b"\x00\x01"


@hostile("E102")
def graph_without_nodes_and_outputs(folder: Path) -> Made:
    out = ModelProto(ir_version=8)
    out.graph.name = "nothing"
    return out


@hostile("E201", "UTF-8")
def name_that_is_not_text(folder: Path) -> Made:
    return relu().SerializeToString().replace(b"activation", b"\xff" * 10)


# Graphs that are none


@hostile("E201", "cycle")
def cycle(folder: Path) -> Made:
    return model(
        [node("Add", ["x", "b"], ["a"], name="first"), node("Relu", ["a"], ["b"]), node("Abs", ["b"], ["y"])]
    )


@hostile("E201", "cycle", "loop")
def self_loop(folder: Path) -> Made:
    return model([node("Add", ["x", "y"], ["y"], name="loop")])


@hostile("E201", "cycle")
def cycle_through_a_subgraph(folder: Path) -> Made:
    branch = helper.make_graph([node("Abs", ["y"], ["t"])], "b", [], [value("t", [4])])
    chosen = node("If", ["c"], ["a"], then_branch=branch, else_branch=branch)
    cond = constant("c", True, "bool")
    return model([chosen, node("Relu", ["a"], ["y"])], [cond])


@hostile("E201", "'y'", "already defined")
def two_producers(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"], name="second")])


@hostile("E201", "'y'")
def one_node_with_the_same_output_twice(folder: Path) -> Made:
    return model([node("TopK", ["x", "k"], ["y", "y"])], [constant("k", [4])])


@hostile("E201", "'x'")
def two_inputs_of_one_name(folder: Path) -> Made:
    out = relu()
    out.graph.input.append(value("x", [4]))
    return out


@hostile("E201", "'w'")
def two_initializers_of_one_name(folder: Path) -> Made:
    w = constant("w", [1, 2, 3, 4], "float32")
    return model([node("Add", ["x", "w"], ["y"])], [w, w])


@hostile("E201", "'x'")
def output_that_is_an_input_name(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["x"]), node("Abs", ["x"], ["y"])])


@hostile("E201", "'nowhere'", "adder")
def undeclared_input(folder: Path) -> Made:
    return model([node("Add", ["x", "nowhere"], ["y"], name="adder")])


@hostile("E201", "'missing'")
def undeclared_output(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"])], outputs=[value("missing", [4])])


@hostile("E201", "'inner'")
def a_name_of_an_inner_scope(folder: Path) -> Made:
    branch = helper.make_graph([node("Abs", ["x"], ["inner"])], "b", [], [value("inner", [4])])
    chosen = node("If", ["c"], ["a"], then_branch=branch, else_branch=branch)
    return model([chosen, node("Add", ["a", "inner"], ["y"])], [constant("c", True, "bool")])


@hostile("E201", "output")
def no_outputs(folder: Path) -> Made:
    out = relu()
    del out.graph.output[:]
    return out


# Absurd sizes


@hostile("E203", "'x'", "--input-shape")
def negative_input_dimension(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"])], inputs=[value("x", [-5, 4])])


@hostile("E207", "'x'")
def input_of_2_to_62(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"])], inputs=[value("x", [1 << 62])])


@hostile("E207", "'x'")
def input_whose_size_overflows(folder: Path) -> Made:
    # 2**32 * 2**32 is 0 in 64 bits.
    return model([node("Relu", ["x"], ["y"])], inputs=[value("x", [1 << 32, 1 << 32])])


@hostile("E201", "'w'")
def initializer_with_negative_dimension(folder: Path) -> Made:
    w = TensorProto(name="w", data_type=1, dims=[-4], raw_data=bytes(16))
    return model([node("Add", ["x", "w"], ["y"])], [w])


@hostile("E201", "'w'")
def initializer_of_2_to_62(folder: Path) -> Made:
    w = TensorProto(name="w", data_type=1, dims=[1 << 62], raw_data=bytes(16))
    return model([node("Add", ["x", "w"], ["y"])], [w])


@hostile("E201", "'w'")
def initializer_whose_size_overflows(folder: Path) -> Made:
    w = TensorProto(name="w", data_type=1, dims=[1 << 32, 1 << 32], raw_data=b"")
    return model([node("Add", ["x", "w"], ["y"])], [w])


@hostile("E201", "'w'")
def initializer_with_too_little_data(folder: Path) -> Made:
    w = TensorProto(name="w", data_type=1, dims=[1000], raw_data=bytes(16))
    return model([node("Add", ["x", "w"], ["y"])], [w])


@hostile("E201", "'w'")
def initializer_with_too_much_data(folder: Path) -> Made:
    w = TensorProto(name="w", data_type=1, dims=[4], float_data=[1.0] * 400)
    return model([node("Add", ["x", "w"], ["y"])], [w])


@hostile("E204", "'w'")
def large_initializer_with_too_little_data(folder: Path) -> Made:
    # Large enough that its bytes stay in the file.
    w = TensorProto(name="w", data_type=1, dims=[1 << 30], raw_data=bytes(100_000))
    return model([node("Add", ["x", "w"], ["y"])], [w])


@hostile("E206", "9999")
def element_type_9999(folder: Path) -> Made:
    w = TensorProto(name="w", data_type=9999, dims=[4], raw_data=bytes(16))
    return model([node("Add", ["x", "w"], ["y"])], [w])


@hostile("E206", "9999", "'x'")
def input_of_element_type_9999(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"])], inputs=[value("x", [4], 9999)])


@hostile("E206", "'x'", "sequence")
def input_that_is_a_sequence(folder: Path) -> Made:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [4]))
    return model([node("SequenceLength", ["x"], ["y"])], inputs=[helper.make_value_info("x", kind)])


@hostile("E207", "filled")
def constant_of_shape_2_to_60(folder: Path) -> Made:
    return model([node("ConstantOfShape", ["s"], ["y"], name="filled")], [constant("s", [1 << 30, 1 << 30])])


@hostile("E201", "filled")
def constant_of_negative_shape(folder: Path) -> Made:
    return model([node("ConstantOfShape", ["s"], ["y"], name="filled")], [constant("s", [-7])])


@hostile("E207", "stretched")
def expand_to_2_to_60(folder: Path) -> Made:
    shape = constant("s", [1 << 30, 1 << 28, 4])
    return model([node("Expand", ["x", "s"], ["y"], name="stretched")], [shape])


@hostile("E207", "stretched")
def expand_of_a_constant(folder: Path) -> Made:
    constants = [constant("s", [1 << 30, 1 << 28, 1]), constant("c", [1.0], "float32")]
    return model([node("Expand", ["c", "s"], ["y"], name="stretched")], constants)


@hostile("E207", "repeated")
def tile_of_2_to_40(folder: Path) -> Made:
    return model([node("Tile", ["x", "r"], ["y"], name="repeated")], [constant("r", [1 << 40])])


@hostile("E207", "repeated")
def tile_of_a_constant(folder: Path) -> Made:
    constants = [constant("r", [1 << 40]), constant("c", [1.0, 2.0], "float32")]
    return model([node("Tile", ["c", "r"], ["y"], name="repeated")], constants)


@hostile("E201", "repeated")
def tile_of_negative_repeats(folder: Path) -> Made:
    return model([node("Tile", ["x", "r"], ["y"], name="repeated")], [constant("r", [-3])])


@hostile("E207", "counted")
def range_of_2_to_40(folder: Path) -> Made:
    constants = [constant("a", 0), constant("b", 1 << 40), constant("d", 1)]
    return model([node("Range", ["a", "b", "d"], ["y"], name="counted")], constants)


@hostile("E201", "counted")
def range_with_step_zero(folder: Path) -> Made:
    constants = [constant("a", 0), constant("b", 10), constant("d", 0)]
    return model([node("Range", ["a", "b", "d"], ["y"], name="counted")], constants)


@hostile("E207", "padded")
def pad_by_2_to_40(folder: Path) -> Made:
    return model([node("Pad", ["x", "p"], ["y"], name="padded")], [constant("p", [1 << 40, 0])])


@hostile("E207", "resized")
def resize_to_2_to_40(folder: Path) -> Made:
    sizes = constant("s", [1, 1, 1 << 20, 1 << 20])
    return model(
        [node("Resize", ["x", "", "", "s"], ["y"], name="resized")], [sizes], [value("x", [1, 1, 2, 2])]
    )


@hostile("E201", "resized")
def resize_by_infinity(folder: Path) -> Made:
    scales = constant("s", [1, 1, np.inf, np.nan], "float32")
    return model(
        [node("Resize", ["x", "", "s"], ["y"], name="resized")], [scales], [value("x", [1, 1, 2, 2])]
    )


@hostile("E207", "hot")
def one_hot_of_2_to_50(folder: Path) -> Made:
    constants = [constant("i", [1, 2, 3]), constant("d", 1 << 50), constant("v", [0.0, 1.0], "float32")]
    return model([node("OneHot", ["i", "d", "v"], ["y"], name="hot")], constants)


@hostile("E207", "outer")
def outer_product_of_2_to_42(folder: Path) -> Made:
    inputs = [value("x", [1 << 21, 1]), value("z", [1, 1 << 21])]
    return model([node("MatMul", ["x", "z"], ["y"], name="outer")], inputs=inputs)


@hostile("E207", "outer")
def einsum_of_2_to_52(folder: Path) -> Made:
    c = constant("c", np.ones(1 << 13), "float32")
    product = node("Einsum", ["c"] * 4, ["y"], name="outer", equation="a,b,c,d->abcd")
    return model([product], [c])


@hostile("E207", "conv")
def convolution_with_pads_of_2_to_62(folder: Path) -> Made:
    w = constant("w", np.ones((1, 1, 3, 3)), "float32")
    conv = node("Conv", ["x", "w"], ["y"], name="conv", pads=[1 << 62] * 4)
    return model([conv], [w], [value("x", [1, 1, 8, 8])])


@hostile("E201", "conv")
def convolution_with_stride_zero(folder: Path) -> Made:
    w = constant("w", np.ones((1, 1, 3, 3)), "float32")
    return model(
        [node("Conv", ["x", "w"], ["y"], name="conv", strides=[0, 0])], [w], [value("x", [1, 1, 8, 8])]
    )


@hostile("E201", "conv")
def convolution_with_group_zero(folder: Path) -> Made:
    w = constant("w", np.ones((1, 1, 3, 3)), "float32")
    return model([node("Conv", ["x", "w"], ["y"], name="conv", group=0)], [w], [value("x", [1, 1, 8, 8])])


@hostile("E201", "pool")
def pool_with_a_negative_kernel(folder: Path) -> Made:
    pool = node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[-1, -1])
    return model([pool], inputs=[value("x", [1, 1, 8, 8])])


@hostile("E201", "joined")
def concat_axis_2_to_62(folder: Path) -> Made:
    return model([node("Concat", ["x", "x"], ["y"], name="joined", axis=1 << 62)])


@hostile("E201", "turned")
def transpose_with_a_wrong_permutation(folder: Path) -> Made:
    return model([node("Transpose", ["x"], ["y"], name="turned", perm=[0, 0, 7])])


@hostile("E201", "shaped")
def reshape_to_a_different_size(folder: Path) -> Made:
    return model([node("Reshape", ["x", "s"], ["y"], name="shaped")], [constant("s", [5, -1])])


@hostile("E201", "shaped")
def reshape_with_two_unknowns(folder: Path) -> Made:
    return model([node("Reshape", ["x", "s"], ["y"], name="shaped")], [constant("s", [-1, -1])])


@hostile("E201", "cut")
def slice_with_step_zero(folder: Path) -> Made:
    constants = [constant("a", [0]), constant("b", [4]), constant("c", [0]), constant("d", [0])]
    return model([node("Slice", ["x", "a", "b", "c", "d"], ["y"], name="cut")], constants)


@hostile("E201", "parts")
def split_into_2_to_40_parts(folder: Path) -> Made:
    return model([node("Split", ["x"], ["y"], name="parts", num_outputs=1 << 40)], opset=18)


@hostile("E201", "parts")
def split_with_more_outputs_than_sizes(folder: Path) -> Made:
    split = node("Split", ["c"], ["y", "z", "u", ""], name="parts", num_outputs=3)
    return model([split], [constant("c", [1.0, 2.0, 3.0], "float32")], opset=18)


@hostile("E201", "parts")
def split_with_more_outputs_than_given_sizes(folder: Path) -> Made:
    split = node("Split", ["c", "s"], ["y", "z", "u"], name="parts")
    return model([split], [constant("c", [1.0, 2.0, 3.0], "float32"), constant("s", [3])], opset=18)


@hostile("E201", "depth")
def depth_to_space_of_block_zero(folder: Path) -> Made:
    shuffle = node("DepthToSpace", ["x"], ["y"], name="depth", blocksize=0)
    return model([shuffle], inputs=[value("x", [1, 4, 2, 2])])


# External data


def _outside(location: str | None, **more: str) -> ModelProto:
    w = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    entries = {"location": location, **more}
    for key, entry in entries.items():
        if entry is not None:
            w.external_data.add(key=key, value=entry)
    return model([node("Add", ["x", "w"], ["y"])], [w])


@hostile("E204", "'w'", "../secret.bin")
def external_path_upwards(folder: Path) -> Made:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "secret.bin").write_bytes(bytes(16))
    (inner / "model.onnx").write_bytes(_outside("../secret.bin").SerializeToString())
    return inner / "model.onnx"


@hostile("E204", "'w'")
def external_path_upwards_in_the_middle(folder: Path) -> Made:
    (folder / "a").mkdir()
    return _outside("a/../../../../../../../../../../etc/hostname")


@hostile("E204", "'w'", "/etc/hostname")
def external_path_absolute(folder: Path) -> Made:
    return _outside("/etc/hostname")


@hostile("E204", "'w'")
def external_symbolic_link_outwards(folder: Path) -> Made:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "secret.bin").write_bytes(bytes(16))
    os.symlink(folder / "secret.bin", inner / "weights.bin")
    (inner / "model.onnx").write_bytes(_outside("weights.bin").SerializeToString())
    return inner / "model.onnx"


@hostile("E204", "'w'")
def external_link_to_a_folder_outside(folder: Path) -> Made:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "weights.bin").write_bytes(bytes(16))
    os.symlink(folder, inner / "data")
    (inner / "model.onnx").write_bytes(_outside("data/weights.bin").SerializeToString())
    return inner / "model.onnx"


@hostile("E204", "'w'", "none.bin")
def external_file_missing(folder: Path) -> Made:
    return _outside("none.bin")


@hostile("E204", "'w'")
def external_location_is_a_folder(folder: Path) -> Made:
    (folder / "data").mkdir()
    return _outside("data")


@hostile("E204", "'w'")
def external_location_is_a_pipe(folder: Path) -> Made:
    os.mkfifo(folder / "pipe")
    return _outside("pipe")


@hostile("E204", "'w'")
def external_location_empty(folder: Path) -> Made:
    return _outside("")


@hostile("E204", "'w'")
def external_location_left_out(folder: Path) -> Made:
    return _outside(None)


@hostile("E204", "'w'")
def external_location_too_long(folder: Path) -> Made:
    return _outside("x" * 5000)


@hostile("E204", "'w'")
def external_location_with_a_zero_byte(folder: Path) -> Made:
    return _outside("we\0ights.bin")


@hostile("E204", "'w'")
def external_location_with_a_line_break(folder: Path) -> Made:
    return _outside("we\nights.bin")


@hostile("E204", "'w'")
def external_offset_beyond_the_file(folder: Path) -> Made:
    (folder / "weights.bin").write_bytes(bytes(16))
    return _outside("weights.bin", offset="4096")


@hostile("E204", "'w'")
def external_length_beyond_the_file(folder: Path) -> Made:
    (folder / "weights.bin").write_bytes(bytes(16))
    return _outside("weights.bin", offset="8", length=str(1 << 62))


@hostile("E204", "'w'")
def external_offset_negative(folder: Path) -> Made:
    (folder / "weights.bin").write_bytes(bytes(16))
    return _outside("weights.bin", offset="-16", length="16")


@hostile("E204", "'w'")
def external_offset_not_a_number(folder: Path) -> Made:
    (folder / "weights.bin").write_bytes(bytes(16))
    return _outside("weights.bin", offset="0x10; rm")


@hostile("E204", "'w'")
def external_offset_of_5000_digits(folder: Path) -> Made:
    (folder / "weights.bin").write_bytes(bytes(16))
    return _outside("weights.bin", offset="9" * 5000)


@hostile("E204", "'w'")
def external_data_too_short(folder: Path) -> Made:
    (folder / "weights.bin").write_bytes(bytes(12))
    return _outside("weights.bin")


@hostile("E204", "'w'")
def external_file_empty(folder: Path) -> Made:
    (folder / "weights.bin").write_bytes(b"")
    return _outside("weights.bin")


@hostile("")
def external_location_that_stands_for_the_model(folder: Path) -> Made:
    return _outside("*", offset="0", length="16")


@hostile("E204", "'w'")
def external_location_not_text(folder: Path) -> Made:
    return _outside("locationX").SerializeToString().replace(b"locationX", b"\xff" * 9)


# Operator sets


@hostile("E202", "opset 0")
def opset_0(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"])], opset=0)


@hostile("E202", "opset 999")
def opset_999(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"])], opset=999)


@hostile("E202")
def opset_negative(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"])], opset=-3)


@hostile("E202", "no.such.domain")
def domain_that_is_not_imported(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["y"], domain="no.such.domain", name="foreign")])


@hostile("E202", "custom")
def foreign_domain_of_version_2_to_62(folder: Path) -> Made:
    out = model([node("Relu", ["x"], ["y"], domain="custom")])
    out.opset_import.append(helper.make_opsetid("custom", 1 << 62))
    return out


@hostile("E201", "NoSuchOperator")
def operator_that_does_not_exist(folder: Path) -> Made:
    return model([node("NoSuchOperator", ["x"], ["y"], name="mystery")])


@hostile("E201", "mystery")
def operator_without_a_type(folder: Path) -> Made:
    return model([node("", ["x"], ["y"], name="mystery")])


# Types and attributes


@hostile("E201", "adder")
def add_of_float_and_integer(folder: Path) -> Made:
    return model([node("Add", ["x", "w"], ["y"], name="adder")], [constant("w", [1, 2, 3, 4])])


@hostile("E201", "chosen")
def where_with_a_float_condition(folder: Path) -> Made:
    return model([node("Where", ["x", "x", "x"], ["y"], name="chosen")])


@hostile("E201", "gathered")
def gather_with_float_indices(folder: Path) -> Made:
    return model([node("Gather", ["x", "x"], ["y"], name="gathered")])


@hostile("E201", "shaped")
def reshape_with_a_float_shape(folder: Path) -> Made:
    shape = constant("s", [2.0, 2.0], "float32")
    return model([node("Reshape", ["x", "s"], ["y"], name="shaped")], [shape])


@hostile("E206", "9999")
def cast_to_9999(folder: Path) -> Made:
    return model([node("Cast", ["x"], ["y"], name="cast", to=9999)])


@hostile("E201", "axis", "joined")
def attribute_of_the_wrong_type(folder: Path) -> Made:
    return model([node("Concat", ["x", "x"], ["y"], name="joined", axis="zero")])


@hostile("E201", "axis", "joined")
def attribute_that_is_required_is_missing(folder: Path) -> Made:
    return model([node("Concat", ["x", "x"], ["y"], name="joined")])


@hostile("E201", "alpha")
def attribute_with_a_type_that_lies(folder: Path) -> Made:
    leaky = node("LeakyRelu", ["x"], ["y"], name="leaky")
    leaky.attribute.append(AttributeProto(name="alpha", type=AttributeProto.GRAPH, f=0.5))
    return model([leaky])


@hostile("E201", "alpha")
def attribute_that_refers_to_no_function(folder: Path) -> Made:
    leaky = node("LeakyRelu", ["x"], ["y"], name="leaky")
    leaky.attribute.append(AttributeProto(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope"))
    return model([leaky])


@hostile("E201", "equation", "summed")
def einsum_with_an_endless_equation(folder: Path) -> Made:
    return model([node("Einsum", ["x"], ["y"], name="summed", equation=b"\xff\xfe")])


@hostile("E201", "heads")
def attention_with_no_heads(folder: Path) -> Made:
    c = constant("c", np.ones((1, 4, 8)), "float32")
    attention = node("Attention", ["c", "c", "c"], ["y"], name="heads", q_num_heads=0, kv_num_heads=0)
    return model([attention], [c], opset=23)


@hostile("E201", "adder")
def one_input_for_two(folder: Path) -> Made:
    return model([node("Add", ["x"], ["y"], name="adder")])


@hostile("E201", "positive")
def three_inputs_for_one(folder: Path) -> Made:
    return model([node("Relu", ["x", "x", "x"], ["y"], name="positive")])


@hostile("E201", "positive")
def two_outputs_for_one(folder: Path) -> Made:
    return model([node("Relu", ["x"], ["z", "y"], name="positive")])


@hostile("E201", "adder")
def required_input_left_out(folder: Path) -> Made:
    return model([node("Add", ["", "x"], ["y"], name="adder")])


@hostile("E201", "labels")
def required_input_left_out_of_a_foreign_operator(folder: Path) -> Made:
    labels = node(
        "LabelEncoder", [""], ["y"], name="labels", domain="ai.onnx.ml", keys_strings=["a"], values_int64s=[1]
    )
    out = model([labels])
    out.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    return out


@hostile("E201", "constant")
def constant_without_a_value(folder: Path) -> Made:
    return model([node("Constant", [], ["c"], name="constant"), node("Add", ["x", "c"], ["y"])])


@hostile("E201")
def constant_without_an_output(folder: Path) -> Made:
    return model([node("Constant", [], [], name="constant", value_float=1.0), node("Add", ["x", "c"], ["y"])])


@hostile("E201", "rnn")
def lstm_with_hidden_size_2_to_40(folder: Path) -> Made:
    constants = [constant("w", np.ones((1, 16, 3)), "float32"), constant("r", np.ones((1, 16, 4)), "float32")]
    lstm = node("LSTM", ["x", "w", "r"], ["y"], name="rnn", hidden_size=1 << 40)
    return model([lstm], constants, [value("x", [2, 1, 3])])


@hostile("E201", "sparse")
def sparse_constant_with_indices_outside(folder: Path) -> Made:
    values, indices = constant("sparse", [1.0, 2.0], "float32"), constant("i", [1, 1000])
    out = model([node("Add", ["x", "sparse"], ["y"])])
    out.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    return out


@hostile("E207", "sparse")
def sparse_constant_of_2_to_60(folder: Path) -> Made:
    values, indices = constant("sparse", [1.0], "float32"), constant("i", [1])
    out = model([node("Add", ["x", "sparse"], ["y"])])
    out.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [1 << 60]))
    return out


# Subgraphs


def _nested(levels: int) -> ModelProto:
    graph = helper.make_graph([node("Relu", ["x"], ["t0"])], "g0", [], [value("t0", [4])])
    for level in range(1, levels):
        chosen = node("If", ["c"], [f"t{level}"], then_branch=graph, else_branch=graph if level < 2 else None)
        graph = helper.make_graph([chosen], f"g{level}", [], [value(f"t{level}", [4])])
    chosen = node(
        "If", ["c"], ["y"], name="outermost", then_branch=graph, else_branch=graph if levels < 3 else None
    )
    return model([chosen], [constant("c", True, "bool")])


@hostile("E102")
def subgraphs_1000_deep(folder: Path) -> Made:
    # Made by hand: protobuf itself refuses to serialize messages as deep as this.
    def message(number: int, payload: bytes) -> bytes:
        size, length = b"", len(payload)
        while length > 0x7F:
            size += bytes([length & 0x7F | 0x80])
            length >>= 7
        return bytes([number << 3 | 2]) + size + bytes([length]) + payload

    graph = helper.make_graph([node("Relu", ["x"], ["t"])], "g", [], [value("t", [4])]).SerializeToString()
    for _ in range(1000):
        attribute = message(1, b"then_branch") + message(6, graph) + bytes([0xA0, 0x01, AttributeProto.GRAPH])
        chosen = message(1, b"c") + message(2, b"t") + message(4, b"If") + message(5, attribute)
        graph = message(1, chosen)
    return b"\x08\x08" + message(7, graph) + message(8, message(1, b"") + b"\x10\x11")


@hostile("E201", "nested")
def subgraphs_25_deep(folder: Path) -> Made:
    return _nested(25)


def _if(then: onnx.GraphProto | None, other: onnx.GraphProto | None, cond: object = True) -> ModelProto:
    chosen = node("If", ["c"], ["y"], name="choice")
    if then is not None:
        chosen.attribute.append(helper.make_attribute("then_branch", then))
    if other is not None:
        chosen.attribute.append(helper.make_attribute("else_branch", other))
    return model([chosen], [constant("c", cond, "bool")])


def _branch(*outputs: str) -> onnx.GraphProto:
    return helper.make_graph([node("Relu", ["x"], ["t"])], "b", [], [value(name, [4]) for name in outputs])


@hostile("E201", "choice", "then_branch")
def if_without_a_branch(folder: Path) -> Made:
    return _if(None, _branch("t"))


@hostile("E201", "choice", "'elsewhere'")
def if_whose_branch_gives_an_unknown_tensor(folder: Path) -> Made:
    return _if(_branch("elsewhere"), _branch("t"))


@hostile("E201", "choice")
def if_whose_branch_has_no_outputs(folder: Path) -> Made:
    return _if(_branch(), _branch())


@hostile("E201", "choice")
def if_with_an_empty_condition(folder: Path) -> Made:
    return _if(_branch("t"), _branch("t"), np.zeros(0, bool))


@hostile("E201", "choice")
def if_with_a_branch_that_is_a_number(folder: Path) -> Made:
    chosen = node("If", ["c"], ["y"], name="choice", then_branch=1, else_branch=2)
    return model([chosen], [constant("c", True, "bool")])


@hostile("E201")
def if_at_run_time_with_a_malformed_branch(folder: Path) -> Made:
    broken = helper.make_graph([node("Add", [""], ["t"])], "b", [], [value("t", [4])])
    chosen = node("If", ["c"], ["y"], name="choice", then_branch=broken, else_branch=broken)
    return model([chosen], inputs=[value("x", [4]), value("c", [], TensorProto.BOOL)])


def _loop(body: onnx.GraphProto, trips: int | None, more: list[TensorProto] | None = None) -> ModelProto:
    loop = node("Loop", ["" if trips is None else "m", "c", "x"], ["y"], name="again", body=body)
    constants = [constant("c", True, "bool"), *(more or [])]
    return model([loop], [*constants, *([] if trips is None else [constant("m", trips)])])


def _body(nodes: list[onnx.NodeProto], *outputs: onnx.ValueInfoProto) -> onnx.GraphProto:
    inputs = [value("i", [], TensorProto.INT64), value("k", [], TensorProto.BOOL), value("v", [4])]
    return helper.make_graph(nodes, "body", inputs, list(outputs))


_GOING = value("k1", [], TensorProto.BOOL)
_STEP = [node("Identity", ["k"], ["k1"]), node("Relu", ["v"], ["v1"])]


@hostile("")
def loop_of_2_to_62_trips(folder: Path) -> Made:
    return _loop(_body(_STEP, _GOING, value("v1", [4])), 1 << 62)


@hostile("")
def loop_that_never_ends(folder: Path) -> Made:
    return _loop(_body(_STEP, _GOING, value("v1", [4])), None)


@hostile("")
def loops_in_loops_in_loops(folder: Path) -> Made:
    graph = _body(_STEP, _GOING, value("v1", [4]))
    for _ in range(4):
        inner = node("Loop", ["m", "k", "v"], ["v1"], body=graph)
        graph = _body([node("Identity", ["k"], ["k1"]), inner], _GOING, value("v1", [4]))
    return _loop(graph, 900)


@hostile("E201", "again")
def loop_whose_body_takes_too_few_inputs(folder: Path) -> Made:
    body = helper.make_graph([node("Relu", ["x"], ["v1"])], "body", [], [_GOING, value("v1", [4])])
    return _loop(body, 3)


@hostile("E201", "again")
def loop_whose_body_gives_too_few_outputs(folder: Path) -> Made:
    return _loop(_body(_STEP, _GOING), 3)


@hostile("E201", "again")
def loop_whose_body_gives_nothing(folder: Path) -> Made:
    return _loop(_body(_STEP), 3)


@hostile("E201", "again")
def loop_whose_body_has_a_cycle(folder: Path) -> Made:
    steps = [node("Identity", ["k"], ["k1"]), node("Add", ["v", "v1"], ["v1"])]
    return _loop(_body(steps, _GOING, value("v1", [4])), 3)


@hostile("E201", "scanned")
def scan_of_2_to_40_inputs(folder: Path) -> Made:
    body = helper.make_graph([node("Relu", ["v"], ["v1"])], "body", [value("v", [])], [value("v1", [])])
    return model([node("Scan", ["x"], ["y"], name="scanned", body=body, num_scan_inputs=1 << 40)])


@hostile("E201", "scanned")
def scan_of_a_negative_number_of_inputs(folder: Path) -> Made:
    body = helper.make_graph([node("Relu", ["v"], ["v1"])], "body", [value("v", [])], [value("v1", [])])
    return model([node("Scan", ["x"], ["y"], name="scanned", body=body, num_scan_inputs=-1)])


@hostile("")
def scan_of_a_million_steps(folder: Path) -> Made:
    body = helper.make_graph([node("Relu", ["v"], ["v1"])], "body", [value("v", [4])], [value("v1", [4])])
    scan = node("Scan", ["x"], ["y"], name="scanned", body=body, num_scan_inputs=1)
    return model([scan], inputs=[value("x", [1_000_000, 4])])


# Functions


def _function(name: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    return helper.make_function(
        "local", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    )


def _call(name: str, source: str, target: str) -> onnx.NodeProto:
    return node(name, [source], [target], domain="local")


@hostile("E201", "'f'", "itself")
def function_that_calls_itself(folder: Path) -> Made:
    return model([_call("f", "x", "y")], functions=[_function("f", [_call("f", "a", "b")])])


@hostile("E201", "itself")
def functions_that_call_each_other(folder: Path) -> Made:
    functions = [_function("f", [_call("g", "a", "b")]), _function("g", [_call("f", "a", "b")])]
    return model([_call("f", "x", "y")], functions=functions)


@hostile("E201", "itself")
def function_that_calls_itself_in_a_branch(folder: Path) -> Made:
    branch = helper.make_graph([_call("f", "a", "t")], "b", [], [value("t", [4])])
    cond = node("Constant", [], ["c"], value=constant("c", True, "bool"))
    body = [cond, node("If", ["c"], ["b"], then_branch=branch, else_branch=branch)]
    return model([_call("f", "x", "y")], functions=[_function("f", body)])


@hostile("E207", "functions")
def functions_that_double_60_times(folder: Path) -> Made:
    functions = [_function("f0", [node("Relu", ["a"], ["b"])])]
    for level in range(1, 60):
        calls = [_call(f"f{level - 1}", "a", "t"), _call(f"f{level - 1}", "t", "b")]
        functions.append(_function(f"f{level}", calls))
    return model([_call("f59", "x", "y")], functions=functions)


@hostile("E201")
def function_whose_output_is_not_defined(folder: Path) -> Made:
    return model([_call("f", "x", "y")], functions=[_function("f", [node("Relu", ["a"], ["c"])])])


@hostile("E201")
def functions_400_deep(folder: Path) -> Made:
    functions = [_function("f0", [node("NoSuchOperator", ["a"], ["b"])])]
    functions += [_function(f"f{level}", [_call(f"f{level - 1}", "a", "b")]) for level in range(1, 400)]
    return model([_call("f399", "x", "y")], functions=functions)
