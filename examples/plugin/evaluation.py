"""A plugin with a data set and a metric for `npuc eval`."""

import numpy as np

from npuc.errors import EvaluationDataError
from npuc.plugins.api import DataSet, LoadedSample, SampleEntry, dataset, metric


def read(entry):
    """The numbers of one line; worker processes find this function by its name."""
    words = entry.path.read_text().splitlines()[entry.row].split()
    return LoadedSample(tensors=np.array(words[1:], np.float32))


@dataset("lines", matches=lambda place: place.path.suffix == ".lines")
def lines(place):
    """One sample a line: a class, then the numbers of the input."""
    entries = []
    for row, line in enumerate(place.path.read_text().splitlines()):
        label = line.split()[:1]
        if not label or not label[0].isdecimal():
            raise EvaluationDataError(f"line {row + 1} does not begin with a class", where=str(place.path))
        entries.append(SampleEntry(f"line{row + 1}", int(label[0]), place.path, row))
    return DataSet("classification", entries, read)


@metric("saturation", unit="%", lower_is_better=True)
def saturation(observation):
    """The share of outputs that are as large as the largest one."""
    values = next(iter(observation.outputs.values()))
    return float(np.mean(values == values.max()))
