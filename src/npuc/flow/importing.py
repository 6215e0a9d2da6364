"""From a file to a network ready for quantization: import, canonical form, the check against the original."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import PreprocessError, UnknownTensorError, UsageError
from npuc.files import existing_model
from npuc.frontend.formats import declared_inputs, foreign, import_foreign
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, dtype_of, load_graph, shape_of, shown_name
from npuc.ir.passes import PASSES, PassEvent, run_passes, run_pipeline
from npuc.transform import CANONICAL

if TYPE_CHECKING:
    from npuc.compare.tensors import Tolerance
    from npuc.import_check.check import CheckReport

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
    options = options or ImportOptions()
    graph = import_foreign(path, options)
    return bring_in_form(
        graph,
        options,
        fuse_preprocess=fuse_preprocess,
        canonical=canonical,
        observe=observe,
        layout=foreign(path)[1].layout,
    )


def bring_in_form(
    graph: Graph,
    options: ImportOptions,
    *,
    fuse_preprocess: bool = False,
    canonical: bool = True,
    observe: Observer | None = None,
    layout: str = "nchw",
) -> Graph:
    """Bring a network that was just imported with these options into canonical form, in place; `layout` is that of its format."""
    fuse_preprocess = fuse_preprocess or options.fuse_preprocess
    _check_preprocess(graph, options, fuse_preprocess)
    steps = ["fuse-preprocess"] if fuse_preprocess else []
    if options.input_layout or options.output_layout:
        ends = {"inputs": options.input_layout, "outputs": options.output_layout}
        words = " ".join(f"{end}={word}" for end, word in ends.items() if word)
        steps.append(f"set-layout{{own={layout} {words}}}")
    steps += [CANONICAL] if canonical else []
    if fuse_preprocess and not any(port.preprocess for port in graph.inputs):
        raise UsageError(
            "--fuse-preprocess has nothing to fuse: no input has preprocessing",
            fix="Add --mean, --scale or --pixel-format",
        )
    if fuse_preprocess and "fuse-preprocess" not in PASSES:
        raise UsageError("this npuc has no pass 'fuse-preprocess'")
    if steps:
        run_passes(graph, ",".join(steps), observe, verify=False)
        graph.verify()
    return with_postprocess(graph, options)


def with_postprocess(graph: Graph, options: ImportOptions | None) -> Graph:
    """The network with the post-processing of the options appended; unchanged if they state none."""
    if options is None or not options.postprocess:
        return graph
    from npuc.frontend.postprocess import PostprocessOptions, add_postprocess

    extended = graph.copy()
    add_postprocess(extended, PostprocessOptions.parse(options.postprocess))
    extended.verify()
    return extended


def _run(graph: Graph, passes: str) -> Graph:
    """Run passes that are known to work together; only the final result is verified."""
    result = run_pipeline(graph, passes, verify=False)
    result.verify()
    return result


def _check_preprocess(graph: Graph, options: ImportOptions, fuse_preprocess: bool) -> None:
    ports = {port.name: port for port in graph.inputs}
    for name, preprocess in options.preprocess.items():
        if name not in ports:
            raise UnknownTensorError(
                f"preprocessing is given for '{name}', which is not an input",
                fix=f"The inputs are {', '.join(ports)}",
            )
        if preprocess.has_source and not fuse_preprocess:
            raise UsageError(
                "--source-size and --source-format say what a network with its preprocessing inside takes",
                fix="Add --fuse-preprocess",
            )
        try:
            words = preprocess.implied_crop(shape_of(ports[name].value))
        except PreprocessError as error:
            raise PreprocessError(error.message, where=f"input '{name}'", fix=error.fix) from error
        if words is not None:
            graph.notes.append(f"input '{name}': {words}")


def input_names(path: Path | str, options: ImportOptions | None = None) -> tuple[str, ...]:
    """The names of the inputs of a foreign model, as its file states them."""
    return tuple(declared_inputs(path, options or ImportOptions()))


def load_model(path: Path | str, options: ImportOptions | None = None) -> Graph:
    """Load an `.mlir` file of npuc's own, or import a foreign model as it is."""
    path = existing_model(path)
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
    from npuc.import_check.check import check_import

    if options.postprocess:
        from npuc.frontend.postprocess import remove_nodes

        # The original has no appended post-processing.
        graph = graph.copy()
        remove_nodes(graph)
    graph = _with_own_layouts(graph, options, foreign(path)[1].layout)
    if data:
        names = [port.name for port in graph.inputs]
        samples = load_samples(graph, parse_assignments(data, names), "--check-input")
        inputs: Mapping[str, Array] = next(iter(samples)).inputs
    else:
        inputs = random_inputs(graph)
    return check_import(
        Path(path),
        graph,
        inputs,
        options=options,
        original_inputs=_before_fusion(Path(path), graph, options, inputs),
        tolerance=tolerance,
        leave_out=leave_out,
        threads=threads,
    )


