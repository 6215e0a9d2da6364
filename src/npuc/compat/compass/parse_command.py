"""`aipuparse`: a model of any framework as a float network, written as Compass IR.

The keys of its cfg file, which are also those of the section [Parser] of aipubuild, become options of npuc's own import.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuc.compat.arguments import VendorParser
from npuc.compat.compass import parse_inputs
from npuc.compat.compass.cfg import CfgSection, only_section
from npuc.compat.compass.logger import say
from npuc.compat.compass.parser_layers import apply_parser_plugins, put_in_front
from npuc.compat.compass.plugin_files import load_plugins
from npuc.errors import FileFormatError, UnknownTensorError, UnsupportedOpError, UsageError
from npuc.export.compass import export_compass
from npuc.files import existing_file, existing_model, make_folder
from npuc.flow import network_to_quantize
from npuc.frontend.formats import declared_inputs, foreign
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, shape_of

MODEL_TYPES = {
    "tensorflow": ("tensorflow", "keras"),
    "tflite": ("tflite",),
    "onnx": ("onnx",),
    "caffe": ("caffe", "caffemodel"),
    "torch": ("torchscript", "torch-exported"),
    "pytorch": ("torchscript", "torch-exported"),
}
"""Kinds of content by the words of model_type."""
DOMAINS = (
    "image_classification",
    "object_detection",
    "keyword_spotting",
    "speech_recognition",
    "image_segmentation",
)
POSTPROCESS = {
    "SSD": "ssd:order=yxhw",
    "SSD_RESNET": "ssd",
    "YOLO2": "yolov2",
    "YOLO3_TINY": "yolov3_tiny",
    "YOLO3_FULL": "yolov3",
    "CAFFE_FASTERRCNN": "",
}
"""npuc's post-processing by the words of detection_postprocess; empty: there is none."""
KEYS = (
    "model_type",
    "model_name",
    "model_domain",
    "detection_postprocess",
    "input_model",
    "caffe_prototxt",
    "input",
    "output",
    "input_shape",
    "force_float_ir",
    "iou_threshold",
    "obj_threshold",
    "max_box_num",
    "image_width",
    "image_height",
    "preprocess_type",
    "preprocess_params",
    "output_dir",
    "batch_size",
    *parse_inputs.KEYS,
    *parse_inputs.BESIDE_GAMUT,
    "dynamic_axes",
)
IGNORED = {
    "input_layout": "the compiler chooses the order in which images lie in memory",
    "use_onnxsim": "networks are simplified by npuc's own passes",
    "force_cpu_parse": "models are read on the CPU",
    "loop_max_count": "loops whose number of rounds is not known are kept",
    "similarity_input_npy": "'npuc import --check-input' compares the network with its original",
    "similarity_output_npy": "'npuc import --check-input' compares the network with its original",
}
_BESIDE = {
    "detection_postprocess": ("iou_threshold", "obj_threshold", "max_box_num"),
    "preprocess_type": ("preprocess_params",),
    "gamut_preprocess": parse_inputs.BESIDE_GAMUT,
}
"""Keys that say more of another."""
_SHAPE = re.compile(r"\[([^\[\]]*)\]")
_COLOURS = {
    "RGB2BGR": ("rgb", "bgr"),
    "BGR2RGB": ("bgr", "rgb"),
    "RGB2GRAY": ("rgb", "gray"),
    "BGR2GRAY": ("bgr", "gray"),
}


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = VendorParser("aipuparse", "Parse a model and write it as float IR.")
    parser.add("-c", "--cfg", required=True, metavar="CFG", help="the cfg file")
    options = parser.parse(arguments)
    section = only_section(options.cfg, "Parser")
    load_plugins()
    graph = parse_model(section)
    folder = make_folder(Path(section.text("output_dir", "./")))
    text, binary = export_compass(graph, folder / f"{graph.name}.txt", header=_header(section))
    say("I", f"Parse done: {text}, {binary}", "Parser")
    return 0


