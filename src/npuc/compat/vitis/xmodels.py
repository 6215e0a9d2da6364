"""What a file named `.xmodel` holds here: a compiled model (npuc's `.npu`) or an integer network (MLIR, its weights beside it).

They are told apart by content. The vendor's own `.xmodel` files are its compiler's internal format, and are refused by name.
"""

from __future__ import annotations

from pathlib import Path

from npuc.compat.running import warn
from npuc.errors import FileFormatError
from npuc.files import existing_model
from npuc.flow import load_model, network_to_quantize, quantize_network
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph
from npuc.program.file import load_compiled
from npuc.program.model import CompiledModel
from npuc.quant.config import QuantizationConfig
from npuc.quant.prequantized import is_quantized
from npuc.quant.report import is_integer
from npuc.target import Target


def open_xmodel(path: Path | str) -> CompiledModel | Graph:
    """The compiled model or the integer network of a file."""
    path = existing_model(path)
    content = describe_content(path)
    if content.kind == "npu":
        return load_compiled(path)
    if content.kind == "mlir" and is_integer(graph := load_model(path)):
        return graph
    raise FileFormatError(
        f"is no .xmodel of npuc: it {content.words}",
        where=str(path),
        fix="export_xmodel and vai_c_xir write such files; those of the vendor's compiler cannot be read",
    )


def integer_network(path: Path | str, target: Target) -> Graph:
    """The integers of a quantized model: an `.xmodel`, or an ONNX or other file with quantize and dequantize nodes.

    Of a float model no integers are known: all its layers are left to the CPU.
    """
    path = existing_model(path)
    content = describe_content(path)
    if content.kind == "npu":
        raise FileFormatError("is compiled already", where=str(path), fix="Give the quantized model")
    if content.kind == "mlir" and is_integer(graph := load_model(path)):
        return graph
    graph = network_to_quantize(path)
    if not is_quantized(graph):
        warn(
            f"{path} is a float model (XCOM_FRONTEND_QUANT_ATTR_MISSING): no layer runs on the DPU. vai_q_onnx, pytorch_nndct, "
            "vai_q_tensorflow or 'npuc quantize' give it scales"
        )
        return quantize_network(graph, {}, QuantizationConfig(scheme="float"), target).graph
    return quantize_network(graph, None, None, target).graph
