"""Detectors from an image to boxes: a compiled network in Python and in C, and a decode that is neither's.

The judge is the network's own tail: YOLOv8's arithmetic behind its heads, and SSD's DetectionOutput with the priors of the model,
both as they were imported and run in float on the heads that the compiled network gave.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_detect_c import Detection, Ssd, as_c, check, function, network, pointer, real, suppressed

from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions
from npuc.engine import FloatEngine
from npuc.flow import ImportOptions, compile_network, import_model
from npuc.ir import Graph
from npuc.native import library
from npuc.program.file import load_compiled, save_compiled
from npuc.quant import SCHEMES, quantize
from npuc.runtime import Runner
from npuc.runtime import postprocess as pp
from npuc.target import load_target

pytestmark = pytest.mark.slow
CAPACITY = 5000


def compiled(graph: Graph, sample: dict[str, Array], path: Path) -> Path:
    """The network for edge-4t, with ranges of one sample."""
    seen = FloatEngine(graph, fetch=graph.tensor_names()).run(sample) | sample
    ranges = {name: (float(value.min()), float(value.max())) for name, value in seen.items()}
    options = CompileOptions(level=0)
    save_compiled(
        compile_network(quantize(graph, ranges, SCHEMES["int8"]), load_target("edge-4t"), options).model, path
    )
    return path


def run_in_c(path: Path, x: Array, outputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs of npu_run, of the sizes that Python's have."""
    core, model = library(), ctypes.c_void_p()
    core.npu_error.restype = ctypes.c_char_p
    assert core.npu_load(str(path).encode(), ctypes.byref(model)) == 0, core.npu_error()
    given = np.ascontiguousarray(x)
    results = {name: np.empty_like(outputs[name]) for name in load_compiled(path).outputs}
    pointers = (ctypes.c_void_p * len(results))(*(array.ctypes.data for array in results.values()))
    assert core.npu_run(model, (ctypes.c_void_p * 1)(given.ctypes.data), pointers) == 0, core.npu_error()
    core.npu_free.restype = None
    core.npu_free(model)
    return results


def run_both(path: Path, name: str, x: Array) -> dict[str, Array]:
    """The outputs in Python, which C has to the bit."""
    with Runner(path) as runner:
        ours = runner.run({name: x})
    theirs = run_in_c(path, x, ours)
    for output, value in ours.items():
        np.testing.assert_array_equal(theirs[output], value)
    return ours


def test_yolov8n(shared: Path, tmp_path: Path) -> None:
    model = shared / "repro/yolov8n_scores_lost.pt2"
    if not model.is_file():
        pytest.skip("the network is not here")
    names = [f"model.22.cv{kind}.{scale}.2" for scale in range(3) for kind in (2, 3)]
    with np.load(shared / "repro/yolov8n_scores_lost_calib.npz") as data:
        samples = data["x"]
    body = import_model(model, ImportOptions(outputs=tuple(names)))
    path = compiled(body, {"x": samples[:1]}, tmp_path / "y8.npu")
    outputs = run_both(path, "x", samples[1:2])
    heads = [
        np.concatenate([outputs[names[2 * scale]], outputs[names[2 * scale + 1]]], axis=1)
        for scale in range(3)
    ]
    tail = import_model(model, ImportOptions(inputs=tuple(names)))
    (rows,) = FloatEngine(tail).run({name: outputs[name] for name in names}).values()
    center, size = rows[0, :2].T, rows[0, 2:4].T
    judged = np.concatenate([center - size / 2, center + size / 2], axis=1)
    ((boxes, scores),) = pp.decode_yolo("yolov8", heads)
    np.testing.assert_allclose(boxes, judged, atol=2e-3)
    np.testing.assert_allclose(scores, rows[0, 4:].T, atol=1e-5)
    least = float(np.sort(scores.max(axis=1))[-60])
    out = (Detection * CAPACITY)()
    flat = [np.ascontiguousarray(head[0]) for head in heads]
    count = function("npu_decode_yolo")(network("yolov8"), as_c(flat), 0, real(least), out, CAPACITY)
    check(suppressed(out, count, 0.5), pp.detect(boxes, scores, score_threshold=least, iou_threshold=0.5))


def test_an_ssd_with_priors_of_the_model(shared: Path, tmp_path: Path) -> None:
    model = shared / "models/caffe/wechat_detect.prototxt"
    names = ("mbox_loc", "mbox_conf_flatten")
    body = import_model(model, ImportOptions(outputs=names))
    rng = np.random.default_rng(1)
    # Finder patterns of a QR code on noise, which is what the network looks for.
    image = rng.uniform(0.4, 0.6, (1, 1, 384, 384)).astype(np.float32)
    for top, left in ((100, 100), (100, 230), (230, 100)):
        for inset, value in ((0, 0.0), (6, 1.0), (12, 0.0)):
            image[..., top + inset : top + 42 - inset, left + inset : left + 42 - inset] = value
    path = compiled(body, {"data": image}, tmp_path / "ssd.npu")
    outputs = run_both(path, "data", image)
    priors_alone = import_model(model, ImportOptions(outputs=("mbox_priorbox",)))
    (stated,) = FloatEngine(priors_alone).run({port.name: image for port in priors_alone.inputs}).values()
    tail = import_model(model, ImportOptions(inputs=(*names, "mbox_priorbox")))
    judged = FloatEngine(tail).run({**outputs, "mbox_priorbox": stated})
    table: Any = judged["detection_output"].reshape(-1, 7)
    priors, variances = centered(stated)
    offsets = outputs["mbox_loc"].reshape(1, -1, 4)
    scores = outputs["mbox_conf_flatten"].reshape(1, -1, 2)
    ((boxes, odds),) = pp.decode_ssd(
        offsets, scores, priors, size=(384, 384), variances=variances, activation="none"
    )
    wanted = pp.detect(boxes, odds, score_threshold=0.2, iou_threshold=0.45, limit=100)
    rows = table[table[:, 2] > 0]
    assert len(rows) == len(wanted) >= 1
    np.testing.assert_allclose(wanted.scores, rows[:, 2], atol=1e-6)
    np.testing.assert_allclose(np.clip(wanted.boxes / 384, 0, 1), np.clip(rows[:, 3:], 0, 1), atol=1e-5)
    how = Ssd(len(priors), 2, 0, 0, 0, (ctypes.c_float * 2)(*variances), 384, 384)
    out = (Detection * CAPACITY)()
    flat = [np.ascontiguousarray(array.reshape(-1)) for array in (offsets, scores, priors)]
    count = function("npu_decode_ssd")(ctypes.byref(how), *map(pointer, flat), real(0.2), out, CAPACITY)
    check(suppressed(out, count, 0.45, 100), wanted, least=1)


def centered(stated: Array) -> tuple[Array, tuple[float, float]]:
    """The priors that a model states by their corners, as centers and sizes, and their variances."""
    corners, variances = stated.reshape(2, -1, 4)
    low, high = corners[:, :2], corners[:, 2:]
    assert np.ptp(variances, axis=0).max() == 0
    centers = np.concatenate([(low + high) / 2, high - low], axis=1).astype(np.float32)
    return centers, (float(variances[0, 0]), float(variances[0, 2]))
