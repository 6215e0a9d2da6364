"""Measures of how two sets of tensors differ: per slice and per sample, with the worst beside the mean."""

from typing import Any

from npuc.compare.figures import LOST, NOTHING, OutputFigures, Worst, measure_outputs, slice_squares
from npuc.compare.slices import Slice, find_slices, slices_of
from npuc.registries import renamed

__all__ = [
    "LOST",
    "NOTHING",
    "OutputFigures",
    "Slice",
    "Worst",
    "find_slices",
    "measure_outputs",
    "slice_squares",
    "slices_of",
]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Figures": OutputFigures, "judge": measure_outputs})
