"""Equalization: channels of a tensor that differ in size share one scale badly, so their sizes are moved elsewhere.

What makes a tensor divides channel c by s_c, what reads it multiplies by s_c, and the network computes the same. Between
them may be whatever commutes with a positive factor (relu, pooling, moving), and sums of several such tensors. The factors
come from the weights on both sides (cross-layer equalization), or from the sizes of the activations and the weights that
read them (SmoothQuant's migration, for any layer that can divide: a convolution, a product, a norm).
"""

from npuc.quant.equalization.groups import Group, find_groups
from npuc.quant.equalization.scaling import apply_factors, weight_factors

__all__ = ["Group", "apply_factors", "find_groups", "weight_factors"]
