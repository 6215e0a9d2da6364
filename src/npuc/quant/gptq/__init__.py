"""GPTQ: weights are rounded one input after the other, and what each rounding does to the sum is made up by the rest.

The inputs of a layer are correlated, so the error of one weight can be taken back by the others. How much by which
follows from the second moments of the inputs (the Hessian of the squared error), which a few samples show. It needs no
gradients; a layer takes as long as inverting a matrix of its inputs. Depthwise convolutions have too few inputs for it.
"""
