"""AdaQuant: scales, weights and biases are learned by gradient descent, block by block, on calibration samples.

It starts from the calibrated ranges and rounded weights. The scales of activations and weights, and the weights and biases
themselves, are optimized so that the output of a block approaches that of the float block. Rounding has a straight-through
gradient; that of a scale is LSQ's. Unlike learned rounding, which chooses between two neighbours, a weight may move further
than one step. Power-of-two scales are searched, in whole steps; the step `positions` does that alone.
"""
