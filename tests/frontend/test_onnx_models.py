"""Real models: imported, with and without canonical form, they compute what ONNX Runtime computes from the file.

Those of the shared folder, and those that packages on PyPI carry (installed without dependencies, never imported).
The bar is a cosine of 0.99999 on every output, on seeded inputs in the natural range of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image, ImageDraw, ImageFont

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.frontend.onnx import ImportOptions, import_onnx
from npuc.ir import Graph, dtype_of, shape_of
from npuc.transform import canonicalize
from support.shared_models import KNOWN

_SHARED = Path(__file__).resolve().parents[3] / "shared" / "models" / "onnx"
_BAR = 0.99999


def _unit(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.random(shape)


def _pixels(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 256, shape)


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def _page(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A printed page, as a text detector sees it: normalized, channels first."""
    picture = Image.new("RGB", (shape[3], shape[2]), "white")
    draw = ImageDraw.Draw(picture)
    for line in range(10, shape[2] - 10, 30):
        word = "".join(chr(letter) for letter in rng.integers(65, 91, 24))
        draw.text((10, line), word, fill="black", font=ImageFont.load_default(18))
    pixels = np.asarray(picture, np.float32).transpose(2, 0, 1)[None] / 255
    return np.broadcast_to((pixels - 0.5) / 0.25, shape)


