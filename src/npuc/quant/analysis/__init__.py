"""Which layers degrade an integer network, and why: one module per kind of finding, each from measurements to sentences.

>>> from npuc.quant.analysis import analyze
>>> analyze(done.source, done.graph, "images/", done.scheme_of).findings  # doctest: +SKIP
"""

from npuc.quant.analysis.analyze import Analysis, analyze
from npuc.quant.analysis.finding import Finding
from npuc.quant.analysis.hybrid import Hybrid, hybrid_yaml, suggest

__all__ = ["Analysis", "Finding", "Hybrid", "analyze", "hybrid_yaml", "suggest"]
