"""The data sets of npuc itself; importing them registers them. The order is that of recognition."""

# isort: off
from npuc.evaluate.datasets import boxes, voc, masks, cifar, labelled, arrays

__all__ = ["arrays", "boxes", "cifar", "labelled", "masks", "voc"]
