"""From the outputs of a detector to detections in an image: `--postprocess KIND[:NAME=VALUE,...]`.

The kinds and options are those of `--add-postprocess`, and `fastestdet`, `rows` (exports that have decoded already, with
objectness) and `rows8` (without, transposed). A network with post-processing inside gives detections itself. For
measuring, everything above a score of 0.001 is kept: a curve of precision needs its tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.datasets.geometry import ImageView
from npuc.errors import EvaluationDataError, InputDataError, UsageError
from npuc.frontend.postprocess.options import KINDS, PostprocessOptions
from npuc.runtime import postprocess as post
from npuc.runtime.postprocess import Detections
from npuc.tensors import TensorFile

Decoded = list[tuple[Array, Array]]

_MORE = ("fastestdet", "rows", "rows8")
_MEASURING = "score=0.001,limit=300"
_MEASURING_IOU = 0.65
_INSIDE = ("boxes", "scores", "classes", "count")


@dataclass(frozen=True)
class Decoder:
    """How the outputs of a detector become boxes."""

    kind: str
    options: PostprocessOptions

    @staticmethod
    def parse(text: str) -> Decoder:
        """Read `kind` or `kind:name=value,name=value`.

        >>> Decoder.parse("yolox:activated=1").options.score
        0.001
        """
        kind, _, rest = text.partition(":")
        names = sorted({*KINDS, *_MORE} - {"softmax", "topk"})
        if kind not in names:
            raise UsageError(f"--postprocess has no '{kind}'", fix=f"There are {', '.join(names)}")
        base = "yolox" if kind in _MORE else kind
        try:
            iou = max(KINDS[base].iou, _MEASURING_IOU)
            options = PostprocessOptions.parse(f"{base}:{_MEASURING},iou={iou},{rest}")
        except UsageError as error:
            words = error.message.replace("--add-postprocess", "--postprocess")
            raise UsageError(words, fix=error.fix) from error
        return Decoder(kind, options)

    def detect(self, outputs: Mapping[str, Array], view: ImageView, where: str) -> Detections:
        """The detections in one image, in its own pixels."""
        try:
            ((boxes, scores),) = self._decode(
                [np.asarray(array) for array in outputs.values()], outputs, view
            )
        except (InputDataError, ValueError) as error:
            why = error.message if isinstance(error, InputDataError) else str(error)
            shapes = ", ".join("x".join(map(str, np.shape(array))) for array in outputs.values())
            raise EvaluationDataError(
                f"--postprocess {self.kind} does not fit the outputs ({shapes}): {why}",
                where=where,
                fix="Choose another kind, or cut the network at the outputs of its last layers",
            ) from error
        options = self.options
        detections = post.detect(
            boxes, scores, score_threshold=options.score, iou_threshold=options.iou, limit=options.limit
        )
        return Detections(view.boxes(detections.boxes), detections.scores, detections.classes)

    def _decode(self, values: list[Array], outputs: Mapping[str, Array], view: ImageView) -> Decoded:
        height, width = size = view.input_size
        if self.kind in ("rows", "rows8"):
            return post.decode_rows(_only(values), objectness=self.kind == "rows")
        if self.kind == "fastestdet":
            return post.decode_fastestdet(_only(values), size)
        if self.kind == "ssd":
            return self._ssd(values, size)
        options = self.options
        if self.kind == "yolox" and len(values) == 1 and values[0].ndim == 3:
            values = _rows_to_heads(values[0], height, width, options.strides or (8.0, 16.0, 32.0))
        # The finest grid first, as strides and anchors are given.
        heads = sorted(values, key=lambda head: -int(np.prod(head.shape[2:])))
        strides = options.strides or tuple(height / head.shape[2] for head in heads if head.ndim == 4)
        if self.kind == "yolox":
            return post.decode_x(heads, strides, options.activated)
        if options.family == "yolov8":
            return post.decode_v8(heads, strides, bins=options.bins, activated=options.activated)
        if options.family == "yolov2":
            return post.decode_v2(_only(heads), options.anchors[0], strides[0])
        anchors = options.anchors
        if len(anchors) != len(heads):
            raise InputDataError(
                f"the model has {len(heads)} heads, and there are anchors for {len(anchors)}"
            )
        if options.family == "yolov5":
            return post.decode_v5(heads, anchors, strides)
        return post.decode_v3(heads, anchors, strides, options.scale_xy or 1.0)

    def _ssd(self, values: list[Array], size: tuple[int, int]) -> Decoded:
        options = self.options
        fours = [k for k, value in enumerate(values) if value.ndim == 3 and value.shape[2] == 4]
        if len(values) != 2 or not fours:
            raise InputDataError("it takes two outputs, N x priors x 4 and N x priors x classes")
        if not options.priors:
            raise InputDataError("the prior boxes are not in the network: give priors=FILE.npy")
        priors = np.asarray(next(iter(TensorFile(Path(options.priors)).values())), np.float32)
        first, second = options.variances
        given = "sigmoid" if options.order == "yxhw" else "softmax"
        return post.decode_ssd(
            values[fours[0]],
            values[1 - fours[0]],
            priors,
            size=size,
            variances=(first, second),
            order="yxhw" if options.order == "yxhw" else "xywh",
            activation="none" if options.activated else "sigmoid" if given == "sigmoid" else "softmax",
            background=options.background if options.background >= 0 else None,
        )


def inside(outputs: Mapping[str, Array], view: ImageView) -> Detections | None:
    """The detections of a network that has post-processing inside; None if it has not."""
    if any(name not in outputs for name in _INSIDE):
        return None
    count = int(np.asarray(outputs["count"]).reshape(-1)[0])
    boxes = np.asarray(outputs["boxes"]).reshape(-1, 4)[:count]
    scores, classes = (np.asarray(outputs[name]).reshape(-1)[:count] for name in ("scores", "classes"))
    return Detections(view.boxes(boxes), scores, classes)


def _only(values: list[Array]) -> Array:
    if len(values) != 1:
        raise InputDataError(f"it takes one output, and there are {len(values)}")
    return values[0]


def _rows_to_heads(rows: Array, height: int, width: int, strides: tuple[float, ...]) -> list[Array]:
    """YOLOX as it is exported: the cells of all heads as rows."""
    grids = [(int(height // stride), int(width // stride)) for stride in strides]
    if sum(a * b for a, b in grids) != rows.shape[1]:
        raise InputDataError(
            f"strides of {'/'.join(f'{s:g}' for s in strides)} do not give {rows.shape[1]} rows"
        )
    heads, start = [], 0
    for a, b in grids:
        part = rows[:, start : start + a * b].transpose(0, 2, 1)
        heads.append(part.reshape(len(rows), -1, a, b))
        start += a * b
    return heads
