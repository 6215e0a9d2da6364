"""Data sets of `npuc eval`, a plugin's own included, as calibration data: their samples without their labels."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from npuc.calib.items import Item, Sample
from npuc.calib.sources import Source, choose, prepared_by
from npuc.datasets.data import DATASETS, DataLocation, DataSet, find_dataset
from npuc.datasets.sample import SampleEntry
from npuc.errors import CalibrationDataError, EvaluationDataError
from npuc.evaluate.subject import Feeding, ModelFile, Subject
from npuc.ir import Graph

_OWN = "npuc.datasets.formats."


def plugin_dataset(place: DataLocation) -> str | None:
    """The data set of a plugin that a place looks like; those of npuc itself are read as calibration data is."""
    for name, kind in DATASETS.items():
        if not DATASETS.owner(name).startswith(_OWN) and kind.matches(place):
            return name
    return None


def dataset_source(
    graph: Graph,
    place: DataLocation,
    name: str | None = None,
    preprocess: str | None = None,
    max_count: int | None = None,
    seed: int | None = None,
) -> Source:
    """The samples of a data set, by name or by what the place looks like, for a network."""
    opened = find_dataset(place, name).open(place)
    entries = choose(list(opened.entries), max_count, seed)
    feeding = feeding_of(graph, preprocess)
    items = [Item(entry.name, partial(_read, opened, feeding, entry)) for entry in entries]
    return Source(items, len(items), feeding.reader, str(place.path))


def feeding_of(graph: Graph, preprocess: str | None) -> Feeding:
    """What makes inputs of the samples of data sets for a network."""
    subject = Subject(ModelFile(Path("network")), "float", graph)
    if preprocess is not None:
        subject.prepare, subject.takes_any, subject.raw = prepared_by(preprocess)
    return Feeding(subject)


def _read(opened: DataSet, feeding: Feeding, entry: SampleEntry) -> Sample:
    try:
        return Sample(feeding.inputs(opened.read(entry), entry.name))
    except EvaluationDataError as error:
        # One bad sample of calibration data is passed over.
        raise CalibrationDataError(error.message, where=error.where, fix=error.fix) from error
