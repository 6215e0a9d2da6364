"""From outputs to answers, as plain functions of NumPy arrays: the best classes, boxes, keywords, masks."""

from typing import Any

from npuc.registries import renamed
from npuc.runtime.postprocess.boxes import Detections, boxes_to_image, corners, detect, iou, nms
from npuc.runtime.postprocess.fastestdet import decode_fastestdet
from npuc.runtime.postprocess.keywords import Keyword, KeywordSpotter
from npuc.runtime.postprocess.rcnn import decode_rcnn, decode_rpn, rpn_anchors, rpn_rows
from npuc.runtime.postprocess.scores import sigmoid, softmax, top_k
from npuc.runtime.postprocess.segmentation import label_map, labels_to_image, mean_iou, overlay, palette
from npuc.runtime.postprocess.ssd import decode_ssd, ssd_priors
from npuc.runtime.postprocess.yolo import (
    decode_final,
    decode_rows,
    decode_v2,
    decode_v3,
    decode_v5,
    decode_v8,
    decode_x,
    decode_yolo,
)

__all__ = [
    "Detections",
    "Keyword",
    "KeywordSpotter",
    "boxes_to_image",
    "corners",
    "decode_fastestdet",
    "decode_final",
    "decode_rcnn",
    "decode_rows",
    "decode_rpn",
    "decode_ssd",
    "decode_v2",
    "decode_v3",
    "decode_v5",
    "decode_v8",
    "decode_x",
    "decode_yolo",
    "detect",
    "iou",
    "label_map",
    "labels_to_image",
    "mean_iou",
    "nms",
    "overlay",
    "palette",
    "rpn_anchors",
    "rpn_rows",
    "sigmoid",
    "softmax",
    "ssd_priors",
    "top_k",
]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"to_picture": boxes_to_image, "labels_to_picture": labels_to_image})
