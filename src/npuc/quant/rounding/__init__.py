"""Learned rounding: whether each weight is rounded up or down is learned, block by block, on calibration samples.

Rounding to nearest is best for each weight alone and not for their sums. A block of layers gets what the integer network
so far gives as its input, and its weights' roundings (and biases) are trained until its output is that of the float
block: AdaRound's soft rounding, the blocks of BRECQ, and QDrop's noise, which keeps a part of the activations float
while learning. It needs torch, and runs on the CPU or on CUDA.
"""
