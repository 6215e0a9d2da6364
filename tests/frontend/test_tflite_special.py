"""What the exporter never writes: sparse tensors, variables, custom operators, small integers, odd files."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from hypothesis import given, settings
from hypothesis import strategies as st
from tflite import ActivationFunctionType as Fused

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import FileFormatError, InvalidModelError, UnsupportedOpError
from npuc.frontend.options import ImportOptions
from npuc.frontend.tflite import import_tflite
from npuc.frontend.tflite.registry import RULES
from npuc.transform import canonicalize
from support.networks.tflite import Net, Writer, assert_close, run_litert

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


# Sparse tensors


def encoded(
    dense: Array, blocks: dict[int, int], sparse: tuple[int, ...], order: tuple[int, ...]
) -> tuple[Array, Any]:
    """A tensor in TFLite's sparse format: its values, and what writes the description.

    `blocks` maps axes to block sizes, `order` is the traversal of the axes, `sparse` the axes that are compressed.
    """
    rank = dense.ndim
    full = dense.reshape(
        [
            n
            for axis, size in enumerate(dense.shape)
            for n in (size // blocks.get(axis, 1), blocks.get(axis, 1))
        ]
    )
    full = full.transpose(
        [2 * axis for axis in order]
        + [2 * axis + 1 for axis in blocks]
        + [2 * a + 1 for a in range(rank) if a not in blocks]
    )
    full = full.reshape(full.shape[: rank + len(blocks)])
    prefixes: list[tuple[int, ...]] = [()]
    dims: list[tuple[int, Any, Any]] = []
    for position in range(rank + len(blocks)):
        size = full.shape[position]
        if position >= rank or order[position] not in sparse:
            dims.append((size, None, None))
            prefixes = [(*prefix, i) for prefix in prefixes for i in range(size)]
            continue
        segments, indices, longer = [0], [], []
        for prefix in prefixes:
            for i in range(size):
                if np.any(full[(*prefix, i)]):
                    indices.append(i)
                    longer.append((*prefix, i))
            segments.append(len(indices))
        dims.append((0, segments, indices))
        prefixes = longer
    values = np.array([full[prefix] for prefix in prefixes], dense.dtype)

    def write(writer: Writer) -> int:
        described = []
        for size, segments, indices in dims:
            if segments is None:
                described.append(writer.table("DimensionMetadata", Format=0, DenseSize=size))
                continue
            vectors = [
                writer.table("Int32Vector", Values=writer.integers(segments)),
                writer.table("Uint8Vector", Values=writer.integers(indices, np.uint8)),
            ]
            described.append(
                writer.table(
                    "DimensionMetadata",
                    Format=1,
                    ArraySegmentsType=1,
                    ArraySegments=vectors[0],
                    ArrayIndicesType=3,
                    ArrayIndices=vectors[1],
                )
            )
        return writer.table(
            "SparsityParameters",
            TraversalOrder=writer.integers([*order, *range(rank, rank + len(blocks))]),
            BlockMap=writer.integers(list(blocks)) if blocks else None,
            DimMetadata=writer.offsets(described),
        )

    return values, write


def sparse_model(dense: Array, *form: Any) -> bytes:
    """x * weight^T with a sparse weight, made dense by an operator of its own."""
    values, write = encoded(dense, *form)
    net = Net()
    x = net.input("x", (3, dense.shape[1]))
    weight = net.constant(values)
    weight.shape = dense.shape
    made = net.op("DENSIFY", [weight], "f32", "DensifyOptions")
    made.shape = dense.shape
    y = net.op("FULLY_CONNECTED", [x, made, None], "f32", "FullyConnectedOptions")
    return bytes(Writer(net.ended(y), {weight.name: write}).run())


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    blocks=st.sampled_from([{}, {1: 4}, {0: 2, 1: 2}]),
    sparse=st.sampled_from([(1,), (0,), (0, 1)]),
    order=st.permutations([0, 1]),
    seed=st.integers(0, 1000),
)
def test_sparse_weights(blocks: dict[int, int], sparse: tuple[int, ...], order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((4, 8)).astype(np.float32) * (rng.random((4, 8)) < 0.3)
    data = sparse_model(dense.astype(np.float32), blocks, sparse, tuple(order))
    graph = import_tflite(data)
    held = next(graph.constant(op.results[0]) for op in graph.ops if op.name == "top.weight")
    assert held is not None
    np.testing.assert_array_equal(held, dense)


def test_litert_reads_the_same_sparse_weights() -> None:
    dense = normal(4, 8) * (RNG.random((4, 8)) < 0.4)
    assert_close(sparse_model(dense.astype(np.float32), {1: 4}, (1,), (0, 1)), {"x": normal(3, 8)})


def test_sparse_indices_outside_the_shape_are_refused() -> None:
    dense = np.eye(4, 8, dtype=np.float32)
    data = sparse_model(dense, {}, (1,), (0, 1))
    good = np.array([0, 1, 2, 3], np.uint8).tobytes()
    at = data.rindex(good)
    with pytest.raises(InvalidModelError, match="index outside its shape"):
        import_tflite(data[:at] + bytes([0, 1, 2, 200]) + data[at + 4 :])


def test_positions_without_values_are_not_counted_out() -> None:
    """A tensor that is called sparse, is 512 MiB, and has 8 values."""
    shape = (1 << 13, 1 << 14)

    def write(writer: Writer) -> int:
        dims = [writer.table("DimensionMetadata", Format=0, DenseSize=size) for size in shape]
        order = writer.integers([0, 1])
        return writer.table("SparsityParameters", TraversalOrder=order, DimMetadata=writer.offsets(dims))

    net = Net()
    x = net.input("x", (3, shape[1]))
    weight = net.constant(np.ones(8, np.float32))
    weight.shape = shape
    made = net.op("DENSIFY", [weight], "f32", "DensifyOptions")
    made.shape = shape
    y = net.op("FULLY_CONNECTED", [x, made, None], "f32", "FullyConnectedOptions")
    data = bytes(Writer(net.ended(y), {weight.name: write}).run())
    tracemalloc.start()
    try:
        with pytest.raises(InvalidModelError, match="has more positions than values"):
            import_tflite(data)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


# Buffers


def test_buffers_behind_the_flatbuffer() -> None:
    """Files beyond 2 GB have their weights there."""
    net = Net()
    x, weight = net.input("x", (3, 8)), normal(4, 8)
    y = net.op("FULLY_CONNECTED", [x, net.constant(weight), None], "f32", "FullyConnectedOptions")
    place = 0x1122334455667788

    class Outside(Writer):
        def _buffer(self, data: Array | None) -> int:
            return (
                self.table("Buffer") if data is None else self.table("Buffer", Offset=place, Size=data.nbytes)
            )

    head = bytes(Outside(net.ended(y)).run())
    head += bytes(-len(head) % 16)
    mark = place.to_bytes(8, "little")
    assert head.count(mark) == 1
    data = head.replace(mark, len(head).to_bytes(8, "little")) + weight.tobytes()
    assert_close(data, {"x": normal(3, 8)})
    with pytest.raises(FileFormatError, match="leads out of the file"):
        import_tflite(data[:-1])


def test_weights_of_four_bits_lie_two_in_a_byte() -> None:
    net = Net()
    x = net.input("x", (3, 5))
    codes = np.arange(-8, 7).reshape(3, 5)
    pairs = [*(codes.reshape(-1).astype(np.uint8) & 15).tolist(), 0]
    packed = np.array([a | b << 4 for a, b in zip(pairs[::2], pairs[1::2], strict=True)], np.uint8).view(
        np.int8
    )
    weight = net.constant(packed, (0.5, 0))
    weight.shape = (3, 5)
    y = net.op("FULLY_CONNECTED", [x, weight, None], "f32", "FullyConnectedOptions")
    data = bytes(Writer(net.ended(y), types={weight.name: 17}).run())
    feed = {"x": normal(3, 5)}
    (found,) = FloatEngine(import_tflite(data), threads=1).run(feed).values()
    np.testing.assert_allclose(found, feed["x"] @ (0.5 * codes.T), rtol=1e-5)


# Layers with a state


def recurrent(
    code: str, table: str, constants: dict[int, Array], states: dict[int, int], batch_major: bool
) -> bytes:
    net = Net()
    x = net.input("x", (2, 5, 3) if batch_major else (5, 2, 3))
    variables = [net._tensor(f"state{i}", (2, width), "f32", None) for i, width in states.items()]
    given: list[Any] = [x] + [None] * max(*constants, *states)
    for index, array in constants.items():
        given[index] = net.constant(array)
    for index, variable in zip(states, variables, strict=True):
        given[index] = variable
    y = net.op(code, given, "f32", table, FusedActivationFunction=Fused.TANH, TimeMajor=not batch_major)
    return bytes(Writer(net.ended(y), variables=[variable.name for variable in variables]).run())


@pytest.mark.parametrize("batch_major", [True, False])
@pytest.mark.parametrize("peephole", [True, False])
@pytest.mark.parametrize("outputs", [4, 3])
def test_lstm(batch_major: bool, peephole: bool, outputs: int) -> None:
    constants = {1 + i: normal(4, 3) for i in range(4)} | {5 + i: normal(4, outputs) for i in range(4)}
    constants |= {12 + i: normal(4) for i in range(4)}
    if peephole:
        constants |= {9 + i: normal(4) for i in range(3)}
    if outputs != 4:
        constants[16] = normal(outputs, 4)
    table = "UnidirectionalSequenceLSTMOptions"
    data = recurrent("UNIDIRECTIONAL_SEQUENCE_LSTM", table, constants, {18: outputs, 19: 4}, batch_major)
    assert_close(data, {"x": normal(2, 5, 3) if batch_major else normal(5, 2, 3)})


@pytest.mark.parametrize("batch_major", [True, False])
def test_rnn(batch_major: bool) -> None:
    constants = {1: normal(4, 3), 2: normal(4, 4), 3: normal(4)}
    data = recurrent("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions", constants, {4: 4}, batch_major)
    assert_close(data, {"x": normal(2, 5, 3) if batch_major else normal(5, 2, 3)})


def test_a_variable_that_an_operator_reads_is_refused() -> None:
    net = Net()
    x, state = net.input("x", (2, 4)), net._tensor("state", (2, 4), "f32", None)
    model = net.ended(net.op("ADD", [x, state], "f32", "AddOptions"))
    with pytest.raises(UnsupportedOpError, match="reads the variable 'state'"):
        import_tflite(bytes(Writer(model, variables=["state"]).run()))


# The custom operator of detectors


def detector(regular: bool, each: int = 1, **more: Any) -> bytes:
    options = {
        "max_detections": 6,
        "max_classes_per_detection": each,
        "detections_per_class": 4,
        "use_regular_nms": regular,
        "nms_score_threshold": 0.4,
        "nms_iou_threshold": 0.5,
        "num_classes": 3,
        "y_scale": 10.0,
        "x_scale": 10.0,
        "h_scale": 5.0,
        "w_scale": 5.0,
        **more,
    }
    net = Net()
    boxes, scores = net.input("boxes", (1, 20, 4)), net.input("scores", (1, 20, 4))
    centres = RNG.uniform(0.2, 0.8, (20, 2))
    anchors = net.constant(np.concatenate([centres, np.full((20, 2), 0.3)], 1).astype(np.float32))
    custom = bytes(flexbuffers.Dumps(options))
    code = "TFLite_Detection_PostProcess"
    outputs = net.op(code, [boxes, scores, anchors], ["f32"] * 4, custom=custom)
    return bytes(Writer(net.ended(dict(zip("bcsn", outputs, strict=True)))).run())


@pytest.mark.parametrize("regular", [True, False])
@pytest.mark.parametrize("low", [0.0, 0.35])
def test_detection_post_process(regular: bool, low: float) -> None:
    """With more detections than fit, and with fewer: what LiteRT has behind the last is what was in its memory."""
    scores = RNG.uniform(0, 1 if low == 0 else 0.45, (1, 20, 4)).astype(np.float32)
    data, inputs = detector(regular), {"boxes": normal(1, 20, 4), "scores": scores}
    expected = run_litert(data, inputs)
    count = int(expected["n"][0])
    graph = import_tflite(data)
    for network in (graph, canonicalize(graph)):
        results = FloatEngine(network, threads=1).run(inputs)
        assert results["n"] == count
        for name in "bcs":
            np.testing.assert_allclose(
                results[name][:, :count], expected[name][:, :count], rtol=1e-5, atol=1e-5
            )
            assert not results[name][:, count:].any()


def test_several_classes_for_a_box() -> None:
    scores = RNG.uniform(0, 1, (1, 20, 4)).astype(np.float32)
    assert_close(detector(False, each=2), {"boxes": normal(1, 20, 4), "scores": scores})


@pytest.mark.parametrize("axes", [(0, 1), (2, 0), (1, 2)])
def test_reverse_sequence(axes: tuple[int, int]) -> None:
    net = Net()
    x = net.input("x", (3, 4, 5))
    lengths = net.constant(np.array([1, 3, 2, 3, 1][: (3, 4, 5)[axes[0]]], np.int32))
    options = {"BatchDim": axes[0], "SeqDim": axes[1]}
    y = net.op("REVERSE_SEQUENCE", [x, lengths], "f32", "ReverseSequenceOptions", **options)
    assert_close(net.data(y), {"x": normal(3, 4, 5)})


def test_where() -> None:
    net = Net()
    x = net.input("x", (3, 4), "i1")
    y = net.op("WHERE", [x], "i64")
    data = net.data(y)
    assert_close(data, {"x": RNG.random((3, 4)) > 0.5})
    net.op("CAST", [y], "f32", "CastOptions")
    with pytest.raises(UnsupportedOpError, match="depends on data"):
        import_tflite(net.data(net.model.operators[-1].outputs[0]))


def test_options_of_the_detector_that_are_no_numbers() -> None:
    with pytest.raises(InvalidModelError, match="max_detections"):
        import_tflite(detector(False, max_detections="many"))


def test_the_page_lists_every_operator(root: Any) -> None:
    text = (root / "docs" / "import-tflite.md").read_text()
    listed = set(
        text.split("<!-- operators -->")[1].replace("`", " ").replace(",", " ").replace(".", " ").split()
    )
    assert listed == set(RULES)


def test_a_state_in_variables_is_refused_with_the_cut_that_makes_it_an_input_and_an_output() -> None:
    net = Net()
    x = net.input("x", (1, 2, 4))
    handle = net.op("VAR_HANDLE", [None, x], dtypes="i32", shape=())
    net.model.operators[-1].inputs = []
    before = net.op("READ_VARIABLE", [handle], shape=(1, 3, 4))
    joined = net.op("CONCATENATION", [before, x], table="ConcatenationOptions", shape=(1, 5, 4), Axis=1)
    y = net.op("RELU", [joined], shape=(1, 5, 4))
    kept = net.op("NEG", [before], shape=(1, 3, 4))
    net.op("ASSIGN_VARIABLE", [handle, kept], dtypes=[])
    data = net.data(y)
    with pytest.raises(UnsupportedOpError, match="keeps a state in variables") as refused:
        import_tflite(data)
    fix = refused.value.fix or ""
    begins, ends = (fix.split(f"--{word} '")[1].split("'")[0] for word in ("inputs", "outputs"))
    assert (begins, ends) == (f"x,{before.name}", f"y,{kept.name}")
    graph = import_tflite(data, ImportOptions(inputs=begins.split(","), outputs=ends.split(",")))
    assert [port.name for port in graph.inputs] == begins.split(",")
    assert [port.name for port in graph.outputs] == ends.split(",")


def test_the_cut_that_an_unknown_operator_is_refused_with_works() -> None:
    net = Net()
    x = net.input("x", (1, 4))
    made = net.op("RELU", [x], shape=(1, 4))
    half = net.op("DEQUANTIZE", [net.constant(np.ones((1, 4), np.float16))], shape=(1, 4))
    y = net.op("ATAN2", [made, half], shape=(1, 4))
    data = net.data(y)
    with pytest.raises(UnsupportedOpError) as refused:
        import_tflite(data)
    assert refused.value.fix == f"Cut the network before it, with --outputs '{made.name}'"
    assert [port.name for port in import_tflite(data, ImportOptions(outputs=[made.name])).outputs] == [
        made.name
    ]
