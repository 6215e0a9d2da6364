"""The compilation flow as a Python API: one function per stage, from a model file to a compiled program.

    >>> graph = import_model("model.onnx")               # doctest: +SKIP
    >>> save_graph(graph, "model.mlir")                   # doctest: +SKIP

The format of a file is recognized by its content, not by its name.
"""

from __future__ import annotations

from npuc.flow.compilation import CompiledNetwork, compile_model, compile_network
from npuc.flow.importing import (
    bring_in_form,
    check_model,
    expanded,
    import_model,
    input_names,
    load_model,
    network_to_quantize,
    with_postprocess,
)
from npuc.flow.quantization import (
    Quantized,
    needs_ranges,
    quantize_by_method,
    quantize_network,
    quantize_on_data,
    ranges_from,
    schemes_of,
)
from npuc.frontend.options import ImportOptions
from npuc.ir import save_graph

__all__ = [
    "CompiledNetwork",
    "ImportOptions",
    "Quantized",
    "bring_in_form",
    "check_model",
    "compile_model",
    "compile_network",
    "expanded",
    "import_model",
    "input_names",
    "load_model",
    "needs_ranges",
    "network_to_quantize",
    "quantize_by_method",
    "quantize_network",
    "quantize_on_data",
    "ranges_from",
    "save_graph",
    "schemes_of",
    "with_postprocess",
]
