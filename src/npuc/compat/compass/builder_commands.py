"""`aipugb` and `aipurun`: a quantized IR becomes a program, and the program runs on raw tensors.

A program is an .npu file under the vendor's name. Its inputs and outputs are the integers of the quantized network: `inputs` are
raw files of their type and shape, in the order of input_tensors; outputs are written one file each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions
from npuc.compat.arguments import VendorParser
from npuc.compat.compass.builder_plugins import refuse_builder_plugins
from npuc.compat.compass.cfg import CfgSection
from npuc.compat.compass.checker_plugins import check_layers
from npuc.compat.compass.layers import ir_layers, require_ir
from npuc.compat.compass.logger import say
from npuc.compat.compass.plugin_files import load_plugins
from npuc.compat.compass.targets import megahertz, resolve_target, with_memory
from npuc.debug.layers import layer_tensors
from npuc.engine import IntegerEngine
from npuc.errors import FileFormatError, UsageError
from npuc.export.compass.layers import SHORT_FLOATS
from npuc.export.compass.text import OPTIMIZED
from npuc.files import existing_file, make_folder, writable, write_atomically
from npuc.flow import compile_network, network_to_quantize, quantize_network
from npuc.frontend.compass.reader import read_text
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, shape_of
from npuc.profile.network_drawing import write_drawing
from npuc.program.file import save_compiled
from npuc.program.model import CompiledModel
from npuc.quant.config import Level, QuantizationConfig
from npuc.quant.patterns import layer_names
from npuc.quant.prequantized import is_quantized
from npuc.runtime import Runner
from npuc.target import Target
from npuc.tensors import write_raw

KEYS = (
    "inputs",
    "outputs",
    "target",
    "profile",
    "png",
    "svg",
    "tcm_size",
    "gm_size",
    "tiling",
    "dump_all_tensors",
    "dump_tensors",
)
_SHORT = {word: kind for kind, word in SHORT_FLOATS.items()}
_COUNTERS = "figures come from the cycle model"
IGNORED = {
    "simulator": "programs run on npuc's own simulator",
    "local_lib": "kernels are npuc's own",
    "prof_unit": f"{_COUNTERS}, for all units",
    "fast_perf": _COUNTERS,
    "max_sample_point_num": _COUNTERS,
    "max_aiff_sample_point_num": _COUNTERS,
    "max_dma_sample_point_num": _COUNTERS,
    "max_custom_sample_point_num": _COUNTERS,
    "stack_size": "programs have no stack",
    "ocm_addr": "there is no second memory on the chip",
    "ocm_size": "there is no second memory on the chip, and results are the same without",
}
"""Keys without an effect here, and why."""


@dataclass(frozen=True)
class BuildRequest:
    """What a command asks of the builder."""

    section: CfgSection
    target: Target

    @property
    def level(self) -> int:
        """`tiling = fps` searches further."""
        return 2 if self.section.choice("tiling", ("fps",)) else 1


def request_of(section: CfgSection) -> BuildRequest:
    """A checked section, and the machine that it names."""
    section.check_known(KEYS, IGNORED)
    for key in ("profile", "dump_all_tensors"):
        section.flag(key)
    for key in ("png", "svg"):
        word = section.text(key)
        if word and word.lower() not in ("true", "1") and Path(word).suffix.lower() != f".{key}":
            raise section.wrong(key, f"is no file such as net.{key}")
    _dumped(section)
    target = resolve_target(section.text("target"))
    local = section.integer("tcm_size", 0, 1, 1 << 20) if "tcm_size" in section.values else None
    shared = section.integer("gm_size", 0, 1, 1 << 20) if "gm_size" in section.values else None
    if local is not None or shared is not None:
        target = with_memory(target, local=local, shared=shared)
    return BuildRequest(section, target)


def build(graph: Graph, request: BuildRequest, name: str) -> CompiledModel:
    """The program of an integer network; what the CPU has to do is told."""
    done = compile_network(graph, request.target, CompileOptions(level=request.level), name)
    for layer, place in done.too_large.items():
        say("W", f"{layer} is on the CPU: {place}", "GBuilder")
    _draw(graph, request.section)
    return done.model


def _draw(graph: Graph, section: CfgSection) -> None:
    for key in ("png", "svg"):
        if key in section.values:
            word = section.text(key)
            path = Path(f"{graph.name or 'graph'}.{key}" if word.lower() in ("true", "1") else word)
            written, words = write_drawing(graph, path)
            say("I", f"graph: {written}{f' ({words})' if words else ''}", "GBuilder")


def write_profile(model: CompiledModel, target: Target, folder: Path) -> list[Path]:
    """graph.json with what the program is, and profile_data.bin, from which aipu_profiler makes its report."""
    content = {
        "graph_name": model.name,
        "frequency": megahertz(target),
        "target": target.name,
        "inputs": [{"name": t.name, "shape": list(t.shape)} for t in Runner(model, raw=True).input_tensors],
        "outputs": [{"name": t.name, "shape": list(t.shape)} for t in Runner(model, raw=True).output_tensors],
    }
    paths = [folder / "graph.json", folder / "profile_data.bin"]
    with write_atomically(paths[0]) as out:
        out.write(json.dumps(content, indent=2).encode())
    save_compiled(model, paths[1])
    return paths


def read_raw(model: CompiledModel, files: Sequence[str], batches: int = 1) -> list[dict[str, Array]]:
    """The inputs of a program from raw files of its integers, in their order; a file may hold several batches."""
    tensors = Runner(model, raw=True).input_tensors
    if len(files) != len(tensors):
        names = ", ".join(tensor.name for tensor in tensors)
        raise UsageError(f"inputs names {len(files)} files, and the program has the inputs {names}")
    arrays = {
        tensor.name: _raw(existing_file(file), tensor, batches)
        for file, tensor in zip(files, tensors, strict=True)
    }
    return [{name: array[number] for name, array in arrays.items()} for number in range(batches)]


def _raw(path: Path, tensor: Any, batches: int) -> Array:
    data = path.read_bytes()
    count = int(np.prod(tensor.shape, dtype=np.int64)) * batches
    if len(data) == count * tensor.dtype.itemsize:
        stored: Array = np.frombuffer(data, tensor.dtype.newbyteorder("<"))
        return stored.astype(tensor.dtype).reshape(batches, *tensor.shape)
    times = f"{batches} times " if batches > 1 else ""
    raise FileFormatError(
        f"has {len(data)} bytes, and the input '{tensor.name}' has {count * tensor.dtype.itemsize}: "
        f"{times}{list(tensor.shape)} of {tensor.dtype}",
        where=str(path),
    )


def run_program(model: CompiledModel, batches: Sequence[Mapping[str, Array]], output: str) -> list[Path]:
    """Run a program on the integers of some batches, and write its outputs, those of all batches one behind the other.

    The first output goes to the file named, others with a number behind its name.
    """
    with Runner(model, raw=True) as runner:
        results = [runner.run(dict(inputs)) for inputs in batches]
    paths = []
    for number, name in enumerate(results[0]):
        path = Path(f"{output}{number or ''}")
        write_raw(path, np.ascontiguousarray(np.concatenate([result[name] for result in results])))
        paths.append(path)
    return paths


def load_quantized(path: Path, weights: Path | None, target: Target) -> Graph:
    """The network of a quantized IR; one whose layers all compute in float stays that."""
    require_ir(path)
    check_layers(path)
    graph = network_to_quantize(path, ImportOptions(weights=weights))
    text = read_text(path)
    kinds = {
        layer.name: _SHORT[kind]
        for layer in text.layers
        for kind in layer.names("layer_top_type")[:1]
        if kind in _SHORT
    }
    refuse_builder_plugins({layer.kind for layer in ir_layers(graph)})
    if is_quantized(graph):
        if kinds:
            say(
                "W",
                f"{', '.join(kinds)}: float16 beside integers is computed in float32, on the CPU",
                "GBuilder",
            )
        integers = quantize_network(graph, None, None, target).graph
    elif OPTIMIZED in text.header:
        called = {name for op in graph.ops for name in layer_names(op, graph.layer_aliases())}
        own: dict[str, Level] = {name: kind for name, kind in kinds.items() if name in called}
        config = QuantizationConfig(scheme="float", layers=own)
        integers = quantize_network(graph, {}, config, target).graph
    else:
        raise UsageError(f"{path} is a float IR", fix="aipuopt quantizes it")
    integers.name = graph.name
    return integers


def dump_layers(graph: Graph, inputs: Mapping[str, Array], section: CfgSection, folder: Path) -> int:
    """Raw tensors of the layers that `dump_all_tensors` or `dump_tensors` asks for; how many."""
    numbers = _dumped(section)
    everything = section.flag("dump_all_tensors")
    make_folder(folder)
    count = 0
    ports = {port.name: port for port in graph.inputs}
    reals = {}
    for name, array in inputs.items():
        reals[name] = array.reshape(shape_of(ports[name].value)) if name in ports else array
    for number, tensor in enumerate(layer_tensors(IntegerEngine(graph), reals)):
        if tensor.kind != "input" and (everything or number in numbers):
            stem = "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in tensor.name)[:150]
            write_raw(folder / f"{number}_{stem}.bin", np.ascontiguousarray(tensor.values))
            count += 1
        numbers.discard(number)
    if numbers:
        say(
            "W", f"dump_tensors names {', '.join(map(str, sorted(numbers)))}, which no tensor has", "GBuilder"
        )
    return count


def _dumped(section: CfgSection) -> set[int]:
    """The numbers of `dump_tensors`."""
    words = section.names("dump_tensors")
    if not all(word.isdigit() for word in words):
        raise section.wrong("dump_tensors", "is no list of numbers such as 2,3")
    return set(map(int, words))


def _parser(command: str, words: str, output: str) -> VendorParser:
    parser = VendorParser(command, words)
    parser.add("ir", nargs="?", help="the quantized IR (.txt)")
    parser.add("-w", "--weight", metavar="FILE", help="its binary file; the one beside it otherwise")
    parser.add("-o", "--outputs", default=output, metavar="FILE", help="what is written")
    parser.add("-v", "--version", action="store_true", help="the version of the tool and its plugins")
    parser.add("-p", "--profile", action="store_true", help="write graph.json and profile_data.bin")
    parser.add("--target", default="", help="the part: X1_1204, X2_1204 (the default) or X2_1204MP3")
    parser.add("--tiling", default="", help="fps: search for a faster schedule")
    parser.add("--tcm_size", default="", metavar="KB", help="tightly coupled memory of X1")
    parser.add("--gm_size", default="", metavar="KB", help="global memory of X2")
    parser.add("--png", default="", metavar="FILE", help="draw the network")
    parser.add("--svg", default="", metavar="FILE", help="draw the network")
    for name, reason in IGNORED.items():
        names = ("-L", f"--{name}") if name == "local_lib" else (f"--{name}",)
        parser.add_ignored(names[-1], reason)
    return parser


def _section(options: Any, command: str) -> CfgSection:
    names = (
        "inputs",
        "outputs",
        "target",
        "tiling",
        "tcm_size",
        "gm_size",
        "png",
        "svg",
        "dump_tensors",
    )
    values = {key: str(value) for key in names if (value := getattr(options, key, None))}
    if getattr(options, "dump_all_tensors", False):
        values["dump_all_tensors"] = "true"
    return CfgSection("GBuilder", values, command)


def _version(command: str, plugins: Sequence[str]) -> int:
    import npuc

    print(f"{command} (npuc {npuc.__version__}); plugins: {', '.join(plugins) or 'none'}")
    return 0


def build_main(arguments: list[str]) -> int:
    """`aipugb`."""
    options = _parser("aipugb", "Build a program of a quantized IR.", "aipu.bin").parse(arguments)
    plugins = load_plugins()
    if options.version:
        return _version("aipugb", plugins)
    request, graph = _opened(options, "aipugb")
    path = writable(options.outputs)
    model = build(graph, request, graph.name or "graph")
    save_compiled(model, path)
    print(f"Total program written to {path}")
    if options.profile:
        print("Profile data:", *write_profile(model, request.target, path.parent))
    return 0


def run_main(arguments: list[str]) -> int:
    """`aipurun`."""
    parser = _parser(
        "aipurun", "Build a program of a quantized IR and run it on the simulator.", "output.bin"
    )
    parser.add("-i", "--inputs", default="", help="raw files of the inputs, with commas between")
    parser.add("--dump_all_tensors", action="store_true", help="raw files of the results of all layers")
    parser.add("--dump_tensors", default="", help="numbers of layers, with commas between")
    options = parser.parse(arguments)
    plugins = load_plugins()
    if options.version:
        return _version("aipurun", plugins)
    request, graph = _opened(options, "aipurun")
    if not options.inputs:
        raise UsageError("aipurun needs --inputs: raw files of the network's inputs")
    writable(options.outputs)
    return run_section(graph, request, options.outputs, profile=options.profile)


def run_section(graph: Graph, request: BuildRequest, output: str, profile: bool = False) -> int:
    """Build, run on the inputs of a section, and write outputs, dumps and the profile."""
    model = build(graph, request, graph.name or "graph")
    files = request.section.names("inputs")
    (inputs,) = read_raw(model, files)
    paths = run_program(model, [inputs], output)
    print(f"Total outputs: {len(paths)}: {', '.join(map(str, paths))}")
    if request.section.flag("dump_all_tensors") or "dump_tensors" in request.section.values:
        folder = Path(output).parent / "dump"
        count = dump_layers(graph, _as_reals(model, inputs), request.section, folder)
        print(f"{count} tensors dumped to {folder}")
    if profile or request.section.flag("profile"):
        print("Profile data:", *write_profile(model, request.target, Path(output).parent))
    return 0


def _as_reals(model: CompiledModel, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the integers of the inputs stand for."""
    reals = {}
    for tensor in Runner(model, raw=True).input_tensors:
        array = inputs[tensor.name]
        reals[tensor.name] = (
            (array.astype(np.float32) - tensor.zero_point) * np.float32(tensor.scale)
            if tensor.scale
            else array
        )
    return reals


def _opened(options: Any, command: str) -> tuple[BuildRequest, Graph]:
    if not options.ir:
        raise UsageError(f"{command} needs an IR", fix=f"{command} net.txt; '{command} --help' shows more")
    request = request_of(_section(options, command))
    weights = existing_file(options.weight) if options.weight else None
    return request, load_quantized(existing_file(options.ir), weights, request.target)
