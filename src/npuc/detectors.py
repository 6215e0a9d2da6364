"""Published detectors: what the outputs of their heads mean, and the anchors that they were trained with.

The one table of both: the library (`npuc.runtime.postprocess`), the nodes that are appended at import
(`npuc.frontend.postprocess`) and the C header `npu_networks.h`, which `make docs` writes, take it from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Anchors = tuple[tuple[tuple[float, float], ...], ...]
"""For each head, the finest first, widths and heights of its anchors."""

FAMILIES = {
    "yolov2": "cells with anchors in cells, softmax over the classes",
    "yolov3": "anchors in pixels, exp of the size; with scale_xy as in v4",
    "yolov5": "anchors in pixels, twice the sigmoid, squared for the size",
    "yolox": "no anchors, exp of the size in strides",
    "yolov8": "no anchors, distances to the four sides, as distributions over bins or as such",
}
"""How heads are decoded, in the order of `npu_yolo_family` in C."""


@dataclass(frozen=True)
class Detector:
    """A published network."""

    family: str
    """One of `FAMILIES`."""
    strides: tuple[float, ...] = (8, 16, 32)
    """Pixels of the input for a cell of each head."""
    anchors: Anchors = ()
    """In pixels; those of v2 in cells."""
    scale_xy: tuple[float, ...] = ()
    """Of each head, for v4."""
    bins: int = 16
    """Of a side of a box."""
    suppress: bool = True
    """False if each object has one box only, so that none needs to be suppressed."""


_V2 = (((0.57273, 0.677385), (1.87446, 2.06253), (3.33843, 5.47434), (7.88282, 3.52778), (9.77052, 9.16828)),)
_V2_VOC = (
    ((1.3221, 1.73145), (3.19275, 4.00944), (5.05587, 8.09892), (9.47112, 4.84053), (11.2364, 10.0071)),
)
_V2_TINY_VOC = (((1.08, 1.19), (3.42, 4.41), (6.63, 11.38), (9.42, 5.11), (16.62, 10.52)),)
_SMALL = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
_LARGE = (
    ((12, 16), (19, 36), (40, 28)),
    ((36, 75), (76, 55), (72, 146)),
    ((142, 110), (192, 243), (459, 401)),
)
_TINY = (((10, 14), (23, 27), (37, 58)), ((81, 82), (135, 169), (344, 319)))
_V4_TINY = (((23, 27), (37, 58), (81, 82)), ((81, 82), (135, 169), (344, 319)))
_P6 = (
    ((19, 27), (44, 40), (38, 94)),
    ((96, 68), (86, 152), (180, 137)),
    ((140, 301), (303, 264), (238, 542)),
    ((436, 615), (739, 380), (925, 792)),
)
_FOUR = (8.0, 16.0, 32.0, 64.0)

DETECTORS: dict[str, Detector] = {
    "yolov2": Detector("yolov2", (32,), _V2),
    "yolov2_voc": Detector("yolov2", (32,), _V2_VOC),
    "yolov2_tiny": Detector("yolov2", (32,), _V2),
    "yolov2_tiny_voc": Detector("yolov2", (32,), _V2_TINY_VOC),
    "yolov3": Detector("yolov3", anchors=_SMALL),
    "yolov3_spp": Detector("yolov3", anchors=_SMALL),
    "yolov3_tiny": Detector("yolov3", (16, 32), _TINY),
    "yolov4": Detector("yolov3", anchors=_LARGE, scale_xy=(1.2, 1.1, 1.05)),
    "yolov4_tiny": Detector("yolov3", (16, 32), _V4_TINY, (1.05, 1.05)),
    "yolov4_csp": Detector("yolov5", anchors=_LARGE),
    "yolov5": Detector("yolov5", anchors=_SMALL),
    "yolov5_p6": Detector("yolov5", _FOUR, _P6),
    "yolov6": Detector("yolov8", bins=1),
    "yolov6_large": Detector("yolov8", bins=17),
    "yolov7": Detector("yolov5", anchors=_LARGE),
    "yolov7_tiny": Detector("yolov5", anchors=_SMALL),
    "yolov7_w6": Detector("yolov5", _FOUR, _P6),
    "yolov8": Detector("yolov8"),
    "yolov9": Detector("yolov8"),
    "yolov10": Detector("yolov8", suppress=False),
    "yolov11": Detector("yolov8"),
    "yolox": Detector("yolox"),
}
"""By name; anchors are those of the networks for COCO unless the name says VOC."""


def networks_header() -> str:
    """The text of native/include/npu_networks.h."""
    return "\n".join([*_header(), ""])


def _header() -> Iterator[str]:
    most_heads = max(len(detector.strides) for detector in DETECTORS.values())
    most_anchors = max(len(head) for detector in DETECTORS.values() for head in detector.anchors)
    yield "/*"
    yield " * npu: published detectors by name, made by `make docs` from src/npuc/detectors.py. Do not edit."
    yield " */"
    yield "#ifndef NPU_NETWORKS_H"
    yield "#define NPU_NETWORKS_H"
    yield ""
    yield "#include <stdint.h>"
    yield ""
    yield "/* How the heads of a YOLO are decoded. */"
    yield "typedef enum npu_yolo_family {"
    for code, (name, words) in enumerate(FAMILIES.items()):
        yield f"    NPU_{name.upper()} = {code}{',' if code < len(FAMILIES) - 1 else ''} /* {words} */"
    yield "} npu_yolo_family;"
    yield ""
    yield f"#define NPU_MOST_HEADS {most_heads}"
    yield f"#define NPU_MOST_ANCHORS {most_anchors}"
    yield ""
    yield "/* What belongs to a network: heads are in the order of strides, the finest first. */"
    yield "typedef struct npu_network {"
    yield "    const char *name;"
    yield "    int32_t family; /* npu_yolo_family */"
    yield "    int32_t heads, anchors; /* anchors of a head; 0: none */"
    yield "    int32_t bins; /* of a side of a box */"
    yield "    int32_t suppress; /* 0: each object has one box */"
    yield "    float stride[NPU_MOST_HEADS], scale_xy[NPU_MOST_HEADS];"
    yield "    float anchor[NPU_MOST_HEADS][NPU_MOST_ANCHORS][2]; /* widths and heights in pixels; of v2 in cells */"
    yield "} npu_network;"
    yield ""
    yield "/* The rows of a table of them. */"
    yield "#define NPU_NETWORKS \\"
    rows = [_row(name, detector) for name, detector in DETECTORS.items()]
    yield " \\\n".join(f"    {row}" for row in rows)
    yield ""
    yield "#endif /* NPU_NETWORKS_H */"


def _row(name: str, detector: Detector) -> str:
    def numbers(values: tuple[float, ...]) -> str:
        return "{" + ", ".join(f"{float(value)!r}f" for value in values) + "}"

    heads = ", ".join("{" + ", ".join(map(numbers, head)) + "}" for head in detector.anchors) or "{{0.0f}}"
    count = len(detector.anchors[0]) if detector.anchors else 0
    scales = detector.scale_xy or (1.0,) * len(detector.strides)
    family = f"NPU_{detector.family.upper()}"
    figures = f"{len(detector.strides)}, {count}, {detector.bins}, {int(detector.suppress)}"
    return f'{{"{name}", {family}, {figures}, {numbers(detector.strides)}, {numbers(scales)}, {{{heads}}}}},'
