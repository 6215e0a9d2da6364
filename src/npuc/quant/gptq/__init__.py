"""GPTQ: weights are rounded one input after the other, and the remaining weights compensate each rounding error.

The inputs of a layer are correlated, so the error of one weight can be compensated by the others. By how much follows from
the second moments of the inputs (the Hessian of the squared error), which a few samples provide. It needs no gradients; a
layer takes as long as inverting a matrix of the size of its inputs. Groups of a convolution are layers of their own, those of
a depthwise one with a handful of inputs each, which are correlated all the more: they are neighbours in an image.
"""
