"""Equalization: channels of very different magnitudes share one scale badly, so the differences are moved into weights.

The layer that writes a tensor divides channel c by s_c, the layers that read it multiply by s_c, and the network computes the
same. In between there may be ops that commute with a positive factor per channel (relu, pooling, moving elements), and sums
of several such tensors. The factors come from the weights on both sides (cross-layer equalization), or from the magnitudes of
the activations and of the weights that read them (SmoothQuant's migration, for convolutions, products and norms).
"""

from npuc.quant.equalization.groups import EqualizationGroup, find_groups
from npuc.quant.equalization.scaling import apply_factors, weight_factors

__all__ = ["EqualizationGroup", "apply_factors", "find_groups", "weight_factors"]
