"""Data sets of the optimizer under their public names: NumPy files, each entry of the first axis a sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compat.compass.optimizer_plugins import PluginType, register_plugin
from npuc.compat.compass.pickled import load_npy
from npuc.errors import CalibrationDataError


@register_plugin(PluginType.Dataset, "1.0")
class NumpyDataset:
    """An .npy file of samples, and one of labels."""

    order: tuple[int, ...] = ()
    """The order of the axes of a sample; empty: as they are."""
    flipped = False
    """Whether the channels, which are last in the file, are turned around."""

    def __init__(self, data_file: str, label_file: str | None = None) -> None:
        data = load_npy(data_file)
        if not isinstance(data, np.ndarray) or data.ndim < 1:
            raise CalibrationDataError("is no array of samples", where=str(data_file))
        self.data: Array = data
        self.label = load_npy(label_file) if label_file else None
        if self.label is not None and len(self.label) < len(self.data):
            raise CalibrationDataError(
                f"has {len(self.label)} labels for {len(self.data)} samples", where=str(label_file)
            )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> list[Any]:
        sample: Array = np.asarray(self.data[index])
        if self.flipped:
            sample = sample[..., ::-1]
        if self.order:
            sample = sample.transpose(self.order)
        return [[np.ascontiguousarray(sample)], float("-inf") if self.label is None else self.label[index]]


@register_plugin(PluginType.Dataset, "1.0")
class NumpyNHWC2NCHWDataset(NumpyDataset):
    """Images whose channels are last in the file and first in the network."""

    order = (2, 0, 1)


@register_plugin(PluginType.Dataset, "1.0")
class NumpyNCHW2NHWCDataset(NumpyDataset):
    """Images whose channels are first in the file and last in the network."""

    order = (1, 2, 0)


@register_plugin(PluginType.Dataset, "1.0")
class NumpyNHWCRGB2NCBGRHWDataset(NumpyDataset):
    """RGB images with channels last, for a network that takes BGR with channels first."""

    order = (2, 0, 1)
    flipped = True


@register_plugin(PluginType.Dataset, "1.0")
class NumpyMultiInputDataset:
    """An .npy file with a dictionary, or an .npz file, of arrays: one for each input, in the order of the network."""

    def __init__(self, data_file: str, label_file: str | None = None) -> None:
        content = load_npy(data_file)
        if not isinstance(content, dict) or not content:
            raise CalibrationDataError("is no dictionary of arrays", where=str(data_file))
        self.data = [np.asarray(array) for array in content.values()]
        self.label = load_npy(label_file) if label_file else None

    def __len__(self) -> int:
        return min(len(array) for array in self.data)

    def __getitem__(self, index: int) -> list[Any]:
        label = self.label
        if isinstance(label, dict):
            label = next(iter(label.values()))
        return [[array[index] for array in self.data], float("-inf") if label is None else label[index]]
