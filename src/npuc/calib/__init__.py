"""Calibration: data in, ranges out.

Images, tensor files or random samples become the inputs of a network; one streaming pass collects statistics of every
tensor; a range method turns the statistics into a table of ranges.

`npuc.calib.calibration` has `calibrate`, `npuc.calib.collection` has `collect`.
"""
