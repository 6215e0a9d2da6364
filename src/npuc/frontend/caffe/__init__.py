"""The Caffe importer, without Caffe.

>>> from npuc.frontend.caffe import import_caffe
>>> graph = import_caffe("model.prototxt")  # doctest: +SKIP
"""

from npuc.frontend.caffe.importer import import_caffe
from npuc.frontend.caffe.registry import CaffeContext, rule, supported

__all__ = ["CaffeContext", "import_caffe", "rule", "supported"]
