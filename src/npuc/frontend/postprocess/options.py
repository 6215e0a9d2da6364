"""What `--add-postprocess` takes: a kind, and options behind a colon, `yolov5:score=0.3,limit=50`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from npuc.detectors import DETECTORS, Anchors
from npuc.errors import UsageError


@dataclass(frozen=True)
class PostprocessOptions:
    """How to post-process; every field but the kind has a default that belongs to the kind."""

    kind: str
    score: float = 0.25
    """Boxes with lower scores are dropped."""
    iou: float = 0.45
    """Boxes that overlap a better one of their class by more are dropped."""
    limit: int = 100
    """Detections of an image: outputs have this length, whatever is found."""
    strides: tuple[float, ...] = ()
    """Pixels of the input for a cell of each head; empty: from the sizes of input and heads."""
    anchors: Anchors = ()
    """Widths and heights for each head, in pixels (v2: in cells)."""
    scale_xy: tuple[float, ...] = ()
    """Of each head, for v3 and v4."""
    bins: int = 16
    """Of a side of a box, for v6 and v8 to v11."""
    activated: bool = False
    """The network has applied the sigmoid (or softmax) to scores already."""
    priors: str = ""
    """A .npy file with the prior boxes of an SSD: rows of center x, y, width, height as parts of the image; empty: those that
    the network has as a constant."""
    order: str = "xywh"
    """Of the offsets of an SSD: xywh, or yxhw as TensorFlow has it."""
    background: int = 0
    """The class of an SSD that is none; -1: there is no such class."""
    variances: tuple[float, ...] = (0.1, 0.2)
    """Of an SSD, for centers and sizes."""
    k: int = 5
    """How many of topk."""

    @property
    def family(self) -> str:
        """How heads are decoded: one of `npuc.detectors.FAMILIES`; empty for what has no heads."""
        return DETECTORS[self.kind].family if self.kind in DETECTORS else ""

    @staticmethod
    def parse(text: str) -> PostprocessOptions:
        """Read `kind` or `kind:name=value,name=value`; lists have slashes, boxes of a head a plus, sides an x.

        >>> PostprocessOptions.parse("yolov8:limit=20,strides=8/16/32").strides
        (8.0, 16.0, 32.0)
        """
        kind, _, rest = text.partition(":")
        if kind not in KINDS:
            raise UsageError(
                f"--add-postprocess has no '{kind}'", fix=f"There are {', '.join(sorted(KINDS))}"
            )
        options = KINDS[kind]
        names = {option.name for option in fields(PostprocessOptions)} - {"kind"}
        for part in filter(None, rest.split(",")):
            name, separator, value = part.partition("=")
            if name not in names or not separator:
                raise UsageError(
                    f"--add-postprocess {kind}: '{part}' is not an option",
                    fix=f"Write NAME=VALUE; the names are {', '.join(sorted(names))}",
                )
            try:
                options = replace(options, **{name: _value(name, value, getattr(options, name))})
            except ValueError as error:
                raise UsageError(
                    f"--add-postprocess {kind}: {name} cannot be '{value}'",
                    fix="Write numbers; lists as 8/16/32, anchors as 10x13+16x30/30x61+62x45, yes or no as 1 or 0",
                ) from error
        _check(options)
        return options


def _value(name: str, text: str, old: Any) -> Any:
    if name == "anchors":
        heads = [
            [tuple(float(side) for side in box.split("x")) for box in head.split("+")]
            for head in text.split("/")
        ]
        if any(len(box) != 2 for head in heads for box in head):
            raise ValueError("a box has two sides")
        return tuple(tuple(head) for head in heads)
    if isinstance(old, bool):
        return {"1": True, "0": False}[text] if text in ("0", "1") else int("yes or no")
    if isinstance(old, tuple):
        return tuple(float(part) for part in text.split("/"))
    return type(old)(text)


def _check(options: PostprocessOptions) -> None:
    for name, least, most in (
        ("score", 0.0, 1.0),
        ("iou", 0.0, 1.0),
        ("limit", 1, 100_000),
        ("k", 1, 1 << 31),
        ("bins", 1, 256),
    ):
        value = getattr(options, name)
        if not least <= value <= most:
            raise UsageError(
                f"--add-postprocess {options.kind}: {name} is {value:g}, not between {least:g} and {most:g}"
            )
    if options.order not in ("xywh", "yxhw") or len(options.variances) != 2:
        raise UsageError(
            f"--add-postprocess {options.kind}: order is xywh or yxhw, and there are two variances"
        )
    if any(side <= 0 for head in options.anchors for box in head for side in box) or any(
        s <= 0 for s in options.strides
    ):
        raise UsageError(f"--add-postprocess {options.kind}: anchors and strides are above 0")


KINDS = {
    name: PostprocessOptions(
        name,
        anchors=detector.anchors,
        scale_xy=detector.scale_xy,
        bins=detector.bins,
        iou=0.45 if detector.suppress else 1.0,
    )
    for name, detector in DETECTORS.items()
} | {kind: PostprocessOptions(kind) for kind in ("ssd", "softmax", "topk")}
"""What can be asked for, with the values that the published networks have."""
