"""The Darknet importer, without Darknet.

>>> from npuc.frontend.darknet import import_darknet
>>> graph = import_darknet("yolov4.cfg")  # doctest: +SKIP
"""

from npuc.frontend.darknet.importer import import_darknet
from npuc.frontend.darknet.registry import DarknetContext, rule, supported

__all__ = ["DarknetContext", "import_darknet", "rule", "supported"]
