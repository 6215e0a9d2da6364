"""Learned rounding: whether each weight is rounded up or down is learned, block by block, on calibration samples.

Rounding to nearest is best for each weight alone, but not for their sums. The input of a block comes from the integer network
so far, and the roundings of its weights (and its biases) are trained so that its output approaches that of the float block:
AdaRound's soft rounding, BRECQ's blocks, and QDrop, which keeps a share of the activations float while learning. It needs
torch, and runs on the CPU or on CUDA.
"""
