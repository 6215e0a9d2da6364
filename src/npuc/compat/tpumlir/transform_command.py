"""`model_transform.py`: a model of any framework as an .mlir file, compared with the original.

The preprocessing is that of TPU-MLIR: images are read as BGR unless said otherwise and resized as OpenCV does it.
"""

from __future__ import annotations

import ast
import tempfile
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from npuc.arrays import Array
from npuc.compare.tensors import Tolerance
from npuc.compat.arguments import VendorParser, comma_list, keyword
from npuc.compat.running import warn
from npuc.compat.tpumlir.inputs import as_float, read_inputs, real_tensors
from npuc.compat.tpumlir.names import TOOL, names_of, operator_names
from npuc.engine import ALL_TENSORS, FloatEngine
from npuc.errors import UsageError
from npuc.files import existing_file, existing_model, writable, write_atomically
from npuc.flow import bring_in_form, check_model, load_model, save_graph
from npuc.frontend.formats import declared_inputs, foreign, import_foreign
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.images.preprocess import CHANNELS, Preprocess
from npuc.ir import Graph, shape_of
from npuc.ir.passes import run_passes, run_pipeline
from npuc.tensors import write_npz
from npuc.transform import CANONICAL
from npuc.words import counted

_PIXEL_FORMATS = {"rgb": "rgb", "bgr": "bgr", "gray": "gray", "rgba": "rgba", "rgbd": "rgba"}
"""By TPU-MLIR's names; the fourth channel of an image file is the depth of `rgbd`."""
_MOSAICS = ("gbrg", "grbg", "bggr", "rggb")
"""Orders of the four colours of a sensor; no image file has them, so that inputs are arrays of four channels."""


_MEAN, _SCALE = "0.0,0.0,0.0", "1.0,1.0,1.0"


def _plain_name(text: str) -> str:
    """A type of option: a name that can be part of a file's."""
    if not text.strip() or "/" in text or "\0" in text:
        raise ArgumentTypeError(f"'{text}' is no name of a network: side files begin with it")
    return text


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser(
        "model_transform.py", "Convert a model into an .mlir file and compare it with the original."
    )
    own.add(
        "--model_name",
        type=_plain_name,
        required=True,
        help="the name of the network; side files begin with it",
    )
    own.add("--model_def", required=True, help="the model file: .onnx, .tflite, .prototxt, .pt, .mlir")
    own.add("--model_data", help="the weights of a Caffe model")
    own.add("--input_shapes", help="shapes by position, such as [[1,3,640,640]]; NCHW for TFLite, too")
    own.add("--input_types", type=comma_list, default=[], help="types of the inputs by position")
    own.add(
        "--resize_dims",
        help="height,width that images are resized to; what is larger than the input is cropped",
    )
    own.add("--keep_aspect_ratio", action="store_true", help="keep the ratio of the sides, and pad")
    own.add("--pad_value", type=int, default=0)
    own.add("--pad_type", type=keyword("center", "corner", "normal"), default="center")
    own.add("--mean", default=_MEAN)
    own.add("--scale", default=_SCALE)
    own.add("--pixel_format", type=keyword(*_PIXEL_FORMATS, *_MOSAICS), default="bgr")
    own.add("--channel_format", type=keyword("nchw", "nhwc", "none"), default="nchw")
    own.add("--output_names", type=comma_list, default=[], help="tensors at which the network ends")
    own.add("--add_postprocess", default="", help="yolov3, yolov3_tiny, yolov5, ssd and others")
    own.add("--test_input", help="an image, an .npz file, or files for all inputs, between commas")
    own.add("--test_result", help="the .npz file for every tensor of the network")
    own.add("--tolerance", default="0.99,0.99", help="least cosine and euclid similarity")
    own.add("--excepts", default="-", help="tensors that are not compared")
    own.add("--onnx_sim", default="", help="skip_fuse_bn leaves batch normalizations as they are")
    own.add("--debug", action="store_true", help="keep all files, as it is done anyway")
    own.add("--debug_cmd", type=comma_list, default=[], help="use_pil_resize resizes as Pillow does")
    own.add("--mlir", required=True, help="the .mlir file to write")
    own.add_ignored("--patterns_count", "passes are counted by npuc opt --timing")
    own.add_ignored("--cache_skip", "nothing is cached here", action="store_true")
    own.add_ignored("--not_inference", "without --test_input nothing is inferred", action="store_true")
    own.add_refused("--dynamic", "programs have static shapes; state them with --input_shapes", unless="0")
    own.add_refused("--dynamic_shape_input_names", "programs have static shapes")
    own.add_refused("--shape_influencing_input_names", "programs have static shapes")
    return own


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parser().parse(arguments)
    model = existing_model(options.model_def)
    target = writable(options.mlir)
    if target.suffix != ".mlir":
        raise UsageError(f"--mlir '{options.mlir}' has to end in .mlir")
    if options.test_input and not options.test_result:
        raise UsageError("--test_input needs --test_result, the .npz file for its results")
    for name in comma_list(options.test_input or ""):
        existing_file(name)
    tolerance = Tolerance.parse(options.tolerance)
    imported = _import_options(model, options)
    graph, origin = _import(model, imported, options)
    graph.name = origin.name = options.model_name
    # A quantized model takes and gives real numbers in this toolchain.
    real = run_pipeline(graph, "float-ends")
    inputs = read_inputs(real, options.test_input, "--test_input") if options.test_input else None
    written = _write_network(real, origin, target, options)
    print(f"Mlir file generated: {', '.join(map(str, written))}")
    if inputs is None:
        return 0
    names = names_of(real)
    write_npz(target.with_name(f"{options.model_name}_in_f32.npz"), names.outward(as_float(inputs)))
    tensors: dict[str, Array] = {**inputs, **FloatEngine(real, fetch=ALL_TENSORS).run(inputs)}
    stored = real_tensors(real, tensors)
    write_npz(options.test_result, names.outward(as_float(stored)))
    print(f"{counted(len(stored), 'tensor')} written to {options.test_result}")
    if describe_content(model).kind == "mlir":
        return 0
    return _check(model, graph, imported, tensors, tolerance, options)


