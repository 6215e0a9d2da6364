"""Quantization: ranges and a scheme in, an integer network out.

>>> from npuc.quant import quantize
>>> integer = quantize(graph, table)  # doctest: +SKIP
"""

from npuc.quant.lower import quantize
from npuc.quant.scheme import SCHEMES, Scheme

__all__ = ["SCHEMES", "Scheme", "quantize"]
