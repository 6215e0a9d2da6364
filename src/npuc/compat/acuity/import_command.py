"""`pegasus import`: a model of seven frameworks as X.json and X.data."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuc.compat.acuity.model_files import AcuityModel, save_model, with_suffix
from npuc.compat.acuity.options import one_of, parser, sub_command, tell_equivalent
from npuc.compat.acuity.predef_file import placeholder_values
from npuc.compat.arguments import VendorParser
from npuc.compat.running import warn
from npuc.errors import FileFormatError, NpucError, UsageError
from npuc.files import existing_file, existing_model, read_short
from npuc.flow import import_model
from npuc.frontend.formats import declared_inputs
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph, shape_of
from npuc.ir.passes import run_pipeline
from npuc.quant.prequantized import is_quantized
from npuc.transform.input_types import with_input_types
from npuc.transform.quantized_inputs import with_quantized_inputs
from npuc.words import counted

FRAMEWORKS = ("caffe", "tensorflow", "tflite", "darknet", "onnx", "pytorch", "keras")
_KINDS = {
    "caffe": ("caffe", "caffemodel"),
    "tensorflow": ("tensorflow",),
    "tflite": ("tflite",),
    "darknet": ("darknet",),
    "onnx": ("onnx",),
    "pytorch": ("torchscript", "torch-exported"),
    "keras": ("keras",),
}
"""What npuc recognizes in files of each framework."""
_TYPES = {"float": "", "int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16"}
"""The types of --input-dtype-list by ours; a float input stays as it is."""
_MAX_CONFIG = 1 << 20


def import_parser(framework: str) -> VendorParser:
    """The options for one framework."""
    own = parser(f"pegasus import {framework}", f"Import a model of {framework}.")
    own.add("--model", required=True, help="the model file")
    own.add("--output-model", help="the .json file to write; MODEL.json in this folder if left out")
    own.add("--output-data", help="the .data file to write; MODEL.data in this folder if left out")
    if framework in ("caffe", "darknet"):
        own.add("--weights", help="the file of the weights; random ones if left out")
        if framework == "caffe":
            own.add(
                "--proto",
                type=one_of("caffe", "lstm_caffe"),
                default="caffe",
                help="the protocol of the model; layers of either are known by their names",
            )
        return own
    needed = framework == "tensorflow"
    own.add("--inputs", nargs="+", required=needed, help="tensors at which the network begins, by blanks")
    own.add("--outputs", nargs="+", required=needed, help="tensors at which the network ends, by blanks")
    own.add("--input-size-list", required=needed, help="sizes by commas, inputs by #: 3,224,224#12,1")
    if framework != "keras":
        own.add(
            "--size-with-batch",
            help="whether sizes have the batch: True,False,... in the order of the inputs",
        )
    if framework == "tensorflow":
        own.add(
            "--mean-values", help="of a quantized model: the integer that stands for 0, a number an input"
        )
        own.add("--std-values", help="of a quantized model: integers a unit, a number an input")
        own.add("--predef-file", help="values of placeholders, an .npz file")
        own.add("--subgraphs", help="pieces of the network: in1,in2#out1;in#out")
    if framework == "onnx":
        own.add("--input-dtype-list", help="what inputs take: float, int8, uint8, int16 or uint16, by #")
    if framework == "pytorch":
        own.add("--config", help="a .json file with these options in place of them")
    if framework == "keras":
        own.add_ignored("--convert-engine", "there is one importer")
    return own


def main(arguments: list[str]) -> int:
    """Run the command."""
    framework, rest = sub_command("import", arguments, FRAMEWORKS)
    options = import_parser(framework).parse(_from_config(rest) if framework == "pytorch" else rest)
    base = Path(options.model).stem
    path = with_suffix(options.output_model or base, ".json")
    data = with_suffix(options.output_data or f"{path.with_suffix('')}", ".data")
    graph = imported_network(framework, options)
    save_model(graph, path, data, path.name.removesuffix(".json"), framework, recorded(framework, options))
    inputs = ", ".join(f"{port.name} {list(shape_of(port.value))}" for port in graph.inputs)
    print(f"inputs: {inputs}; outputs: {', '.join(port.name for port in graph.outputs)}")
    print(f"Save net to {path}")
    print(f"Save data to {data}")
    tell_equivalent("import", options.model, "-o", f"{path.with_suffix('')}.mlir")
    return 0


def recorded(framework: str, options: Namespace) -> dict[str, Any]:
    """How the model was imported, to import it again."""
    stated = {key: value for key, value in vars(options).items() if value is not None}
    files: dict[str, Any] = {
        key: str(Path(stated[key]).absolute()) for key in ("model", "weights", "predef_file") if key in stated
    }
    return {"framework": framework, **stated, **files}


def imported_again(model: AcuityModel, batch: int) -> Graph:
    """The network of X.json with another batch size, from its original file."""
    stated = dict(model.imported)
    framework = str(stated.pop("framework", ""))
    if framework not in FRAMEWORKS or not Path(str(stated.get("model", ""))).exists():
        raise UsageError(
            f"--batch-size {batch} needs the original model, and {stated.get('model', 'its file')} is not there any more",
            fix="Import it with that batch: --input-size-list with --size-with-batch True",
        )
    known = vars(import_parser(framework).parse(["--model", "x", "--inputs", "x", "--outputs", "x", "--input-size-list", "1"]
                                                if framework == "tensorflow" else ["--model", "x"]))  # fmt: skip
    options = Namespace(
        **{**dict.fromkeys(known), **{key: value for key, value in stated.items() if key in known}}
    )
    return imported_network(framework, options, batch)


def imported_network(framework: str, options: Namespace, batch: int = 1) -> Graph:
    """The network that a command line asks for, in canonical form."""
    path = existing_model(options.model)
    content = describe_content(path)
    kind = content.kind
    if kind not in _KINDS[framework]:
        raise UsageError(f"{options.model} is no model of {framework}: it {content.words}")
    graph = _with_sizes(path, _plain_options(options), options, batch)
    for note in graph.notes:
        warn(note.replace("--input-shape", "--input-size-list"))
    graph = run_pipeline(graph, "float-ends")
    graph = _with_quantized_inputs(graph, options)
    types = _types(graph, getattr(options, "input_dtype_list", None))
    return with_input_types(graph, types) if types else graph


def _plain_options(options: Namespace) -> ImportOptions:
    """What the command line says without sizes."""
    inputs, outputs = _words(options, "inputs"), _words(options, "outputs")
    pieces = getattr(options, "subgraphs", None)
    if pieces:
        inputs, outputs = _pieces(pieces)
    weights = getattr(options, "weights", None)
    constants = placeholder_values(getattr(options, "predef_file", None))
    return ImportOptions(
        inputs=inputs,
        outputs=outputs,
        weights=existing_file(weights) if weights else None,
        constants=constants,
    )


def _words(options: Namespace, name: str) -> tuple[str, ...]:
    """Names by blanks, in one word or several; TensorFlow's may end in :0."""
    words = getattr(options, name, None) or []
    return tuple(word.removesuffix(":0") for text in words for word in text.split())