def _import(model: Path, imported: ImportOptions, options: Namespace) -> tuple[Graph, Graph]:
    """The network in canonical form, and as it was read."""
    if describe_content(model).kind == "mlir":
        graph = load_model(model)
        return graph, graph
    origin = import_foreign(model, imported)
    origin.set_names_for(TOOL, operator_names(model))
    graph = origin.copy()
    layout = foreign(model)[1].layout
    if "skip_fuse_bn" in comma_list(options.onnx_sim):
        graph = bring_in_form(graph, replace(imported, postprocess=""), canonical=False, layout=layout)
        run_passes(graph, ",".join(name for name in CANONICAL.split(",") if name != "fold-batch-norm"))
        return bring_in_form(graph, imported, canonical=False, layout=layout), origin
    return bring_in_form(graph, imported, layout=layout), origin


def _import_options(model: Path, options: Namespace) -> ImportOptions:
    """What the command line says about the import."""
    if describe_content(model).kind == "mlir":
        return ImportOptions()
    weights = existing_file(options.model_data) if options.model_data else None
    own = ImportOptions(weights=weights, outputs=_output_names(model, options.output_names))
    declared = declared_inputs(model, own)
    if options.input_types:
        _check_types({name: kind.numpy.name for name, kind in declared.items()}, options.input_types)
    shapes = _shapes(options.input_shapes, list(declared), foreign(model)[1].layout)
    own = replace(own, input_shapes=shapes, postprocess=options.add_postprocess)
    preprocess = _preprocess(import_foreign(model, own), foreign(model)[1].layout, options)
    # Files of this layer are NCHW, whatever the order of the framework.
    is_nhwc = foreign(model)[1].layout == "nhwc"
    layout = "nchw" if is_nhwc and options.channel_format == "nchw" else ""
    return replace(own, preprocess=preprocess, input_layout=layout)


