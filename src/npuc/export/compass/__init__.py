"""Compass IR: the text and the binary file that Arm China's Compass tools exchange, written from Top IR.

`text` is the form of the text, which the importer reads by, `layers` is what rules write layers with, `rules` has the layers of
each op, and `program` puts a whole network together and writes it.
"""

from npuc.export.compass.program import export_compass, to_compass

__all__ = ["export_compass", "to_compass"]