def parse_model(section: CfgSection) -> Graph:
    """The float network of a section."""
    section.check_known(KEYS, IGNORED)
    _check_alone(section)
    if "dynamic_axes" in section.values:
        raise UsageError(
            "[Parser] dynamic_axes is not supported: programs have static shapes",
            where=section.path,
            fix="Parse and build the model once for each input_shape",
        )
    name = section.required("model_name")
    if "/" in name or name.startswith("."):
        raise section.wrong("model_name", "is no plain name")
    section.choice("model_domain", DOMAINS)
    model, weights = _files(section)
    _check_type(section, model)
    apply_parser_plugins(model)
    options = ImportOptions(weights=weights, postprocess=_postprocess(section))
    declared = list(declared_inputs(model, options))
    inputs = [_tensor(name) for name in section.names("input")]
    shapes = _shapes(section, inputs or declared)
    own_inputs = () if not set(inputs) - set(declared) else tuple(inputs)
    outputs = tuple(_tensor(name) for name in section.names("output"))
    outputs = _outputs(model, outputs)
    options = replace(options, inputs=own_inputs, outputs=outputs, input_shapes=shapes)
    if "preprocess_type" in section.values:
        options = _with_preprocess(section, model, options)
    layout = foreign(model)[1].layout
    stated = parse_inputs.stated_layout(section, layout)
    options = replace(options, input_layout=stated)
    try:
        graph = network_to_quantize(model, options, force_float=section.flag("force_float_ir"))
    except UnknownTensorError as error:
        # The flags of npuc's own import are keys here.
        words = error.message.replace("--inputs", "input").replace("--outputs", "output")
        raise UnknownTensorError(f"[Parser] {words}", where=error.where, fix=error.fix) from error
    _check_size(section, graph)
    _check_batch(section, graph)
    if stated:
        parse_inputs.tell_layout(section, graph, stated)
    graph = put_in_front(parse_inputs.with_stated_inputs(graph, section, stated or layout), model)
    graph.name = name
    say("I", f"{model}: inputs {', '.join(port.name for port in graph.inputs)}; "
        f"outputs {', '.join(port.name for port in graph.outputs)}", "Parser")  # fmt: skip
    return graph


def _check_alone(section: CfgSection) -> None:
    """A word about keys that mean something beside another only."""
    for other, keys in _BESIDE.items():
        for key in keys if other not in section.values else ():
            if key in section.values:
                say("W", f"{key} has no effect without {other}", "Parser")


def write_float_ir(graph: Graph, section: CfgSection, folder: Path) -> Path | None:
    """Write the float IR, NAME_float.txt; a network of which a layer has no form there is told, and goes on."""
    try:
        text, _ = export_compass(graph, folder / f"{graph.name}_float.txt", header=_header(section))
    except UnsupportedOpError as error:
        say("W", f"no float IR is written: {error.message}", "Parser")
        return None
    return text


def _header(section: CfgSection) -> dict[str, object]:
    return {"model_domain": section.text("model_domain", "image_classification")}


def _files(section: CfgSection) -> tuple[Path, Path | None]:
    """The model, and the file of its weights."""
    model = existing_model(section.required("input_model"))
    if "caffe_prototxt" in section.values:
        return existing_model(section.text("caffe_prototxt")), existing_file(model)
    if describe_content(model).kind == "caffemodel" and model.with_suffix(".prototxt").is_file():
        return model.with_suffix(".prototxt"), model
    return model, None


def _check_type(section: CfgSection, model: Path) -> None:
    word = section.choice("model_type", tuple(MODEL_TYPES), "tensorflow").lower()
    content = describe_content(model)
    if content.kind not in MODEL_TYPES[word]:
        raise FileFormatError(
            f"model_type is {word}, and the file {content.words}", where=str(model), fix="Correct model_type"
        )


def _tensor(name: str) -> str:
    """A tensor of TensorFlow by its node: the first result needs no number."""
    return name.removesuffix(":0")