def _with_own_layouts(graph: Graph, options: ImportOptions, layout: str) -> Graph:
    """The network with the order of axes that the original has at its ends; `layout` is that of its format."""
    stated = list(options.preprocess.values())
    sources = any(preprocess.has_source for preprocess in stated)
    taken = "nhwc" if sources else stated[0].layout if stated else layout
    steps = []
    if options.input_layout:
        steps.append(f"set-layout{{own={options.input_layout} inputs={taken}}}")
    if options.output_layout:
        steps.append(f"set-layout{{own={options.output_layout} outputs={layout}}}")
    return _run(graph, ",".join(steps)) if steps else graph


def _before_fusion(
    path: Path, graph: Graph, options: ImportOptions, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """The inputs of the original, where the graph takes raw pixels because preprocessing was fused into it."""
    from npuc.images.loading import apply_arithmetic

    original_inputs = dict(inputs)
    if not options.preprocess:
        return original_inputs
    declared = declared_inputs(path, options)
    originals: dict[str, Any] = {}
    for port in graph.inputs:
        preprocess = options.preprocess.get(port.name)
        if preprocess is not None and preprocess.has_source:
            originals = originals or {own.name: own.type for own in import_foreign(path, options).inputs}
            original_inputs[port.name] = _prepared_inside(preprocess, originals[port.name], inputs[port.name])
            continue
        if preprocess is None or (not preprocess.has_arithmetic and dtype_of(port.type).name != "ui8"):
            continue
        dtype = declared.get(port.name, dtype_of("f32"))
        if dtype_of(port.type) == dtype:
            continue
        now = Preprocess.from_dict(port.preprocess or preprocess.geometry().to_dict())
        pixels = inputs[port.name]
        pixels = np.moveaxis(pixels, -3, -1) if now.layout == "nchw" else pixels
        if {now.pixel_format, preprocess.pixel_format} == {"rgb", "bgr"}:
            pixels = pixels[..., ::-1]
        tensor = apply_arithmetic(pixels, preprocess, dtype.numpy)
        original_inputs[port.name] = np.ascontiguousarray(
            np.moveaxis(tensor, -1, -3) if preprocess.layout == "nchw" else tensor
        )
    return original_inputs


def _prepared_inside(preprocess: Preprocess, kind: Any, pixels: Array) -> Array:
    """What the ops of a fused preprocessing make of pixels: the input of the network behind them, of type `kind`."""
    from npuc.engine.floating import FloatEngine
    from npuc.ir import top

    graph = Graph.empty([("x", kind)], preprocess={"x": preprocess.to_dict()})
    graph.block.add_op(op := top.Neg.make(graph.inputs[0].value, name="negative"))
    graph.set_outputs([("negative", op.results[0])])
    fused = run_pipeline(graph, "fuse-preprocess", verify=False)
    return -FloatEngine(fused).run({"x": pixels})["negative"]


def network_to_quantize(
    path: Path | str, options: ImportOptions | None = None, *, force_float: bool = False
) -> Graph:
    """A network ready for calibration and quantization; a foreign model is imported and brought into canonical form.

    With `force_float`, the quantization of a prequantized network is removed, also from its inputs and outputs.
    """
    from npuc.quant.report import is_integer

    path = existing_model(path)
    own = describe_content(path).kind == "mlir"
    graph = load_graph(path) if own else import_model(path, options)
    if is_integer(graph):
        why = ", and the float numbers that it was made of are not in it" if force_float else ""
        raise UsageError(
            f"{path} is an integer network already{why}",
            fix="Give the float network that it was made of, or the original model",
        )
    if own:
        graph = with_postprocess(_claimed(graph), options)
    if force_float:
        graph = _run(graph, f"drop-quantization,{CANONICAL}")
        _require_float(path, graph)
    return expanded(graph)


def _require_float(path: Path | str, graph: Graph) -> None:
    """Refuse a network with an operator that has only integer arithmetic and therefore no float form."""
    from npuc.ir import dtype_of, top
    from npuc.quant.prequantized import is_quantized

    quantized = is_quantized(graph)
    for op in graph.ops:
        values = (*op.operands, *op.results)
        plain = isinstance(op, top.Onnx) and not any(dtype_of(value.type).is_float for value in values)
        if (quantized and plain) or isinstance(op, top.QuantizedLSTM):
            raise UsageError(
                f"--force-float cannot make {path} float: layer '{shown_name(op)}' computes with integers of its own",
                fix="Leave --force-float out to keep the model's quantization, or give the float model that it was made of",
            )


def _claimed(graph: Graph) -> Graph:
    """A loaded network with its custom ops claimed by plugins, which may not have been installed when it was imported."""
    from npuc.ir.claims import is_claimed

    return _run(graph, CANONICAL) if any(map(is_claimed, graph.ops)) else graph


def expanded(graph: Graph) -> Graph:
    """The same network with composite ops that have no integer form replaced by simpler ops."""
    from npuc.transform.expansions import expansions_of

    passes = expansions_of(graph)
    return _run(graph, passes) if passes else graph