def _output_names(model: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Tensors by the names of either tool."""
    by_operator = {theirs: own for own, theirs in operator_names(model).items()}
    return tuple(by_operator.get(name, name) for name in names)


def _check_types(declared: dict[str, str], types: Sequence[str]) -> None:
    for (name, stated), wish in zip(declared.items(), types, strict=False):
        if stated != wish.lower():
            raise UsageError(
                f"--input_types says {wish} for input '{name}', which is {stated} in the model",
                fix="An input keeps the type of the model here: export it with the other one",
            )


def _shapes(text: str | None, names: Sequence[str], layout: str) -> dict[str, tuple[int, ...]]:
    """Shapes by position, of images in NCHW order.

    >>> _shapes("[[1,3,8,8]]", ["x"], "nhwc")
    {'x': (1, 8, 8, 3)}
    """
    if not text:
        return {}
    try:
        parsed = ast.literal_eval(text.strip())
        rows = [parsed] if isinstance(parsed[0], int) else parsed
        shapes = [tuple(int(side) for side in row) for row in rows]
    except (ValueError, SyntaxError, TypeError, IndexError, MemoryError, RecursionError) as error:
        raise UsageError(
            f"--input_shapes '{text[:80]}' is no list of shapes", fix="Write it like [[1,3,224,224]]"
        ) from error
    if len(shapes) > len(names):
        raise UsageError(
            f"--input_shapes has {len(shapes)} shapes, and the model has the inputs {', '.join(names)}"
        )
    if layout == "nhwc":
        shapes = [_channels_last(shape) for shape in shapes]
    return dict(zip(names, shapes, strict=False))


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != 4 or (shape[1] > 4 and shape[3] <= 4):
        return shape
    return shape[0], shape[2], shape[3], shape[1]


def _preprocess(graph: Graph, layout: str, options: Namespace) -> dict[str, Preprocess]:
    """The preprocessing of every input that an image fits; none if the channel format is none, or the colours are a mosaic."""
    if options.channel_format == "none":
        _tell_unused(options, "--channel_format none says that inputs are no images")
        return {}
    if options.pixel_format in _MOSAICS:
        warn(
            f"--pixel_format {options.pixel_format}: inputs are arrays (.npz, .npy) of four channels in this order, as they are; "
            "--mean, --scale and --resize_dims are for images"
        )
        return {}
    pixel_format = _PIXEL_FORMATS[options.pixel_format]
    order = layout if layout == "nhwc" else options.channel_format
    by_input = {}
    for port in graph.inputs:
        shape = shape_of(port.value)
        if len(shape) != 4 or shape[1 if order == "nchw" else 3] != CHANNELS[pixel_format]:
            continue
        height, width = shape[2:] if order == "nchw" else shape[1:3]
        fields = {
            "resize": _resize(options.resize_dims, height, width),
            "keep_aspect_ratio": options.keep_aspect_ratio,
            "pad_value": options.pad_value,
            "pad_type": "corner" if options.pad_type == "normal" else options.pad_type,
            "mean": _numbers(options.mean, "--mean", CHANNELS[pixel_format]),
            "scale": _numbers(options.scale, "--scale", CHANNELS[pixel_format]),
            "pixel_format": pixel_format,
            "layout": order,
            "interpolation": "bilinear" if "use_pil_resize" in options.debug_cmd else "opencv-linear",
        }
        by_input[port.name] = Preprocess.from_dict(fields)
    if not by_input:
        _tell_unused(
            options, f"no input has the {CHANNELS[pixel_format]} channels of {options.pixel_format} images"
        )
    _print_preprocess(options, by_input)
    return by_input


def _tell_unused(options: Namespace, reason: str) -> None:
    """A line about options of images, where there are none."""
    stated = [
        f"--{name}"
        for name, default in (
            ("mean", _MEAN),
            ("scale", _SCALE),
            ("resize_dims", None),
            ("keep_aspect_ratio", False),
        )
        if getattr(options, name) != default
    ]
    if stated:
        warn(f"model_transform.py: {', '.join(stated)} without effect: {reason}")


def _resize(text: str | None, height: int, width: int) -> tuple[int, int]:
    """The size that images are resized to, which is never smaller than that of the input."""
    if text is None:
        return height, width
    try:
        rows, columns = (int(word) for word in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--resize_dims '{text}' is not a height and a width", fix="Write it like 256,256"
        ) from error
    return max(rows, height), max(columns, width)


def _numbers(text: str, option: str, channels: int) -> tuple[float, ...]:
    try:
        values = tuple(float(word) for word in comma_list(text))
    except ValueError as error:
        raise UsageError(f"{option} '{text}' is not a list of numbers") from error
    if len(set(values)) == 1:
        return values[:1]
    if len(values) != channels:
        raise UsageError(f"{option} '{text}' has {len(values)} values, and images have {channels} channels")
    return values


def _print_preprocess(options: Namespace, by_input: dict[str, Preprocess]) -> None:
    for preprocess in list(by_input.values())[:1]:
        mean, scale = preprocess.arithmetic()
        lines = {
            "resize_dims": list(preprocess.resize or ()),
            "keep_aspect_ratio": preprocess.keep_aspect_ratio,
            "pad_value": preprocess.pad_value,
            "pad_type": preprocess.pad_type,
            "mean": list(mean),
            "scale": list(scale),
            "pixel_format": options.pixel_format,
            "channel_format": options.channel_format,
        }
        print("load_config Preprocess args :")
        for name, value in lines.items():
            print(f"    {name:<20} : {value}")


def _write_network(graph: Graph, origin: Graph, target: Path, options: Namespace) -> list[Path]:
    """Write the network, and the files beside it that the tool leaves."""
    written = list(save_graph(graph, target))
    name = options.model_name
    save_graph(origin, target.with_name(f"{target.stem}_origin.mlir"))
    weights = {reference: graph.weights.array(reference) for reference in graph.used_weights()}
    write_npz(target.with_name(f"{name}_top_f32_all_weight.npz"), weights)
    if describe_content(Path(options.model_def)).kind == "onnx":
        _write_onnx(graph, target.with_name(f"{name}_opt.onnx"))
    return written


def _write_onnx(graph: Graph, path: Path) -> None:
    """The simplified network as ONNX, and its structure as text."""
    from google.protobuf import text_format

    from npuc.export.onnx.file import export_onnx
    from npuc.export.onnx.model import to_onnx

    export_onnx(graph, path)
    structure = to_onnx(graph).proto
    del structure.graph.initializer[:]
    with write_atomically(path.with_name(f"{path.name}.prototxt")) as out:
        out.write(text_format.MessageToString(structure).encode())


def _check(
    model: Path,
    graph: Graph,
    imported: ImportOptions,
    tensors: Mapping[str, Array],
    tolerance: Tolerance,
    options: Namespace,
) -> int:
    """Compare the network with the original, run by its own framework; 0 if they agree."""
    names = names_of(graph)
    leave_out = (
        [] if options.excepts == "-" else [names.npuc_name(name) for name in comma_list(options.excepts)]
    )
    inputs = {port.name: tensors.get(f"{port.name}/quantized", tensors[port.name]) for port in graph.inputs}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "inputs.npz")
        write_npz(data, inputs)
        report = check_model(model, graph, imported, [str(data)], tolerance=tolerance, leave_out=leave_out)
    if report.impossible:
        warn(f"the result was not compared with the original: {report.impossible}")
        return 0
    compared = [*report.layers, *report.outputs]
    for entry in report.failures:
        figures = f"cosine {entry.cosine:.6f}, euclid {entry.euclid:.6f} {entry.note}".rstrip()
        print(f"[{names.vendor_name(entry.name):<32}] FAILED {figures}")
    print(f"{len(compared)} compared with {report.runtime}: {len(report.failures)} failed")
    print(f"npz compare {'PASSED' if report.passed else 'FAILED'}.")
    return 0 if report.passed else 1
