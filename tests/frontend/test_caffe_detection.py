"""The layers of Caffe's detectors: boxes and detections against OpenCV, and codes that OpenCV does not have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.networks.caffe import Shapes, assert_close, judged, layer, net, run, sample

pytest.importorskip("cv2", reason="OpenCV, the judge of Caffe's layers, is not installed")

DETECTION = {
    "centers": "code_type: CENTER_SIZE",
    "corners": "code_type: CORNER",
}


@pytest.mark.parametrize("name", DETECTION)
@pytest.mark.parametrize("shared", ["true", "false"])
@pytest.mark.parametrize("top_k", [3, 400])
def test_detections_are_those_of_opencv(tmp_path: Path, name: str, shared: str, top_k: int) -> None:
    classes, boxes = 3, 16
    groups = 1 if shared == "true" else classes
    rng = np.random.default_rng(5)
    shapes: Shapes = {
        "loc": (1, boxes * groups * 4),
        "conf": (1, boxes * classes),
        "f": (1, 4, 4, 4),
        "data": (1, 3, 64, 64),
    }
    parameters = (
        f"detection_output_param {{ num_classes: {classes} share_location: {shared} background_label_id: 0 "
        f"nms_param {{ nms_threshold: 0.3 top_k: {top_k} }} keep_top_k: 12 confidence_threshold: 0.35 {DETECTION[name]} }}"
    )
    variance = "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
    text = net(
        shapes,
        layer("PriorBox", "f data", "boxes", f"prior_box_param {{ min_size: 24 clip: false {variance} }}"),
        layer("DetectionOutput", "loc conf boxes", parameters=parameters),
    )
    inputs = {
        "loc": rng.normal(0, 0.5, shapes["loc"]).astype(np.float32),
        "conf": rng.uniform(0, 1, shapes["conf"]).astype(np.float32),
        "data": np.zeros(shapes["data"], np.float32),
        "f": np.zeros(shapes["f"], np.float32),
    }
    ours, theirs = judged(tmp_path, text, inputs)
    assert (ours["y"][0, 0, :, 2] > 0.35).sum() > 3
    assert_close(ours, theirs)


@pytest.mark.parametrize(
    "one, variance, other, same",
    [
        ("code_type: CENTER_SIZE variance_encoded_in_target: true", 0.1, "code_type: CENTER_SIZE", 1.0),
        # Every box is 24 of 64 pixels wide and high.
        ("code_type: CORNER_SIZE", 0.2, "code_type: CORNER", 0.2 * 24 / 64),
    ],
)
def test_two_codes_of_the_same_boxes(
    tmp_path: Path, one: str, variance: float, other: str, same: float
) -> None:
    shapes: Shapes = {"loc": (1, 64), "conf": (1, 32), "f": (1, 4, 4, 4), "data": (1, 3, 64, 64)}
    parameters = (
        "detection_output_param {{ num_classes: 2 nms_param {{ nms_threshold: 0.3 }} keep_top_k: 9 {} }}"
    )
    found = []
    for code, spread in ((one, variance), (other, same)):
        text = net(
            shapes,
            layer("PriorBox", "f data", "boxes", f"prior_box_param {{ min_size: 24 variance: {spread} }}"),
            layer("DetectionOutput", "loc conf boxes", parameters=parameters.format(code)),
        )
        found.append(run(tmp_path, text, sample(shapes))[0])
    assert np.count_nonzero(found[0]["y"][..., 2]) > 3
    assert_close(*found)


def test_regions_of_interest_are_those_of_opencv(tmp_path: Path) -> None:
    shapes: Shapes = {"x": (1, 3, 12, 12), "rois": (3, 5)}
    text = net(
        shapes,
        layer(
            "ROIPooling",
            "x rois",
            parameters="roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }",
        ),
    )
    rois = np.array([[0, 0, 0, 20, 20], [0, 4, 6, 12, 22], [0, 9, 9, 10, 11]], np.float32)
    assert_close(*judged(tmp_path, text, {**sample({"x": (1, 3, 12, 12)}), "rois": rois}))
