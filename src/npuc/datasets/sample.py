"""One sample on its way: what a data set lists, what is read of it, what a metric sees.

A data set lists `Entry`s: small values that travel to worker processes. There the data set's `read` makes a `Loaded` of
each, a model runs, and metrics get an `Observation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from npuc.aliases import renamed_keywords
from npuc.arrays import Array
from npuc.registries import renamed

if TYPE_CHECKING:
    from npuc.datasets.geometry import ImageView
    from npuc.runtime.postprocess import Detections


@dataclass(frozen=True)
class SampleEntry:
    """A sample that is yet to be read."""

    name: str
    """For messages and the journal; no two of a data set are alike."""
    truth: Any = None
    """What the metrics compare with: a class, a text, `Box`es. Plain values only."""
    path: Path | None = None
    row: int | None = None
    """Which sample of a file that holds many."""
    extra: Path | None = None
    """A second file that belongs to it: the mask of an image."""


class LabelledBox(NamedTuple):
    """An object in an image."""

    x1: float
    y1: float
    x2: float
    y2: float
    category: int
    area: float
    crowd: bool = False
    """It stands for many objects: what is found in it is neither right nor wrong (COCO)."""
    difficult: bool = False
    """It need not be found, and is not wrong if it is (VOC)."""


@dataclass(frozen=True)
class Boxes:
    """The objects of an image; `relative` ones are parts of its width and height."""

    boxes: tuple[LabelledBox, ...] = ()
    relative: bool = False

    def in_pixels(self, height: float, width: float) -> tuple[LabelledBox, ...]:
        """The boxes in pixels of an image of that size."""
        if not self.relative:
            return self.boxes
        return tuple(
            box._replace(
                x1=box.x1 * width,
                y1=box.y1 * height,
                x2=box.x2 * width,
                y2=box.y2 * height,
                area=box.area * width * height,
            )
            for box in self.boxes
        )


@renamed_keywords(picture="image")
@dataclass(frozen=True)
class LoadedSample:
    """What was read: a file, a decoded image, a sound, or the tensors of the inputs."""

    path: Path | None = None
    """The file, where a sample is one: what a user's preprocessing gets."""
    image: Image.Image | None = None
    sound: Array | None = None
    """Samples from -1 to 1: cut or filled up with silence to the length of the input."""
    tensors: Any = None
    """An array, or arrays by the names of inputs."""
    truth: Any = None
    """What is too large for an entry: a mask, reference outputs."""


@dataclass(frozen=True)
class Observation:
    """What a metric sees: the outputs of one model for one sample, and what is known about the sample."""

    name: str
    outputs: Mapping[str, Array]
    truth: Any
    inputs: Mapping[str, Array] = field(default_factory=dict)
    reference: Mapping[str, Array] | None = None
    """Reference outputs of the data set or, without such, the outputs of the first model."""
    classes: tuple[str, ...] = ()
    view: ImageView | None = None
    """How the image became the input; None if it was no image."""
    detections: Callable[[], Detections] | None = None
    """Decodes boxes in pixels of the image."""


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Box": LabelledBox, "Entry": SampleEntry, "Loaded": LoadedSample})
