"""Reconstruction: a network is learned block by block, each until its output is that of the float block.

A block of layers gets what the integer network so far gives as its input (BRECQ's blocks), a part of its activations stays
float while it learns (QDrop's noise), and what is learned in it is a `Learner`'s business: roundings, or scales and
weights. It needs torch, and runs on the CPU or on CUDA.
"""
