"""The intermediate representation: MLIR in Python, on xDSL.

Only this package and the rewrite patterns of `transform/` and `quant/` import xDSL; the rest of npuc uses what is named
here.
"""

from npuc.arithmetic.dtypes import DType
from npuc.ir.dtypes import DYNAMIC, dtype_of, is_ranked, is_static, shape_of, tensor_type
from npuc.ir.graph import Graph, Port, Value
from npuc.ir.names import describe, layer_name, location, result_names, shown_name, value_name
from npuc.ir.text import load_graph, parse_graph, print_graph, save_graph
from npuc.ir.weights import FileSlice, MappedFile, Weight, WeightStore

__all__ = [
    "DYNAMIC",
    "DType",
    "FileSlice",
    "Graph",
    "MappedFile",
    "Port",
    "Value",
    "Weight",
    "WeightStore",
    "describe",
    "dtype_of",
    "is_ranked",
    "is_static",
    "layer_name",
    "load_graph",
    "location",
    "parse_graph",
    "print_graph",
    "result_names",
    "save_graph",
    "shape_of",
    "shown_name",
    "tensor_type",
    "value_name",
]
