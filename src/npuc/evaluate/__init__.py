"""How good a result is: accuracy on data sets, comparisons of tensors, and the check of an import against the original.

`evaluate` measures models of any form on a data set; `dataset` and `metric` register more of either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.evaluate.data import DataSet, Place, dataset
    from npuc.evaluate.evaluation import evaluate
    from npuc.evaluate.measuring import metric
    from npuc.evaluate.report import Confidence, Report
    from npuc.evaluate.sample import Box, Boxes, Entry, Loaded, Observation
    from npuc.evaluate.subject import ModelFile

_HOMES = {
    "Box": "sample",
    "Boxes": "sample",
    "Confidence": "report",
    "DataSet": "data",
    "Entry": "sample",
    "Loaded": "sample",
    "ModelFile": "subject",
    "Observation": "sample",
    "Place": "data",
    "Report": "report",
    "dataset": "data",
    "evaluate": "evaluation",
    "metric": "measuring",
}
"""What is loaded at first use: comparisons need none of it."""

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
        return getattr(import_module(f"npuc.evaluate.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'npuc.evaluate' has no attribute '{name}'")
