"""How good a result is: accuracy on data sets.

`evaluate` measures models of any form on a data set; `dataset` and `metric` register more of either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.datasets.data import DataSet, Place, dataset
    from npuc.datasets.sample import Box, Boxes, Entry, Loaded, Observation
    from npuc.evaluate.evaluation import evaluate
    from npuc.evaluate.report import Confidence, Report
    from npuc.evaluate.subject import ModelFile
    from npuc.metrics.measuring import metric

_HOMES = {
    "Box": "npuc.datasets.sample",
    "Boxes": "npuc.datasets.sample",
    "Confidence": "npuc.evaluate.report",
    "DataSet": "npuc.datasets.data",
    "Entry": "npuc.datasets.sample",
    "Loaded": "npuc.datasets.sample",
    "ModelFile": "npuc.evaluate.subject",
    "Observation": "npuc.datasets.sample",
    "Place": "npuc.datasets.data",
    "Report": "npuc.evaluate.report",
    "dataset": "npuc.datasets.data",
    "evaluate": "npuc.evaluate.evaluation",
    "metric": "npuc.metrics.measuring",
}
"""What is loaded at first use."""

__all__ = [
    "Box",
    "Boxes",
    "Confidence",
    "DataSet",
    "Entry",
    "Loaded",
    "ModelFile",
    "Observation",
    "Place",
    "Report",
    "dataset",
    "evaluate",
    "metric",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'npuc.evaluate' has no attribute '{name}'")
