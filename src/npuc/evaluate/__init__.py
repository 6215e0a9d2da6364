"""How good a result is: accuracy on data sets.

`evaluate` measures models of any form on a data set; `dataset` and `metric` register more of either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from npuc.registries import renamed

if TYPE_CHECKING:
    from npuc.datasets.data import DataLocation, DataSet, dataset
    from npuc.datasets.sample import Boxes, LabelledBox, LoadedSample, Observation, SampleEntry
    from npuc.evaluate.evaluation import evaluate
    from npuc.evaluate.report import Confidence, EvaluationReport
    from npuc.evaluate.subject import ModelFile
    from npuc.metrics.measuring import metric

_HOMES = {
    "Boxes": "npuc.datasets.sample",
    "Confidence": "npuc.evaluate.report",
    "DataLocation": "npuc.datasets.data",
    "DataSet": "npuc.datasets.data",
    "EvaluationReport": "npuc.evaluate.report",
    "LabelledBox": "npuc.datasets.sample",
    "LoadedSample": "npuc.datasets.sample",
    "ModelFile": "npuc.evaluate.subject",
    "Observation": "npuc.datasets.sample",
    "SampleEntry": "npuc.datasets.sample",
    "dataset": "npuc.datasets.data",
    "evaluate": "npuc.evaluate.evaluation",
    "metric": "npuc.metrics.measuring",
}
"""What is loaded at first use."""

_RENAMED = {
    "Box": "LabelledBox",
    "Entry": "SampleEntry",
    "Loaded": "LoadedSample",
    "Place": "DataLocation",
    "Report": "EvaluationReport",
}
"""Old names, which work for one release."""

__all__ = [
    "Boxes",
    "Confidence",
    "DataLocation",
    "DataSet",
    "EvaluationReport",
    "LabelledBox",
    "LoadedSample",
    "ModelFile",
    "Observation",
    "SampleEntry",
    "dataset",
    "evaluate",
    "metric",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _RENAMED:
        new = _RENAMED[name]
        return renamed(__name__, name, {name: getattr(import_module(_HOMES[new]), new)})
    raise AttributeError(f"module 'npuc.evaluate' has no attribute '{name}'")