def _quiet(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 0.1 * rng.standard_normal(shape)


def _rate(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.full(shape, 16000)


@dataclass(frozen=True)
class Model:
    """One file: the shapes to give it, and how its inputs are made."""

    file: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    values: Callable[[np.random.Generator, tuple[int, ...]], Array] = _unit
    special: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = field(default_factory=dict)
    package: str = ""
    """The package that the file is in; empty for the shared folder."""
    integer_kernels: bool = False
    """The file spells its layers QLinearConv: the same bits come only from the same integer kernels."""

    def path(self) -> Path:
        """Where the file is; the test skips if it is not there."""
        if not self.package:
            path = _SHARED / self.file
            if not path.is_file():
                pytest.skip("the folder of shared models is not here")
            return path
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            pytest.skip(f"the package {self.package} is not installed (see tests/requirements-models.txt)")
        return Path(spec.submodule_search_locations[0]) / self.file

    def inputs(self, graph: Graph, seed: int) -> dict[str, Array]:
        """Seeded inputs for an imported graph."""
        found = {}
        for index, port in enumerate(graph.inputs):
            make = self.special.get(port.name, self.values)
            array = make(np.random.default_rng([seed, index]), shape_of(port.value))
            found[port.name] = np.asarray(array, dtype_of(port.type).numpy)
        return found


_VAD = {"input": (1, 576), "state": (2, 1, 128)}
_SAMPLE_RATE = {"sr": _rate}

MODELS = (
    Model("cifar10_resnet20.onnx", {"input": (1, 3, 32, 32)}, _normal),
    Model("fastestdet.onnx"),
    Model("mediapipe_face_landmark.onnx"),
    Model("mnist.onnx", values=_pixels),
    Model("mobilenet_v2.onnx", values=_normal),
    Model("ppocrv3_text_det.onnx", {"x": (1, 3, 320, 320)}, _page),
    Model("shufflenet_v2_int8.onnx", values=_normal, integer_kernels=True),
    Model("squeezenet_v1.1.onnx", values=_pixels),
    Model("super_resolution.onnx", {"input": (1, 1, 224, 224)}),
    Model("ultraface_rfb_320.onnx"),
    Model("yolox_nano.onnx", values=_pixels),
    Model("yunet_n_320.onnx", values=_pixels),
    Model("models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}, _pixels, package="magika"),
    Model(
        "saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": (1, 43844, 1)},
        _quiet,
        package="basic_pitch",
    ),
    Model(
        "models/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}, _page, package="rapidocr_onnxruntime"
    ),
    Model(
        "models/ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}, _normal, package="rapidocr_onnxruntime"
    ),
    Model(
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (1, 3, 48, 192)},
        _normal,
        package="rapidocr_onnxruntime",
    ),
    Model("data/silero_vad.onnx", _VAD, _quiet, _SAMPLE_RATE, package="silero_vad"),
    Model("data/silero_vad_16k_op15.onnx", _VAD, _quiet, _SAMPLE_RATE, package="silero_vad"),
    Model("data/silero_vad_16k_sequence.onnx", {"input": (7, 576)}, _quiet, package="silero_vad"),
    Model("data/silero_vad_half.onnx", _VAD, _quiet, package="silero_vad"),
    Model("data/silero_vad_op18_ifless.onnx", _VAD, _quiet, _SAMPLE_RATE, package="silero_vad"),
    Model("data/silero_vad_openvino_16k.onnx", {}, _quiet, package="silero_vad"),
)


def _session(model: str | bytes, integer_kernels: bool = False) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Quantize and dequantize mean what the file says, unless it names integer kernels itself.
    options.add_session_config_entry("session.disable_quant_qdq", "0" if integer_kernels else "1")
    # Exact sums of integer products on processors without VNNI, too.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _reference(path: Path, inputs: dict[str, Array], integer_kernels: bool) -> dict[str, Array]:
    """What ONNX Runtime computes from a file; where it cannot load or run that, from the file with its flaws mended."""
    try:
        return _computed(_session(str(path), integer_kernels), inputs)
    except Exception:
        mended = _mended(onnx.load(str(path)), inputs).SerializeToString()
        return _computed(_session(mended, integer_kernels), inputs)


def _computed(session: Any, inputs: dict[str, Array]) -> dict[str, Array]:
    wanted = {entry.name for entry in session.get_inputs()}
    names = [entry.name for entry in session.get_outputs()]
    values = session.run(names, {name: array for name, array in inputs.items() if name in wanted})
    return dict(zip(names, values, strict=True))


def _mended(model: onnx.ModelProto, inputs: dict[str, Array]) -> onnx.ModelProto:
    """Static inputs, no contradicting shapes inside, and opset 1 in the words of opset 7 (ONNX Runtime's oldest)."""
    graph = model.graph
    for info in graph.input:
        if info.name in inputs:
            for dim, size in zip(info.type.tensor_type.shape.dim, inputs[info.name].shape, strict=True):
                dim.dim_value = size
    del graph.value_info[:]
    for info in graph.output:
        info.type.tensor_type.ClearField("shape")
    if min(entry.version for entry in model.opset_import) >= 7:
        return model
    model.opset_import[0].version = 7
    constants = {n.output[0]: n.attribute[0].t for n in graph.node if n.op_type == "Constant"}
    for node in graph.node:
        attributes = {
            attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
        }
        if node.op_type == "Reshape" and "shape" in attributes:
            shape = np.array(attributes["shape"], np.int64)
            graph.initializer.append(onnx.numpy_helper.from_array(shape, f"{node.output[0]}/shape"))
            node.input.append(f"{node.output[0]}/shape")
        if node.op_type == "Add" and "axis" in attributes:
            # A bias for axis 1 of an image: three axes, aligned at the end, say the same.
            bias = constants[node.input[1]]
            assert (attributes["axis"], len(bias.dims)) == (1, 1)
            bias.dims.extend([1, 1])
        old = {"broadcast", "consumed_inputs", "shape"} | ({"axis"} if node.op_type == "Add" else set())
        for index in reversed(range(len(node.attribute))):
            if node.attribute[index].name in old:
                del node.attribute[index]
    return model


def _cosine(a: Array, b: Array) -> float:
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    scale = np.linalg.norm(x) * np.linalg.norm(y)
    if scale == 0:
        return float(np.array_equal(x, y))
    return float(x @ y / scale)


def _escapes(graph: Graph) -> int:
    return sum(1 for op in graph.ops if op.name == "top.onnx")


@pytest.mark.parametrize(
    "model", MODELS, ids=lambda model: f"{model.package}:{Path(model.file).name}".lstrip(":")
)
def test_real_model_computes_what_onnx_runtime_does(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    path = model.path()
    raw = import_onnx(path, ImportOptions(input_shapes=model.shapes))
    canonical = canonicalize(raw)
    inputs = model.inputs(raw, seed=0)
    expected = _reference(path, inputs, model.integer_kernels)
    worst = 1.0
    for graph in (raw, canonical):
        graph.verify()
        # ONNX Runtime makes integer products exact without VNNI only where no two nodes share a constant, as in the raw form.
        integer_kernels = model.integer_kernels and graph is raw
        if model.integer_kernels and graph is canonical:
            expected = FloatEngine(raw, threads=1).run(inputs)
        actual = FloatEngine(graph, threads=1, integer_kernels=integer_kernels).run(inputs)
        assert list(actual) == list(expected)
        for name, value in expected.items():
            assert actual[name].shape == value.shape, name
            assert actual[name].dtype == value.dtype, name
            cosine = _cosine(actual[name], value)
            assert cosine >= _BAR, f"output '{name}': cosine {cosine:.7f}"
            worst = min(worst, cosine)
    ops = [sum(1 for _ in graph.ops) for graph in (raw, canonical)]
    with capsys.disabled():
        print(
            f"\n{path.name}: {ops[0]} ops, {ops[1]} in canonical form, of them "
            f"{_escapes(raw)} and {_escapes(canonical)} top.onnx; cosine >= {worst:.7f}"
        )


def test_every_known_shared_model_is_tested() -> None:
    listed = {f"onnx/{model.file}" for model in MODELS if not model.package}
    assert listed == {name for name in KNOWN if name.startswith("onnx/")}
