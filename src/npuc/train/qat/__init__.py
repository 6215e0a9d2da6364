"""Quantization-aware training: a module that trains with fake quantization and, in eval mode, computes the deployed integers.

`prepare` makes it of a network, `module` is the module, `quantizers` have the gradients, `exact` runs the integers of a batch,
`state` is what calibration fixed.
"""
