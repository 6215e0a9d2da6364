"""The importer of Compass IR: the text and the binary file that Arm China's Compass parser writes.

>>> from npuc.frontend.compass import import_compass
>>> graph = import_compass("model.txt")  # doctest: +SKIP
"""

from npuc.frontend.compass.importer import import_compass
from npuc.frontend.compass.registry import CompassContext, rule, supported

__all__ = ["CompassContext", "import_compass", "rule", "supported"]
