"""The way of a model through the stages, as one call each: what the commands do, for programs.

    >>> graph = import_model("model.onnx")               # doctest: +SKIP
    >>> save_graph(graph, "model.mlir")                   # doctest: +SKIP

The kind of a file is told by its content, not its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from npuc.errors import FileFormatError, PreprocessError, UnknownTensorError, UsageError
from npuc.files import existing_file
from npuc.frontend.onnx import ImportOptions, import_onnx
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph, dtype_of, load_graph, save_graph, shape_of
from npuc.ir.passes import PASSES, PassEvent, run_pipeline
from npuc.ir.preprocess import Preprocess
from npuc.transform import CANONICAL

if TYPE_CHECKING:
    from npuc.evaluate.compare import Tolerance
    from npuc.evaluate.import_check import CheckReport

Array = np.ndarray[Any, Any]

__all__ = ["ImportOptions", "check_model", "import_model", "input_names", "load_model", "save_graph"]

Observer = Callable[[PassEvent], None]


def import_model(
    path: Path | str,
    options: ImportOptions | None = None,
    *,
    fuse_preprocess: bool = False,
    canonical: bool = True,
    observe: Observer | None = None,
) -> Graph:
    """Read a foreign model and bring it into canonical form."""
    path = _foreign(path)
    options = options or ImportOptions()
    graph = import_onnx(path, options)
    _check_preprocess(graph, options)
    steps = (["fuse-preprocess"] if fuse_preprocess else []) + ([CANONICAL] if canonical else [])
    if fuse_preprocess and not any(port.preprocess for port in graph.inputs):
        raise UsageError(
            "--fuse-preprocess has nothing to fuse: no input has preprocessing",
            fix="Add --mean, --scale or --pixel-format",
        )
    if fuse_preprocess and "fuse-preprocess" not in PASSES:
        raise UsageError("this npuc has no pass 'fuse-preprocess'")
    return run_pipeline(graph, ",".join(steps), observe) if steps else graph


def _check_preprocess(graph: Graph, options: ImportOptions) -> None:
    ports = {port.name: port for port in graph.inputs}
    for name, preprocess in options.preprocess.items():
        if name not in ports:
            raise UnknownTensorError(
                f"preprocessing is given for '{name}', which is not an input",
                fix=f"The inputs are {', '.join(ports)}",
            )
        try:
            preprocess.check(shape_of(ports[name].value))
        except PreprocessError as error:
            raise PreprocessError(error.message, where=f"input '{name}'", fix=error.fix) from error


def input_names(path: Path | str) -> tuple[str, ...]:
    """The names of the inputs of a foreign model, as its file states them."""
    from npuc.frontend.onnx.reader import read

    graph = read(_foreign(path)).model.graph
    constants = {tensor.name for tensor in graph.initializer}
    return tuple(entry.name for entry in graph.input if entry.name not in constants)


def _foreign(path: Path | str) -> Path:
    path = existing_file(path)
    content = describe_content(path)
    if content.kind != "onnx":
        raise FileFormatError(f"{content.words}, not like an ONNX model", where=str(path), fix=content.fix)
    return path


def load_model(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Load an `.mlir` file of npuc's own, or import a foreign model as it is."""
    path = existing_file(path)
    if describe_content(path).kind == "mlir":
        return load_graph(path)
    return import_model(path, options, canonical=False)


def check_model(
    path: Path | str,
    graph: Graph,
    options: ImportOptions,
    data: Sequence[str] = (),
    *,
    tolerance: Tolerance | None = None,
    leave_out: Collection[str] = (),
    threads: int | None = None,
) -> CheckReport:
    """Compare an imported graph with its original on the first sample of the data, or on random data."""
    from npuc.calib.random_inputs import random_inputs
    from npuc.calib.samples import load_samples, parse_assignments
    from npuc.evaluate.import_check import check_import

    if data:
        names = [port.name for port in graph.inputs]
        inputs: Mapping[str, Array] = next(iter(load_samples(graph, parse_assignments(data, names)))).inputs
    else:
        inputs = random_inputs(graph)
    return check_import(
        Path(path),
        graph,
        inputs,
        original_inputs=_before_fusion(Path(path), graph, options, inputs),
        tolerance=tolerance,
        leave_out=leave_out,
        threads=threads,
    )


def _before_fusion(
    path: Path, graph: Graph, options: ImportOptions, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """What the original takes where a graph takes raw pixels."""
    from npuc.calib.images import apply_arithmetic
    from npuc.frontend.onnx.reader import read

    declared = {entry.name: entry.type.tensor_type.elem_type for entry in read(path).model.graph.input}
    found = dict(inputs)
    for port in graph.inputs:
        asked = options.preprocess.get(port.name)
        if asked is None or (not asked.has_arithmetic and dtype_of(port.type).name != "ui8"):
            continue
        dtype = dtype_of(declared.get(port.name, 1))
        if dtype_of(port.type) == dtype:
            continue
        now = Preprocess.from_dict(port.preprocess or asked.geometry().to_dict())
        pixels = inputs[port.name]
        pixels = np.moveaxis(pixels, -3, -1) if now.layout == "nchw" else pixels
        if {now.pixel_format, asked.pixel_format} == {"rgb", "bgr"}:
            pixels = pixels[..., ::-1]
        tensor = apply_arithmetic(pixels, asked, dtype.numpy)
        found[port.name] = np.ascontiguousarray(
            np.moveaxis(tensor, -1, -3) if asked.layout == "nchw" else tensor
        )
    return found
