"""`run_qtable.py`: which ops lose most in INT8, as a quantization table that gives them a float type.

The loss of an op is the noise at the network's outputs if its result and its weights alone are rounded (`npuc.quant.analysis`).
"""

from __future__ import annotations

from npuc.calib.feeding import Feeder
from npuc.calib.user_function import load_output_function
from npuc.compat.arguments import VendorParser, keyword
from npuc.compat.names import NameMap
from npuc.compat.running import warn
from npuc.compat.tpumlir.calibration_command import data_options, samples_of
from npuc.compat.tpumlir.chips import add_chip, chip_named
from npuc.compat.tpumlir.names import names_of
from npuc.compat.tpumlir.ranges import int8_config, merged_like, ranges_for, with_measured
from npuc.compat.tpumlir.tables import format_quantization, read_calibration, read_quantization, write_text
from npuc.errors import UsageError
from npuc.files import existing_file, writable
from npuc.flow import network_to_quantize, quantize_network
from npuc.ir import Graph
from npuc.ir.target_rewrites import rewritten_for
from npuc.quant.analysis import analyze
from npuc.quant.analysis.float_layers import float_layers_for
from npuc.quant.analysis.measurements import Measurements, decibels
from npuc.quant.output_similarity import OutputSimilarity
from npuc.quant.validation import Program

_DEFAULT_SAMPLES = 10


def parser() -> VendorParser:
    """The options of the command."""
    own = VendorParser("run_qtable.py", "Find the ops that lose most in INT8.")
    data_options(own)
    own.add("--calibration_table", required=True)
    add_chip(own, required=True)
    own.add(
        "--num_layers",
        "--max_float_layers",
        dest="num_layers",
        type=int,
        default=10,
        help="ops of a float type",
    )
    own.add(
        "--fp_type",
        type=keyword("auto", "F32", "F16", "BF16"),
        default="auto",
        help="the float type; auto is F32",
    )
    own.add("--loss_table", default="full_loss_table.txt", help="the file for the losses of all ops")
    own.add("--base_quantize_table", help="a quantization table to add to")
    own.add("-o", "--quantize_table", required=True, help="the quantization table to write")
    own.add(
        "--expected_cos",
        type=float,
        help="stop at the first op with which all outputs have this cosine similarity",
    )
    own.add(
        "--min_layer_cos", type=float, help="leave ops in INT8 whose own cosine similarity is at least this"
    )
    own.add_ignored("--global_compare_layers", "losses are measured at the network's outputs")
    own.add_ignored("--cluster", "ops are measured one by one", action="store_true")
    own.add(
        "--postprocess",
        "--post_process",
        help="a Python file whose function PostProcess makes of the outputs, a dict, what losses are measured at",
    )
    return own


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parser().parse(arguments)
    if options.num_layers < 1:
        raise UsageError(f"--num_layers {options.num_layers} leaves nothing to choose")
    options.input_num = options.input_num or _DEFAULT_SAMPLES
    for path in (options.quantize_table, options.loss_table):
        writable(path)
    target = chip_named(options.chip, "run_qtable.py")
    graph = rewritten_for(network_to_quantize(options.mlir_file), target, "float")
    names = names_of(graph)
    behind = postprocess_of(options.postprocess, names)
    source = samples_of(graph, options, "run_qtable.py")
    table = read_calibration(existing_file(options.calibration_table))
    ranges = ranges_for(graph, table, options.calibration_table)
    graph = merged_like(graph, ranges)
    ranges = with_measured(graph, ranges, None, options.calibration_table)
    quantized = quantize_network(graph, ranges, int8_config(target), target)
    analysis = analyze(
        quantized.source, quantized.graph, source, quantized.scheme_of, warn=warn, behind=behind
    )
    losses = _losses(analysis.measurements)
    lines = [f"# chip: {options.chip}  mix_mode: {_mode(options.fp_type)}", "###"]
    for index, (name, loss) in enumerate(losses):
        lines.append(f"No.{index:<4}: Layer: {names.vendor_name(name):<50}\t\tLoss: {loss}")
    write_text(options.loss_table, "\n".join(lines) + "\n")
    modes: dict[str, str] = {}
    if options.base_quantize_table:
        modes |= read_quantization(existing_file(options.base_quantize_table))
    chosen = [name for name, _ in losses if name not in _exact(analysis.measurements, options.min_layer_cos)]
    chosen = chosen[: options.num_layers]
    if options.expected_cos is not None:
        again = Feeder(graph, samples_of(graph, options, "run_qtable.py"))
        samples = [batch.inputs for batch in again.batches()]

        def integers(floats: tuple[str, ...]) -> Graph:
            config = int8_config(target).with_layers(floats, "float")
            return quantize_network(graph, ranges, config, target).graph

        floats_needed, cosine = float_layers_for(
            options.expected_cos, chosen, integers, OutputSimilarity(graph, samples, behind)
        )
        print(f"outputs at cosine {cosine:.6f} with {len(floats_needed)} ops in {_mode(options.fp_type)}")
        if cosine < options.expected_cos:
            warn(
                f"--expected_cos {options.expected_cos} is not reached with --num_layers {options.num_layers}"
            )
        chosen = list(floats_needed)
    modes |= {names.vendor_name(name): _mode(options.fp_type) for name in chosen}
    noise = decibels(analysis.measurements.output_noise)
    text = format_quantization(
        modes,
        options.chip,
        _mode(options.fp_type),
        analysis.measurements.samples,
        [f"all int8 loss: {-noise:.4f}"],
    )
    write_text(options.quantize_table, text)
    print(f"{len(losses)} ops measured, outputs at {noise:.1f} dB; {len(modes)} in {options.quantize_table}")
    return 0


def postprocess_of(path: str | None, names: NameMap, option: str = "--postprocess") -> Program | None:
    """The function PostProcess of a file, which gets the outputs by TPU-MLIR's names; None without a file."""
    if path is None:
        return None
    if not path.endswith(".py"):
        raise UsageError(
            f"{option} '{path}' is no Python file", fix="Name a .py file with a function PostProcess"
        )
    function = load_output_function(f"{path}:PostProcess")
    return lambda outputs: function(names.outward(outputs))


def _mode(fp_type: str) -> str:
    return "F32" if fp_type == "auto" else fp_type


def _exact(measurements: Measurements, least: float | None) -> set[str]:
    """The ops whose own similarity to the float network is good enough."""
    return {
        tensor.name
        for tensor in measurements.tensors
        if least is not None and tensor.accumulated is not None and tensor.accumulated.cosine >= least
    }


def _losses(measurements: Measurements) -> list[tuple[str, float]]:
    """Layers and the share of the noise that each causes, the largest first."""
    noise: dict[str, float] = {}
    inputs = {port.name for port in measurements.source.inputs}
    for tensor in measurements.tensors:
        if tensor.name not in inputs:
            noise[tensor.name] = noise.get(tensor.name, 0.0) + measurements.share(tensor.noise)
    for weight in measurements.weights:
        noise[weight.name] = noise.get(weight.name, 0.0) + measurements.share(weight.noise)
    return sorted(noise.items(), key=lambda entry: (-entry[1], entry[0]))
