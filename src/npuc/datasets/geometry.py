"""The way from an image to an input and back, for what a network finds in it."""

from __future__ import annotations

from dataclasses import dataclass

from npuc.arrays import Array
from npuc.images.preprocess import Preprocess
from npuc.runtime.postprocess import boxes_to_image, labels_to_image


@dataclass(frozen=True)
class ImageView:
    """An image of some size as the input of a network."""

    height: int
    width: int
    shape: tuple[int, ...]
    preprocess: Preprocess

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the input."""
        return self.preprocess.image_size(self.shape)

    def boxes(self, boxes: Array) -> Array:
        """Boxes in pixels of the input as boxes in pixels of the image."""
        return boxes_to_image(boxes, self.preprocess, self.shape, self.height, self.width)

    def labels(self, labels: Array, outside: int) -> Array:
        """Labels of the input's pixels as labels of the image's."""
        return labels_to_image(labels, self.preprocess, self.shape, self.height, self.width, outside)
