"""How two sets of tensors differ: by slice, by sample, the worst beside the mean."""

from npuc.compare.figures import LOST, Figures, Worst, judge, slice_squares
from npuc.compare.slices import Slice, find_slices, slices_of

__all__ = ["LOST", "Figures", "Slice", "Worst", "find_slices", "judge", "slice_squares", "slices_of"]
