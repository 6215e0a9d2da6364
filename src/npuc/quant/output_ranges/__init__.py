"""Output-aware ranges: for each tensor, the range whose rounding alone disturbs the network's outputs least.

A range that is best for a tensor need not be best for what comes of it: rare large values may not matter, or matter
alone. With scales that are powers of two the choice is coarse, and a wrong one costs a bit.
"""
