"""Which op goes where, with the reason as data and in words."""

from npuc.partition.fit import Fit, fit_of, float_on_cpu, limit_fit, to_keep_float
from npuc.partition.obstacles import Obstacle, ObstacleRule
from npuc.partition.partition import ISLAND_THRESHOLD, Part, Partition, partition

__all__ = [
    "ISLAND_THRESHOLD",
    "Fit",
    "Obstacle",
    "ObstacleRule",
    "Part",
    "Partition",
    "fit_of",
    "float_on_cpu",
    "limit_fit",
    "partition",
    "to_keep_float",
]