def _pieces(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inputs and outputs of all pieces.

    >>> _pieces("a,b#c;d#e")
    (('a', 'b', 'd'), ('c', 'e'))
    """
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {}
    for piece in filter(None, (part.strip() for part in text.split(";"))):
        begin, separator, end = piece.partition("#")
        if not separator or not begin.strip() or not end.strip():
            raise UsageError(
                f"--subgraphs '{piece}' is no INPUTS#OUTPUTS", fix="Write it like in1,in2#out1;in3#out2"
            )
        inputs.update(dict.fromkeys(word.strip() for word in begin.split(",")))
        outputs.update(dict.fromkeys(word.strip() for word in end.split(",")))
    return tuple(inputs), tuple(outputs)


def _sizes(text: str | None) -> list[tuple[int, ...]]:
    """The sizes of --input-size-list.

    >>> _sizes("3,224,224#12,1")
    [(3, 224, 224), (12, 1)]
    """
    if not text:
        return []
    try:
        sizes = [tuple(int(word) for word in part.split(",")) for part in text.strip(" '\"").split("#")]
    except ValueError as error:
        raise UsageError(
            f"--input-size-list '{text}' is no list of sizes", fix="Write it like 3,224,224#12,1"
        ) from error
    if any(side < 1 for size in sizes for side in size):
        raise UsageError(f"--input-size-list '{text}' has a side that is not above 0")
    return sizes


def _flags(text: str | None, count: int) -> list[bool]:
    """The values of --size-with-batch; one serves all."""
    words = [word.strip().lower() for word in (text or "False").strip(" '\"").split(",")]
    if any(word not in ("true", "false") for word in words) or len(words) not in (1, count):
        raise UsageError(
            f"--size-with-batch '{text}' does not say True or False for {counted(count, 'input')}",
            fix="Write it like True,False,True",
        )
    return [word == "true" for word in (words if len(words) == count else words * count)]


def _with_sizes(path: Path, plain: ImportOptions, options: Namespace, batch: int) -> Graph:
    """The network with the sizes of the command line; sizes without a batch get one, unless that fits no input."""
    sizes = _sizes(getattr(options, "input_size_list", None))
    if not sizes:
        return _with_own_sizes(path, plain, batch)
    flags = _flags(getattr(options, "size_with_batch", None), len(sizes))
    names = plain.inputs or tuple(declared_inputs(path, plain))
    if len(names) < len(sizes):
        raise UsageError(
            f"--input-size-list has {counted(len(sizes), 'size')}, and the model has "
            f"{counted(len(names), 'input')}: {', '.join(names)}"
        )
    shapes = {
        name: size if has_batch and batch == 1 else (batch, *(size[1:] if has_batch else size))
        for name, size, has_batch in zip(names, sizes, flags, strict=False)
    }
    try:
        return import_model(path, replace(plain, input_shapes=shapes))
    except NpucError:
        _check_ranks(path, plain, dict(zip(names, sizes, strict=False)))
        if all(flags):
            raise
        whole = dict(zip(names, ((batch, *size[1:]) if batch > 1 else size for size in sizes), strict=False))
        try:
            return import_model(path, replace(plain, input_shapes=whole))
        except NpucError:
            pass
        raise


def _check_ranks(path: Path, plain: ImportOptions, sizes: Mapping[str, tuple[int, ...]]) -> None:
    """Of sizes that the model does not take: an error that says so, if an input has fewer or more of them in the file."""
    try:
        own = import_model(path, plain)
    except NpucError:
        return  # the file leaves sizes open
    for port in own.inputs:
        size, shape = sizes.get(port.name), shape_of(port.value)
        if size is not None and len(size) not in (len(shape), len(shape) - 1):
            raise UsageError(
                f"--input-size-list has {counted(len(size), 'side')} for input '{port.name}', which has "
                f"{len(shape) - 1} and a batch",
                fix=f"In the model it is {','.join(map(str, shape))}",
            ) from None


def _with_own_sizes(path: Path, plain: ImportOptions, batch: int) -> Graph:
    """The network with its own sizes but for the batch; one that the file leaves open is 1."""
    graph = import_model(path, plain)
    if batch == 1:
        return graph
    shapes = {port.name: (batch, *shape_of(port.value)[1:]) for port in graph.inputs}
    return import_model(path, replace(plain, input_shapes=shapes))


def _numbers(text: str | None, option: str, count: int) -> list[float]:
    try:
        values = [float(word) for word in (text or "").split(",")]
    except ValueError as error:
        raise UsageError(f"{option} '{text}' is no list of numbers") from error
    if len(values) != count:
        raise UsageError(
            f"{option} '{text}' has {len(values)} numbers, and there are {counted(count, 'input')}"
        )
    return values


def _with_quantized_inputs(graph: Graph, options: Namespace) -> Graph:
    """The network with the scale of its inputs that --mean-values and --std-values state."""
    means, deviations = getattr(options, "mean_values", None), getattr(options, "std_values", None)
    if not means and not deviations:
        return graph
    if not means or not deviations:
        raise UsageError("--mean-values and --std-values go together")
    if not is_quantized(graph):
        raise UsageError(
            "--mean-values and --std-values are for quantized TensorFlow models only, and this one is not quantized",
            fix="'pegasus generate inputmeta --channel-mean-value' states the preprocessing",
        )
    names = [port.name for port in graph.inputs]
    lows = _numbers(means, "--mean-values", len(names))
    steps = _numbers(deviations, "--std-values", len(names))
    if any(step <= 0 for step in steps) or any(not 0 <= low <= 255 or low != int(low) for low in lows):
        raise UsageError("--std-values have to be above 0, and --mean-values whole numbers from 0 to 255")
    scales = {name: (1 / step, int(low)) for name, low, step in zip(names, lows, steps, strict=True)}
    return with_quantized_inputs(graph, scales)


def _types(graph: Graph, text: str | None) -> dict[str, str]:
    """The types of --input-dtype-list that are not float."""
    if not text:
        return {}
    words = [word.strip() for word in text.strip(" '\"").split("#")]
    names = [port.name for port in graph.inputs]
    unknown = [word for word in words if word not in _TYPES]
    if unknown or len(words) > len(names):
        raise UsageError(
            f"--input-dtype-list '{text}' has "
            + (
                f"'{unknown[0]}', which is no type"
                if unknown
                else f"{len(words)} types for {counted(len(names), 'input')}"
            ),
            fix=f"Types are {', '.join(_TYPES)}, by #",
        )
    return {name: _TYPES[word] for name, word in zip(names, words, strict=False) if _TYPES[word]}


def _from_config(arguments: Sequence[str]) -> list[str]:
    """The options that a --config file states, in place of the command line's own."""
    words = list(arguments)
    if "--config" not in words[:-1]:
        return words
    path = existing_file(words[words.index("--config") + 1])
    try:
        content = json.loads(read_short(path, _MAX_CONFIG, "a configuration", FileFormatError))
    except ValueError as error:
        raise FileFormatError(f"is no JSON ({error})", where=str(path)) from error
    if not isinstance(content, Mapping):
        raise FileFormatError(
            "is no JSON object with options", where=str(path), fix='Write {"model": "a.pt", ...}'
        )
    stated: list[str] = []
    for key, value in content.items():
        if value is None:
            continue
        name = f"--{str(key).lstrip('-').replace('_', '-')}"
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        stated += [name, text]
    return stated
