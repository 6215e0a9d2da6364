"""`vai_c_xir`, `vai_c_tensorflow`, `vai_c_tensorflow2`: a quantized model becomes a program, `<output_dir>/<net_name>.xmodel`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npuc.compat.arguments import VendorParser, comma_list
from npuc.compat.vitis.notices import near_names, unknown_option
from npuc.compat.vitis.targets import resolve_target
from npuc.compat.vitis.xmodels import integer_network
from npuc.errors import UnknownTensorError, UsageError
from npuc.files import make_folder
from npuc.flow import compile_network
from npuc.ir import Graph, shape_of
from npuc.ir.passes import run_pipeline
from npuc.program.file import save_compiled
from npuc.program.model import CpuSubgraph

_WITHOUT_EFFECT = {
    "prefetch": "weights of the next group are always loaded ahead",
    "hd_opt": "large inputs are always cut into tiles",
}


def xir(arguments: list[str]) -> int:
    """`vai_c_xir`."""
    return _main(
        "vai_c_xir",
        ("-x", "--xmodel"),
        "The quantized model: an .xmodel, or an ONNX file in QDQ form.",
        arguments,
    )


def tensorflow(arguments: list[str]) -> int:
    """`vai_c_tensorflow`."""
    return _main(
        "vai_c_tensorflow", ("-f", "--frozen_pb"), "The quantized model of vai_q_tensorflow.", arguments
    )


def tensorflow2(arguments: list[str]) -> int:
    """`vai_c_tensorflow2`."""
    return _main("vai_c_tensorflow2", ("-m", "--model"), "The quantized model of vitis_quantize.", arguments)


def caffe(arguments: list[str]) -> int:
    """`vai_c_caffe`, which the vendor dropped."""
    raise UsageError(
        "vai_c_caffe is deprecated by the vendor",
        fix="'npuc compile model.prototxt --data images/' compiles Caffe models",
    )


def _main(command: str, names: tuple[str, str], words: str, arguments: list[str]) -> int:
    parser = VendorParser(command, "Compile a quantized model for a DPU.")
    parser.add(*names, dest="model", required=True, metavar="FILE", help=words)
    parser.add(
        "-a", "--arch", required=True, metavar="JSON", help="The arch.json file, or the name of a target."
    )
    parser.add("-o", "--output_dir", required=True, metavar="DIR", help="Where the program is written.")
    parser.add("-n", "--net_name", required=True, metavar="NAME", help="What it is called.")
    parser.add(
        "--options", "-e", default="{}", metavar="JSON", help="Further options: input_shape, output_ops."
    )
    given = parser.parse(arguments)
    if not given.net_name or "/" in given.net_name or given.net_name.startswith("."):
        raise UsageError(
            f"--net_name {given.net_name!r} is not a plain name", fix="The folder is --output_dir"
        )
    target = resolve_target(given.arch)
    options = _options(given.options)
    graph = integer_network(given.model, target)
    _check_shape(graph, options.get("input_shape"))
    if "output_ops" in options:
        graph = ending_at(graph, comma_list(options["output_ops"]))
    done = compile_network(graph, target, name=given.net_name)
    path = make_folder(Path(given.output_dir)) / f"{given.net_name}.xmodel"
    save_compiled(done.model, path)
    devices = [part for part in done.model.subgraphs if isinstance(part, CpuSubgraph)]
    for part in devices:
        for layer, reason in part.reasons.items():
            print(f"[UNILOG][WARNING] {layer} is assigned to the CPU: {reason}", file=sys.stderr)
    print(f"Total device subgraph number {len(done.model.subgraphs)}, DPU subgraph number {len(done.parts)}")
    print(f"The compiled xmodel is saved to {path}")
    return 0


def _options(text: str) -> dict[str, str]:
    try:
        values: Any = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"--options is not JSON: {error}", fix="""Write --options '{"input_shape": "1,224,224,3"}'"""
        ) from error
    if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
        raise UsageError(
            "--options is not a JSON object of texts", fix="""Write --options '{"prefetch": "true"}'"""
        )
    if "plugins" in values:
        raise UsageError(
            "--options plugins is not supported: plugins of the vendor's compiler are C++ on its own graphs",
            fix="'npuc plugin --help' says how npuc is extended",
        )
    for name in values.keys() - {"input_shape", "output_ops", *_WITHOUT_EFFECT}:
        unknown_option(name, "--options")
    for name in values.keys() & _WITHOUT_EFFECT.keys():
        print(f"note: {name} has no effect here: {_WITHOUT_EFFECT[name]}", file=sys.stderr)
    return dict(values)


def _check_shape(graph: Graph, text: str | None) -> None:
    """A quantized network has the shape that it was quantized with; the option may say so again."""
    if text is None:
        return
    try:
        shape = tuple(map(int, comma_list(text)))
    except ValueError:
        raise UsageError(f"input_shape is {text!r}", fix="Numbers with commas between: 1,224,224,3") from None
    known = [shape_of(port.value) for port in graph.inputs]
    orders = [*known, *((size[0], *size[2:], size[1]) for size in known if len(size) == 4)]
    if shape not in orders:
        raise UsageError(
            f"input_shape is {list(shape)}, and the model was quantized for {', '.join(str(list(size)) for size in known)}",
            fix="Quantize it for that shape",
        )


def ending_at(graph: Graph, names: list[str]) -> Graph:
    """The network up to some of its layers, which become its outputs."""
    graph = graph.copy()
    known = graph.tensor_names()
    values = []
    for name in names:
        value = graph.find(name)
        if value is None or name not in known:
            raise UnknownTensorError(
                f"output_ops: there is no op '{name}' (XCOM_USER_INVALID_OUTPUT_OPS)",
                fix=near_names(name, known),
            )
        values.append((name, value))
    graph.set_outputs(values)
    return run_pipeline(graph, "eliminate-dead-code")
