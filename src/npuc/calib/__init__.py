"""Calibration: data in, ranges out. Pictures, tensor files and random samples become the inputs of a network; one
streaming pass keeps statistics of every tensor; range methods turn them into a table.

`npuc.calib.calibration` has `calibrate`, `npuc.calib.collection` has `collect`.
"""
