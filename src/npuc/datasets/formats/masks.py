"""Segmentation: a folder of images and one of masks, whose pixels are the numbers of classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from npuc.arrays import Array
from npuc.datasets.data import DataLocation, DataSet, class_names, dataset, files_in, subfolder
from npuc.datasets.sample import LoadedSample, SampleEntry
from npuc.errors import EvaluationDataError, FileFormatError
from npuc.images.loading import MAX_PIXELS, SUFFIXES
from npuc.tensors import TensorFile

_MASKS = ("masks", "SegmentationClass", "annotations", "gtFine")
_KINDS = (".png", ".bmp", ".npy", ".tif", ".tiff")


def read_mask(path: Path) -> Array:
    """The labels of a mask: pixels of a gray or indexed image as they are, or a matrix in a file of tensors."""
    if path.suffix == ".npy":
        labels = np.asarray(next(iter(TensorFile(path).values()))).squeeze()
    else:
        try:
            with Image.open(path, formats=("PNG", "BMP", "TIFF")) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise FileFormatError(f"has more than {MAX_PIXELS} pixels", where=str(path))
                if image.mode not in ("1", "L", "P", "I", "I;16"):
                    raise FileFormatError(
                        f"is an image of colours ({image.mode}), and a mask has the numbers of classes",
                        where=str(path),
                        fix="Save it gray or with a palette",
                    )
                labels = np.asarray(image).astype(np.int32)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise FileFormatError(f"cannot be decoded as a mask ({error})", where=str(path)) from error
    if labels.ndim != 2 or labels.dtype.kind not in "biu" or (labels.size and labels.min() < 0):
        raise FileFormatError("is not a matrix of classes", where=str(path))
    return labels.astype(np.int32)


def read_pair(entry: SampleEntry) -> LoadedSample:
    """An image and its mask."""
    assert entry.extra is not None
    return LoadedSample(entry.path, truth=read_mask(entry.extra))


def _folders(place: DataLocation) -> tuple[Path | None, Path | None]:
    if not place.path.is_dir():
        return None, None
    return place.images or subfolder(place.path, "images", "JPEGImages"), place.annotations or subfolder(
        place.path, *_MASKS
    )


def _matches(place: DataLocation) -> bool:
    images, masks = _folders(place)
    return images is not None and masks is not None and masks.is_dir()


@dataset("masks", matches=_matches)
def masks(place: DataLocation) -> DataSet:
    """`images/` and `masks/`: images, and images of the same name whose pixels are classes."""
    images, folder = _folders(place)
    if images is None or folder is None or not folder.is_dir():
        raise EvaluationDataError("has no folders 'images' and 'masks'", where=str(place.path))
    known = {path.relative_to(folder).with_suffix(""): path for path in files_in(folder, _KINDS)}
    # VOC has masks for some of its images only; elsewhere an image without one is a mistake.
    files_by_name = [(file.relative_to(images), file) for file in files_in(images, SUFFIXES)]
    entries = [
        SampleEntry(str(name), None, file, extra=known[name.with_suffix("")])
        for name, file in files_by_name
        if name.with_suffix("") in known
    ]
    if not entries:
        raise EvaluationDataError(f"has no mask with the name of an image in {images}", where=str(folder))
    if len(entries) < len(files_by_name) and folder.name != "SegmentationClass":
        lost = next(name for name, _ in files_by_name if name.with_suffix("") not in known)
        raise EvaluationDataError(f"'{lost}' has no mask", where=str(folder))
    return DataSet("segmentation", entries, read_pair, class_names(place.classes))
