"""The metrics of npuc itself; importing them registers them."""

from npuc.metrics.builtin import classification, detection, likeness, segmentation, separation, text

__all__ = ["classification", "detection", "likeness", "segmentation", "separation", "text"]
