"""AdaQuant: scales, weights and biases are learned by gradient, block by block, on calibration samples.

Ranges chosen tensor by tensor and weights rounded in steps of their largest one are a start. Here the scale of each tensor
of activations, the scales of weights, and the weights and biases themselves move until the output of a block is that of the
float block. Rounding passes the gradient straight through; that of a scale is LSQ's. Unlike learned rounding, which chooses
between two neighbours, a weight may move further than a step. Scales that are powers of two stay.
"""
