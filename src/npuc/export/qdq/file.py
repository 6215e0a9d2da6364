"""A quantized network as an ONNX file, in QDQ or integer form.

The operator set and the IR version are the oldest that say what is in the file: 13 for 8 bits, 21 for int4 and 16 bits. The same
network gives the same bytes. Metadata state the requantization kind, which npuc reads when it imports the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from npuc.arithmetic.kinds import ARITHMETIC_KEY
from npuc.errors import UsageError
from npuc.export.exact import to_integer_onnx
from npuc.export.onnx import ExportedModel, to_onnx, write_onnx
from npuc.export.onnx.opset import use_lowest_opset
from npuc.export.qdq.form import to_qdq
from npuc.ir import Graph


def to_qdq_onnx(graph: Graph) -> ExportedModel:
    """An integer network as an ONNX model in QDQ form."""
    form = to_qdq(graph)
    exported = to_onnx(form)
    use_lowest_opset(exported.proto)
    if form.arithmetic:
        exported.proto.metadata_props.add(key=ARITHMETIC_KEY, value=form.arithmetic)
    return exported


FORMS: dict[str, Callable[[Graph], ExportedModel]] = {"qdq": to_qdq_onnx, "integer": to_integer_onnx}
"""How a quantized network is written, by the name that the command line has for it."""


def export_quantized_onnx(
    graph: Graph, path: Path | str, form: str = "qdq", external_data: bool | None = None
) -> list[Path]:
    """Write an integer network as `path` in a form of `FORMS`; returns the files that were written.

    Weights are in the file itself, or in `path` + ".data" beside it if `external_data` is true or they are too large.
    """
    if form not in FORMS:
        raise UsageError(
            f"there is no form '{form}' of a quantized network", fix=f"Choose one of {', '.join(FORMS)}"
        )
    return write_onnx(FORMS[form](graph), Path(path), external_data)
