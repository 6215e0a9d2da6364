"""Output-aware ranges: for each tensor, the range whose rounding alone causes the least noise at the network's outputs.

The best range for a tensor itself is not always the best for the outputs: rare large values may not matter, or be all that
matters. With power-of-two scales the choice is coarse, and a wrong one costs a bit.
"""
