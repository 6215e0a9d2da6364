"""From outputs to answers, as plain functions of NumPy arrays: the best classes, boxes, detections."""

from npuc.runtime.postprocess.boxes import Detections, corners, detect, iou, nms, to_picture
from npuc.runtime.postprocess.scores import sigmoid, softmax, top_k
from npuc.runtime.postprocess.ssd import decode_ssd, ssd_priors
from npuc.runtime.postprocess.yolo import decode_rows, decode_v2, decode_v3, decode_v5, decode_v8, decode_x

__all__ = [
    "Detections",
    "corners",
    "decode_rows",
    "decode_ssd",
    "decode_v2",
    "decode_v3",
    "decode_v5",
    "decode_v8",
    "decode_x",
    "detect",
    "iou",
    "nms",
    "sigmoid",
    "softmax",
    "ssd_priors",
    "to_picture",
    "top_k",
]
