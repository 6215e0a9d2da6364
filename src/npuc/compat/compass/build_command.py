"""`aipubuild CFG`: parse, quantize, build and, in run mode, run: the whole way by one cfg file.

Files that the single tools would have exchanged, the float IR and the quantized IR, are left in the optimizer's output folder.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from npuc.compat.arguments import VendorParser
from npuc.compat.compass.builder_commands import build, request_of, run_section, write_profile
from npuc.compat.compass.builder_plugins import refuse_builder_plugins
from npuc.compat.compass.cfg import CfgSection, read_cfg
from npuc.compat.compass.layers import ir_layers
from npuc.compat.compass.opt_command import optimize
from npuc.compat.compass.optimizer_plugins import plugin_types
from npuc.compat.compass.parse_command import parse_model, write_float_ir
from npuc.compat.compass.plugin_files import load_plugins
from npuc.errors import UsageError
from npuc.export.compass import export_compass
from npuc.files import existing_file, make_folder, writable
from npuc.flow import network_to_quantize
from npuc.ir import Graph
from npuc.program.file import save_compiled


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = VendorParser("aipubuild", "Build, and run, a model by a cfg file.")
    parser.add("cfg", help="the cfg file, with the sections Common, Parser, Optimizer and GBuilder")
    options = parser.parse(arguments)
    sections = read_cfg(options.cfg)
    for name in ("Parser", "Optimizer", "GBuilder"):
        if name not in sections:
            raise UsageError(
                f"has no section [{name}]",
                where=str(options.cfg),
                fix="aipuparse, aipuopt and aipugb do one step each",
            )
    common = sections.get("Common", CfgSection("Common", {}, str(options.cfg)))
    common.check_known(("mode",), {"use_aqt": "there is one optimizer"})
    runs = common.choice("mode", ("run", "build"), "run") == "run"
    load_plugins()
    request = request_of(sections["GBuilder"])
    files = request.section.names("inputs")
    if runs and not files:
        raise UsageError("[GBuilder] inputs names no file, and mode is run", where=str(options.cfg))
    for file in files if runs else ():
        existing_file(file)
    output = request.section.text("outputs", "output.bin" if runs else "aipu.bin")
    writable(output)
    graph = _with_operator_plugins(parse_model(sections["Parser"]))
    refuse_builder_plugins({layer.kind for layer in ir_layers(graph)})
    optimizer = sections["Optimizer"]
    optimizer = CfgSection("Optimizer", {"model_name": graph.name, **optimizer.values}, optimizer.path)
    done = optimize(optimizer, graph, request.target)
    write_float_ir(graph, sections["Parser"], make_folder(Path(optimizer.text("output_dir", "./"))))
    integers = done.quantized.graph
    integers.name = graph.name
    if runs:
        return run_section(integers, request, output)
    model = build(integers, request, graph.name)
    save_compiled(model, output)
    print(f"Total program written to {output}")
    if request.section.flag("profile"):
        print("Profile data:", *write_profile(model, request.target, Path(output).parent))
    return 0


def _with_operator_plugins(graph: Graph) -> Graph:
    """The network as its IR, in which operators of plugins compute layers, if there are such; else as it is."""
    if not plugin_types() & {layer.kind for layer in ir_layers(graph)}:
        return graph
    with TemporaryDirectory() as folder:
        text, _ = export_compass(graph, Path(folder) / f"{graph.name}.txt")
        return network_to_quantize(text)
