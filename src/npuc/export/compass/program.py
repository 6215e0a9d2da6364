"""A whole network as Compass IR.

    >>> export_compass(graph, "model.txt")                              # doctest: +SKIP
    >>> export_compass(source, "model_int8.txt", integers=quantized)    # doctest: +SKIP

A float network has its weights as float32. With the integer network of the same names, types, scales and zero points of all
results are stated, and layers with weights have the integers and the output stage that npuc computes with; scales are
reciprocals of npuc's, zero points negatives (q = round(x * scale) - zero point). Layers that compute in float have the
weights that they multiply, and types of short floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from npuc.errors import UnsupportedOpError
from npuc.export.compass.layers import LayerWriter, NoCompassForm
from npuc.export.compass.rules import RULES
from npuc.export.compass.text import OPTIMIZED, format_text
from npuc.files import write_atomically
from npuc.ir import Graph, describe, shape_of, top
from npuc.ir.definition import TopOp


def to_compass(
    graph: Graph, integers: Graph | None = None, header: Mapping[str, object] | None = None
) -> tuple[str, bytes]:
    """The text and the bytes of the binary file; `header` has further lines of the header."""
    writer = LayerWriter(graph, integers)
    for port in graph.inputs:
        name = writer.unique(port.name)
        writer.tensors[port.value, False] = name
        writer.add("Input", name, [], [name], [shape_of(port.value)], port.value, {})
    without: list[str] = []
    for op in graph.ops:
        if isinstance(op, top.WeightOp) or not isinstance(op, TopOp):
            continue
        rule = RULES.get(type(op))
        try:
            if rule is None:
                raise NoCompassForm("there is no layer for it")
            rule(writer, op)
        except NoCompassForm as error:
            without.append(f"{describe(op)}: {error}")
            break
    if without:
        raise UnsupportedOpError(
            f"{without[0]} in Compass IR",
            fix="'npuc compile' and aipubuild need no Compass IR; 'npuc export onnx' writes any network",
        )
    outputs = []
    for port in graph.outputs:
        name = writer.operand(port.value, False)
        outputs.append(name)
    kinds = [str(kind) for layer in writer.layers for kind in layer["layer_top_type"]]
    has_integers = any("layer_top_scale" in layer for layer in writer.layers)
    precision = "int8" if has_integers else next((kind for kind in kinds if "float16" in kind), "float32")
    lines: dict[str, object] = {
        "model_name": graph.name,
        **(header or {}),
        **({} if integers is None else {OPTIMIZED: True}),
        "layer_number": len(writer.layers),
        "precision": precision,
        "compat_quantized_model": False,
        "input_tensors": [writer.tensors[port.value, False] for port in graph.inputs],
        "output_tensors": outputs,
    }
    return format_text(lines, writer.layers), b"".join(writer.chunks)


def export_compass(
    graph: Graph,
    path: Path | str,
    integers: Graph | None = None,
    header: Mapping[str, object] | None = None,
) -> tuple[Path, Path]:
    """Write the text, and the binary file beside it under the same name; both paths."""
    text, data = to_compass(graph, integers, header)
    path = Path(path)
    binary = path.with_suffix(".bin")
    with write_atomically(binary) as out:
        out.write(data)
    with write_atomically(path) as out:
        out.write(text.encode())
    return path, binary


__all__ = ["export_compass", "to_compass"]