def _outputs(model: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """Outputs by the names of tensors; a node of ONNX stands for what it makes."""
    if describe_content(model).kind != "onnx" or not names:
        return names
    from npuc.frontend.onnx.reader import read

    nodes = {node.name: list(node.output) for node in read(model).model.graph.node if node.name}
    tensors = {tensor for results in nodes.values() for tensor in results}
    return tuple(
        tensor for name in names for tensor in ([name] if name in tensors else nodes.get(name, [name]))
    )


def _shapes(section: CfgSection, names: list[str]) -> dict[str, tuple[int, ...]]:
    """Shapes in brackets, matched with the inputs by their order."""
    text = section.text("input_shape")
    if not text:
        return {}
    groups = _SHAPE.findall(text)
    rest = _SHAPE.sub("", text)
    try:
        shapes = [tuple(int(side) for side in group.split(",") if side.strip()) for group in groups]
    except ValueError:
        raise section.wrong("input_shape", "is no list of shapes") from None
    if not groups or rest.strip(", "):
        raise section.wrong("input_shape", "is no list of shapes such as [1,224,224,3]")
    if len(shapes) != len(names):
        raise section.wrong("input_shape", f"has {len(shapes)} shapes for the inputs {', '.join(names)}")
    return dict(zip(names, shapes, strict=True))


def _postprocess(section: CfgSection) -> str:
    word = section.choice("detection_postprocess", tuple(POSTPROCESS))
    if not word:
        return ""
    kind = POSTPROCESS[word]
    if not kind:
        raise UsageError(
            f"detection_postprocess {word} is not supported: npuc has no proposals of a Faster R-CNN",
            fix="End the network before them with output = ..., or leave them to the CPU",
        )
    words = []
    for key, option in (("obj_threshold", "score"), ("iou_threshold", "iou")):
        if key in section.values:
            words.append(f"{option}={section.number(key, 0.0, 0.0, 1.0):g}")
    if "max_box_num" in section.values:
        words.append(f"limit={section.integer('max_box_num', 100, 1, 1 << 16)}")
    name, _, rest = kind.partition(":")
    return ":".join(filter(None, [name, ",".join(filter(None, [rest, *words]))]))


def _with_preprocess(section: CfgSection, model: Path, options: ImportOptions) -> ImportOptions:
    """Ops in front of the network: the preprocessing of its first input, from the images of a camera on."""
    steps = section.names("preprocess_type")
    params = re.findall(r"\{([^{}]*)\}", section.text("preprocess_params")) or [""] * len(steps)
    if len(params) != len(steps):
        raise section.wrong("preprocess_params", f"has {len(params)} entries for {len(steps)} steps")
    layout = foreign(model)[1].layout
    graph = network_to_quantize(model, options)
    port = graph.inputs[0]
    shape = shape_of(port.value)
    if len(shape) != 4:
        raise section.wrong("preprocess_type", f"needs an image, and '{port.name}' is {list(shape)}")
    height, width = shape[2:] if layout == "nchw" else shape[1:3]
    channels = shape[1] if layout == "nchw" else shape[3]
    fields: dict[str, Any] = {"layout": layout, "pixel_format": "gray" if channels == 1 else "rgb"}
    fields |= {"resize": (height, width), "source_size": (height, width)}
    words = [step.upper() for step in steps]
    if sum(word in _COLOURS for word in words) > 1 or words.count("RESIZE") > 1:
        raise section.wrong("preprocess_type", "has a step twice, and there is one of a kind here")
    if "STANDARDIZATION" in words[:-1]:
        raise section.wrong(
            "preprocess_type", "has a step behind STANDARDIZATION, which is the last one here"
        )
    for word, text in zip(words, params, strict=True):
        if word == "RESIZE":
            fields |= _resize(section, text, layout)
        elif word in _COLOURS:
            fields |= {"source_format": _COLOURS[word][0], "pixel_format": _COLOURS[word][1]}
        elif word == "STANDARDIZATION":
            axes = [axis for axis in re.findall(r"\d+", text)]
            spatial = ["1", "2"] if layout == "nhwc" else ["2", "3"]
            if axes and axes not in (spatial, ["1", "2", "3"]):
                raise section.wrong(
                    "preprocess_params", "standardizes over axes that are no image and no channel"
                )
            fields["standardize"] = "channel" if axes == spatial else "image"
        else:
            raise section.wrong("preprocess_type", f"has no step {word}")
    preprocess = Preprocess.from_dict(fields)
    return replace(options, preprocess={port.name: preprocess}, fuse_preprocess=True)


def _resize(section: CfgSection, text: str, layout: str) -> dict[str, Any]:
    method = text.split(",")[0].strip().lower()
    sides = [int(side) for side in re.findall(r"\d+", text.partition(",")[2])]
    if method not in ("bilinear", "nearest") or len(sides) != 4:
        raise section.wrong("preprocess_params", "is not {bilinear,[1,448,448,3]} for RESIZE")
    size = (sides[1], sides[2]) if sides[3] in (1, 3, 4) else (sides[2], sides[3])
    return {
        "source_size": size,
        "interpolation": "opencv-linear" if method == "bilinear" else "opencv-nearest",
    }


def _check_batch(section: CfgSection, graph: Graph) -> None:
    """batch_size says again what the network is; another batch is stated by input_shape."""
    shape = shape_of(graph.inputs[0].value)
    if "batch_size" in section.values and section.integer("batch_size", 1, 1) != shape[0]:
        raise section.wrong(
            "batch_size", f"is not the batch of the input, which is {list(shape)}: input_shape changes it"
        )


def _check_size(section: CfgSection, graph: Graph) -> None:
    """image_width and image_height say again what the input is."""
    shape = shape_of(graph.inputs[0].value)
    for key in ("image_width", "image_height"):
        if key in section.values and section.integer(key, 0) not in shape:
            raise section.wrong(key, f"is no side of the input, which is {list(shape)}")
