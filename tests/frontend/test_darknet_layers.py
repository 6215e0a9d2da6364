"""Darknet's layers one by one: against a plain NumPy Darknet, and against OpenCV where it has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.engine import FloatEngine
from npuc.errors import InvalidModelError, OriginalError
from npuc.frontend.darknet import import_darknet, supported
from npuc.frontend.darknet.rules.activation import ACTIVATIONS
from npuc.frontend.options import ImportOptions
from npuc.import_check.original_opencv import DarknetOriginal
from npuc.runtime.postprocess import corners, decode_v2, decode_v3
from support.oracles import darknet as reference

NET = "[net]\nbatch=1\nwidth={}\nheight={}\nchannels={}\n"


def cfg(*sections: str, size: tuple[int, int, int] = (8, 10, 4)) -> str:
    """A .cfg: a section is its kind and then pairs, as in `maxpool size=2 stride=2`."""
    channels, height, width = size
    parts = []
    for section in sections:
        kind, *pairs = section.split()
        parts.append("\n".join([f"[{kind}]", *pairs]))
    return NET.format(width, height, channels) + "\n".join(parts) + "\n"


def compare(folder: Path, text: str, opencv: bool, seed: int = 1) -> None:
    """Import, plain NumPy, and OpenCV if it is to know the layers: every tensor that they have in common."""
    (_, net), *rest = reference.sections(text)
    shape = (1, int(net["channels"]), int(net["height"]), int(net["width"]))
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    numbers = reference.Numbers(seed)
    wanted = reference.run(text, x, numbers)
    path = folder / "net.cfg"
    path.write_text(text)
    path.with_suffix(".weights").write_bytes(numbers.file())
    graph = import_darknet(path)
    assert not graph.notes, graph.notes
    found = FloatEngine(graph, fetch=graph.tensor_names(), threads=1).run({"data": x})
    compared = 0
    for index, ((kind, _), value) in enumerate(zip(rest, wanted, strict=True)):
        name = f"{index}_{kind}"
        if name in found:
            compared += 1
            assert found[name].shape == value.shape, name
            scale = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-5 * scale, err_msg=name)
    assert compared
    if opencv:
        outputs = [port.name for port in graph.outputs]
        original = DarknetOriginal(path, graph, {"data": graph.inputs[0].type}, ImportOptions(), 1)
        for name, value in original.run({"data": x}, outputs).items():
            scale = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-5 * scale, err_msg=name)


CONV = "convolutional filters=6 size=3 pad=1 "
CASES: dict[str, tuple[str, bool]] = {
    "convolution": (cfg("convolutional filters=6 size=3 stride=2 pad=1 activation=leaky"), True),
    "convolution, normalized": (cfg(CONV + "batch_normalize=1 activation=leaky"), True),
    "convolution, groups": (cfg("convolutional filters=8 size=3 groups=4 padding=1 activation=linear"), True),
    "convolution, dilation": (cfg(CONV + "dilation=2 activation=relu"), False),
    "convolution, default activation": (cfg("convolutional filters=3 size=1"), False),
    "connected": (cfg("connected output=5 activation=linear"), True),
    "connected, normalized": (cfg("connected output=5 batch_normalize=1 activation=leaky"), False),
    "batchnorm": (cfg("batchnorm"), False),
    "local": (cfg("local filters=3 size=3 stride=2 pad=1 activation=leaky"), False),
    "local, no pad": (cfg("local filters=3 size=2 stride=1 activation=linear"), False),
    "avgpool": (cfg("avgpool"), True),
    "route, several": (cfg(CONV + "activation=leaky", "maxpool size=3 stride=1", "route layers=-1,0"), True),
    "route, part": (cfg(CONV + "activation=leaky", "route layers=-1 groups=2 group_id=1"), True),
    "route, part of the first": (
        cfg(CONV + "activation=leaky", "route layers=-1 groups=3 group_id=0"),
        True,
    ),
    "shortcut": (cfg(CONV + "activation=leaky", CONV + "activation=linear", "shortcut from=-2"), True),
    "shortcut, activated": (
        cfg(CONV + "activation=leaky", CONV + "activation=linear", "shortcut from=-2 activation=leaky"),
        True,
    ),
    "shortcut, fewer channels": (
        cfg(
            "convolutional filters=4 size=1 activation=linear",
            CONV + "activation=linear",
            "shortcut from=-2 activation=linear",
        ),
        False,
    ),
    "shortcut, more pixels": (
        cfg(
            "convolutional filters=9 size=1 activation=linear",
            CONV + "stride=2 activation=linear",
            "shortcut from=-2 activation=linear",
        ),
        False,
    ),
    "shortcut, weights": (
        cfg(
            CONV + "activation=linear",
            CONV + "activation=linear",
            "shortcut from=-2 weights_type=per_feature weights_normalization=softmax",
        ),
        False,
    ),
    "shortcut, weights of channels": (
        cfg(
            CONV + "activation=linear",
            CONV + "activation=linear",
            CONV + "activation=linear",
            "shortcut from=-2,-3 weights_type=per_channel weights_normalization=relu",
        ),
        False,
    ),
    "scale_channels": (
        cfg(
            CONV + "activation=linear",
            "avgpool",
            "convolutional filters=6 size=1 activation=logistic",
            "scale_channels from=-3",
        ),
        True,
    ),
    "sam": (
        cfg(
            CONV + "activation=linear",
            "convolutional filters=6 size=1 activation=logistic",
            "sam from=-2 activation=linear",
        ),
        True,
    ),
    "upsample": (cfg("upsample stride=2"), True),
    "upsample, scaled": (cfg("upsample stride=3 scale=0.5"), False),
    "reorg": (cfg("reorg stride=2", size=(8, 6, 4)), True),
    "reorg, backwards": (cfg("reorg stride=2 reverse=1", size=(8, 3, 4)), False),
    "dropout, softmax and cost": (
        cfg("avgpool", "dropout probability=.5", "softmax groups=1", "cost type=sse"),
        True,
    ),
    "softmax, groups": (cfg("connected output=6 activation=linear", "softmax groups=2 temperature=2"), False),
    "crop": (cfg("crop crop_height=6 crop_width=3"), False),
    "crop, as it is": (cfg("crop crop_height=8 crop_width=2 noadjust=1"), False),
    "normalization": (cfg("normalization size=3 alpha=0.5 beta=0.75 kappa=2"), False),
    "activation layer": (cfg("activation activation=mish"), False),
}
OPENCV_ACTIVATIONS = {"linear", "relu", "leaky", "logistic", "tanh", "mish", "swish"}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_is_as_in_darknet(tmp_path: Path, name: str) -> None:
    text, opencv = CASES[name]
    if opencv:
        pytest.importorskip("cv2")
    compare(tmp_path, text, opencv)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_as_in_darknet(tmp_path: Path, name: str) -> None:
    opencv = name in OPENCV_ACTIVATIONS
    if opencv:
        pytest.importorskip("cv2")
    compare(tmp_path, cfg(f"convolutional filters=4 size=1 activation={name}"), opencv)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    size=st.integers(1, 6),
    stride=st.integers(1, 4),
    padding=st.one_of(st.none(), st.integers(0, 5)),
    height=st.integers(4, 13),
    width=st.integers(4, 13),
)
def test_maxpool_pads_as_darknet_does(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    stride: int,
    padding: int | None,
    height: int,
    width: int,
) -> None:
    size = min(size, 4)
    stride = min(stride, size)
    words = "" if padding is None else f" padding={min(padding, size - 1)}"
    text = cfg(f"maxpool size={size} stride={stride}{words}", size=(2, height, width))
    compare(tmp_path_factory.mktemp("pool"), text, padding is None)


def test_every_kind_of_layer_with_a_rule_is_tested_or_listed() -> None:
    tested = {kind for text, _ in CASES.values() for kind, _ in reference.sections(text)[1:]}
    elsewhere = {
        "maxpool",
        "yolo",
        "region",
        "detection",
        "deconvolutional",
        "logistic",
        "l2norm",
        "local_avgpool",
    }
    synonyms = {"reorg3d", "silence", "empty"}
    assert set(supported()) == (tested | elsewhere | synonyms) - {"cost"}
    assert all(supported().values()), "every rule says its limits"


def test_the_few_layers_that_neither_judge_has(tmp_path: Path) -> None:
    path = tmp_path / "net.cfg"
    x = np.random.default_rng(2).standard_normal((1, 4, 6, 8)).astype(np.float32)

    def run(*layers: str) -> np.ndarray:
        path.write_text(cfg(*layers, size=(4, 6, 8)))
        (found,) = FloatEngine(import_darknet(path), threads=1).run({"data": x}).values()
        return found

    np.testing.assert_allclose(run("logistic"), 1 / (1 + np.exp(-x)), atol=1e-6)
    np.testing.assert_allclose(run("l2norm"), x / np.sqrt((x**2).sum(1, keepdims=True)), atol=1e-6)
    blocks = x.reshape(1, 4, 3, 2, 4, 2)
    np.testing.assert_allclose(run("local_avgpool size=2 stride=2"), blocks.mean((3, 5)), atol=1e-6)
    np.testing.assert_array_equal(
        run("reorg3d stride=2"), blocks.transpose(0, 3, 5, 1, 2, 4).reshape(1, 16, 3, 4)
    )
    assert run("deconvolutional filters=5 size=4 stride=2 padding=1 activation=linear").shape == (
        1,
        5,
        12,
        16,
    )


HEAD = "classes=3 num=4 anchors=4,5,6,9,11,8,20,17"
HEADS = {
    "yolo": f"yolo {HEAD} mask=1,2",
    "yolo, stretched": f"yolo {HEAD} mask=0,3 scale_x_y=1.2",
    "yolo, new coordinates": f"yolo {HEAD} mask=0,3 scale_x_y=2.0 new_coords=1",
    "region": "region classes=3 num=2 coords=4 softmax=1 anchors=0.5,0.7,2,3",
}


@pytest.mark.parametrize("name", ["yolo", "yolo, stretched", "yolo, new coordinates"])
def test_a_head_is_decoded_where_it_is_asked_for(tmp_path: Path, name: str) -> None:
    pytest.importorskip("cv2")
    kind = HEADS[name].split()[0]
    activation = "logistic" if "new" in name else "linear"
    path = tmp_path / "net.cfg"
    path.write_text(
        cfg(f"convolutional filters=16 size=1 activation={activation}", HEADS[name], size=(4, 6, 8))
    )
    x = np.random.default_rng(3).standard_normal((1, 4, 6, 8)).astype(np.float32)
    options = ImportOptions(outputs=(f"1_{kind}",))
    graph = import_darknet(path, options)
    found = FloatEngine(graph, threads=1).run({"data": x})[f"1_{kind}"]
    assert found.shape == (1, 6 * 8 * 2, 8)
    original = DarknetOriginal(path, graph, {"data": graph.inputs[0].type}, options, 1)
    np.testing.assert_allclose(
        found, original.run({"data": x}, [f"1_{kind}"])[f"1_{kind}"], atol=1e-5, rtol=1e-5
    )


def test_a_region_is_that_of_opencv_but_for_boxes_that_it_drops(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / "net.cfg"
    text = cfg("convolutional filters=16 size=1 activation=linear", HEADS["region"], size=(4, 6, 8))
    numbers = reference.Numbers(1)
    x = np.random.default_rng(3).standard_normal((1, 4, 6, 8)).astype(np.float32)
    reference.run(text, x, numbers)
    path.write_text(text)
    path.with_suffix(".weights").write_bytes(numbers.file())
    options = ImportOptions(outputs=("1_region",))
    graph = import_darknet(path, options)
    (found,) = FloatEngine(graph, threads=1).run({"data": x}).values()
    theirs = cv2.dnn.readNetFromDarknet(str(path), str(path.with_suffix(".weights")))
    theirs.setInput(x)
    rows = theirs.forward().reshape(found.shape)
    np.testing.assert_allclose(found[..., :5], rows[..., :5], atol=1e-5)
    kept = rows[..., 5:] > 0
    assert kept.mean() > 0.5
    np.testing.assert_allclose(found[..., 5:][kept], rows[..., 5:][kept], atol=1e-5)
    with pytest.raises(OriginalError, match="region"):
        DarknetOriginal(path, graph, {"data": graph.inputs[0].type}, options, 1)


def test_classes_of_a_region_may_be_independent(tmp_path: Path) -> None:
    path = tmp_path / "net.cfg"
    path.write_text(cfg("region classes=3 num=2 softmax=0 anchors=0.5,0.7,2,3", size=(16, 6, 8)))
    x = np.random.default_rng(3).standard_normal((1, 16, 6, 8)).astype(np.float32)
    (rows,) = (
        FloatEngine(import_darknet(path, ImportOptions(outputs=("0_region",))), threads=1)
        .run({"data": x})
        .values()
    )
    table = (1 / (1 + np.exp(-x))).transpose(0, 2, 3, 1).reshape(1, -1, 8)
    np.testing.assert_allclose(rows[..., 5:], table[..., 5:] * table[..., 4:5], atol=1e-6)


@pytest.mark.parametrize("name", ["yolo", "yolo, stretched", "region"])
def test_a_head_that_is_cut_off_is_decoded_by_the_runtime(tmp_path: Path, name: str) -> None:
    """The functions of `runtime.postprocess` give the boxes and scores of the head, in another order and unit."""
    kind = HEADS[name].split()[0]
    path = tmp_path / "net.cfg"
    size = (4, 6, 8)
    path.write_text(cfg("convolutional filters=16 size=1 activation=linear", HEADS[name], size=size))
    graph = import_darknet(path)
    advice = {"yolo": "yolov3:anchors=6x9+11x8 ", "region": "yolov2:anchors=0.5x0.7+2x3 "}
    assert advice.get(name, "yolov4:anchors=4x5+20x17,scale_xy=1.2 ") in graph.notes[-1]
    assert [port.name for port in graph.outputs] == ["0_convolutional"]
    x = np.random.default_rng(3).standard_normal((1, *size)).astype(np.float32)
    raw = FloatEngine(graph, threads=1).run({"data": x})["0_convolutional"]
    both = import_darknet(path, ImportOptions(outputs=(f"1_{kind}",)))
    rows = FloatEngine(both, threads=1).run({"data": x})[f"1_{kind}"][0]
    if kind == "region":
        ((boxes, scores),) = decode_v2(raw, [(0.5, 0.7), (2, 3)], 1)
    else:
        anchors, scale = ([(6, 9), (11, 8)], 1.0) if name == "yolo" else ([(4, 5), (20, 17)], 1.2)
        ((boxes, scores),) = decode_v3([raw], [anchors], [1], scale)
    by_anchor = rows.reshape(48, 2, 8).transpose(1, 0, 2).reshape(-1, 8)
    pixels = by_anchor[:, :4] * np.array([8, 6, 8, 6], np.float32)
    np.testing.assert_allclose(corners(pixels), boxes, atol=1e-4)
    np.testing.assert_allclose(by_anchor[:, 5:], scores, atol=1e-5)


@pytest.mark.parametrize("version", [(0, 1), (0, 2), (1, 0)])
def test_headers_of_all_versions(tmp_path: Path, version: tuple[int, int]) -> None:
    text = cfg("convolutional filters=3 size=1 activation=linear")
    numbers = reference.Numbers(1)
    x = np.ones((1, 8, 10, 4), np.float32)
    wanted = reference.run(text, x, numbers)[0]
    path = tmp_path / "net.cfg"
    path.write_text(text)
    path.with_suffix(".weights").write_bytes(numbers.file(*version))
    found = FloatEngine(import_darknet(path), threads=1).run({"data": x})["0_convolutional"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_weights_of_connected_layers_may_lie_the_other_way(tmp_path: Path) -> None:
    bias, weight = np.arange(3, dtype="<f4"), np.arange(24, dtype="<f4")
    path = tmp_path / "net.cfg"
    path.write_text(cfg("avgpool", "connected output=3 activation=linear"))
    header = np.array([0, 1001, 0, 0], "<i4").tobytes()
    path.with_suffix(".weights").write_bytes(header + bias.tobytes() + weight.tobytes())
    x = np.random.default_rng(0).standard_normal((1, 8, 10, 4)).astype(np.float32)
    found = FloatEngine(import_darknet(path), threads=1).run({"data": x})["1_connected"]
    np.testing.assert_allclose(found[0, :, 0, 0], x.mean((2, 3))[0] @ weight.reshape(8, 3) + bias, rtol=1e-5)


def test_a_cut_network_reads_the_right_weights(tmp_path: Path) -> None:
    """Weights have no marks: those of a layer in the middle are found only by walking over the layers before it."""
    text = cfg(
        "convolutional filters=6 size=3 pad=1 activation=leaky",
        "convolutional filters=5 size=1 activation=leaky",
        "route layers=0",
        "convolutional filters=4 size=3 pad=1 activation=leaky",
    )
    numbers = reference.Numbers(1)
    x = np.random.default_rng(0).standard_normal((1, 8, 10, 4)).astype(np.float32)
    wanted = reference.run(text, x, numbers)
    path = tmp_path / "net.cfg"
    path.write_text(text)
    path.with_suffix(".weights").write_bytes(numbers.file())
    graph = import_darknet(path, ImportOptions(inputs=("0_convolutional",), outputs=("3_convolutional",)))
    first = wanted[0].astype(np.float32)
    found = FloatEngine(graph, threads=1).run({"0_convolutional": first})["3_convolutional"]
    np.testing.assert_allclose(found, wanted[3], atol=1e-4)


BROKEN = {
    "a layer that is not there": (cfg("route layers=-2"), "not a layer before it"),
    "itself": (cfg("route layers=0"), "not a layer before it"),
    "one behind it": (cfg("shortcut from=5"), "not a layer before it"),
    "no source": (cfg("route"), "no 'layers'"),
    "channels do not divide": (cfg("route layers=0 groups=3", size=(8, 4, 4)), "not a layer before it"),
    "groups": (cfg("convolutional filters=5 groups=4"), "8 channels to 5 in 4 groups"),
    "absurd size": (cfg("convolutional filters=4 size=9000"), "between 1 and 4096"),
    "not a number": (cfg("maxpool size=two"), "not an integer"),
    "not finite": (cfg("convolutional filters=nan"), "not an integer"),
    "a head that does not fit": (cfg("yolo classes=3 num=2 anchors=1,2,3,4 mask=0,1"), ""),
    "mask": (cfg("yolo classes=3 num=2 anchors=1,2,3,4 mask=0,7"), ""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_nonsense_is_refused(tmp_path: Path, name: str) -> None:
    text, words = BROKEN[name]
    path = tmp_path / "net.cfg"
    path.write_text(text)
    with pytest.raises(InvalidModelError) as error:
        import_darknet(path, ImportOptions(outputs=("0_yolo",)) if "yolo" in text else None)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_judge_that_cannot_read_a_network_says_so(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    path = tmp_path / "net.cfg"
    path.write_text(cfg("local filters=3 size=3 stride=1 pad=1 activation=leaky"))
    graph = import_darknet(path)
    with pytest.raises(OriginalError, match="OpenCV"):
        DarknetOriginal(path, graph, {"data": graph.inputs[0].type}, ImportOptions(), 1)
