"""Which op goes where, with the reason in words."""

from npuc.partition.fit import Fit, fit_of, to_keep_float, unfit_layers
from npuc.partition.partition import ISLAND_THRESHOLD, Part, Partition, partition

__all__ = [
    "ISLAND_THRESHOLD",
    "Fit",
    "Part",
    "Partition",
    "fit_of",
    "partition",
    "to_keep_float",
    "unfit_layers",
]
