"""Block reconstruction: a network is learned block by block, so that the output of each block approaches the float block's.

The input of a block comes from the integer network so far (BRECQ), and a share of its activations stays float while it
learns (QDrop). What is learned is up to a `Learner`: roundings, or scales and weights. It needs torch, and runs on the CPU or
on CUDA.
"""
