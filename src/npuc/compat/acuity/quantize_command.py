"""`pegasus quantize`: ranges from samples, and X.quantize from them; or a hybrid network from an edited X.quantize."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuc.calib.sources import Source
from npuc.calib.table import CalibrationTable
from npuc.compat.acuity.input_meta import PreparedInputs, prepared, read_meta
from npuc.compat.acuity.layers import lid_of
from npuc.compat.acuity.model_files import AcuityModel, open_model, read_json, with_suffix, write_view
from npuc.compat.acuity.options import (
    model_options,
    one_of,
    parser,
    positive,
    sampling_options,
    tell_device,
    tell_equivalent,
)
from npuc.compat.acuity.quantization import (
    arithmetic_of,
    config_of,
    described,
    float_network,
    quantized_by_file,
    samples,
    spelled,
    tuned_network,
)
from npuc.compat.acuity.quantize_file import (
    FLOAT,
    FLOATS,
    LEVELS,
    NumberType,
    QuantizeFile,
    read_quantize_file,
    write_quantize_file,
)
from npuc.compat.arguments import VendorParser
from npuc.compat.running import warn
from npuc.errors import UsageError
from npuc.files import existing_file, make_folder, writable, write_atomically
from npuc.flow import (
    Quantized,
    needs_ranges,
    quantize_network,
    quantize_on_data,
    ranges_from,
    save_graph,
    schemes_of,
)
from npuc.ir import Graph, result_names
from npuc.quant.analysis.analyze import analyze
from npuc.quant.analysis.hybrid import suggest
from npuc.quant.analysis.measurements import Measurements
from npuc.quant.ladder.run import PipelineOptions
from npuc.target import Target
from npuc.words import counted

_QTYPES = {
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "qbfloat16": "bf16",
    "bfloat16": "bf16",
    "float16": "f16",
}
_QUANTIZERS = tuple(dict.fromkeys(kind.quantizer for kind in LEVELS if kind.qtype))
_FLOATS = {"qbfloat16": ("qbfloat16", "bfloat16"), "float16": ("float16",)}
"""Quantizers without scales, and the words of --qtype that go with them."""
_ALGORITHMS = ("normal", "kl_divergence", "moving_average", "auto")
_WIDE = NumberType("dynamic_fixed_point", "i16")
"""The type that layers with much loss are given."""


def quantize_parser() -> VendorParser:
    """The options of the command."""
    own = parser("pegasus quantize", "Quantize a model.")
    model_options(own)
    own.add(
        "--model-quantize",
        help="the .quantize file to write, or with --hybrid to read; MODEL.quantize if left out",
    )
    sampling_options(own)
    own.add("--quantizer", default="asymmetric_affine", help="the scales", type=one_of(*_QUANTIZERS))
    own.add(
        "--qtype", help="the type of numbers; uint8, or that of qbfloat16 and float16", type=one_of(*_QTYPES)
    )
    own.add("--hybrid", action="store_true", help="use the types of customized_quantize_layers")
    own.add("--rebuild", "--quantized-rebuild", dest="rebuild", action="store_true", help="find ranges anew")
    own.add("--rebuild-all", action="store_true", help="find ranges anew, for all activations")
    own.add("--algorithm", type=one_of(*_ALGORITHMS), default="normal", help="how ranges are found")
    own.add("--moving-average-weight", type=_weight, help="of moving_average; 0.01 if left out")
    own.add("--divergence-nbins", type=positive, help="bins of kl_divergence, a power of two")
    own.add(
        "--divergence-first-quantize-bits",
        type=positive,
        help="bins of kl_divergence, as a power of two; 11 if left out",
    )
    own.add(
        "--compute-entropy", action="store_true", help="write entropy.txt, and suggest layers for 16 bits"
    )
    own.add("--MLE", action="store_true", help="also tune weights and ranges against the error of each layer")
    own.add("--output-dir", default=".", help="the folder of entropy.txt")
    return own


def _weight(text: str) -> float:
    """A type of option: a share above 0."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ArgumentTypeError(f"'{text}' is no number above 0 and at most 1")
    return share


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = quantize_parser().parse(arguments)
    _check(options)
    tell_device(options.device)
    model = open_model(options.model, options.model_data)
    meta = read_meta(options.with_input_meta)
    path = (
        Path(options.model_quantize) if options.model_quantize else with_suffix(str(model.stem), ".quantize")
    )
    inputs = prepared(model.graph, meta)
    if options.hybrid:
        return _hybrid(model, inputs, existing_file(path), _kind(options))
    writable(path)
    if not options.rebuild and not options.rebuild_all and path.exists():
        read_quantize_file(path)
        warn(f"{path} is there and is used as it is; --rebuild finds ranges anew")
        return 0
    make_folder(options.output_dir)
    return _rebuild(model, inputs, path, options)


def _check(options: Namespace) -> None:
    """Refuse options that contradict each other."""
    chosen = [
        f"--{name.replace('_', '-')}"
        for name in ("hybrid", "rebuild", "rebuild_all")
        if getattr(options, name)
    ]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other")
    kl, average = options.algorithm == "kl_divergence", options.algorithm == "moving_average"
    if options.divergence_nbins and options.divergence_first_quantize_bits:
        raise UsageError("--divergence-nbins and --divergence-first-quantize-bits exclude each other")
    if (options.divergence_nbins or options.divergence_first_quantize_bits) and not (
        kl or options.algorithm == "auto"
    ):
        raise UsageError(
            "--divergence-nbins and --divergence-first-quantize-bits are for --algorithm kl_divergence"
        )
    if options.moving_average_weight is not None and not average:
        raise UsageError("--moving-average-weight is for --algorithm moving_average")
    bins = options.divergence_nbins
    if bins and bins & (bins - 1):
        raise UsageError(f"--divergence-nbins {bins} is no power of two")
    if options.divergence_first_quantize_bits and options.divergence_first_quantize_bits > 16:
        raise UsageError("--divergence-first-quantize-bits is at most 16")
    if options.compute_entropy and (options.batch_size or 1) != 1:
        raise UsageError("--compute-entropy is valid with --batch-size 1 only")


def _kind(options: Namespace) -> NumberType:
    """The type that --quantizer and --qtype ask for."""
    words = _FLOATS.get(options.quantizer)
    if words:
        if options.qtype not in (None, *words):
            raise UsageError(
                f"--quantizer {options.quantizer} has no --qtype {options.qtype}",
                fix=f"It is --qtype {words[0]}",
            )
        return NumberType(options.quantizer, _QTYPES[words[0]])
    kind = NumberType(options.quantizer, _QTYPES[options.qtype or "uint8"])
    if kind not in LEVELS:
        pairs = [
            f"{known.quantizer} with {word}"
            for known in LEVELS
            for word, short in _QTYPES.items()
            if short == known.qtype
        ]
        raise UsageError(
            f"--quantizer {options.quantizer} has no --qtype {options.qtype or 'uint8'}",
            fix=f"There are: {', '.join(pairs[:-2])}",
        )
    return kind


def _method(options: Namespace) -> str:
    """The range method of an algorithm."""
    if options.algorithm == "normal":
        return "max"
    if options.algorithm == "moving_average":
        return f"moving-average:weight={0.01 if options.moving_average_weight is None else options.moving_average_weight}"
    return f"kl:bins={options.divergence_nbins or 2 ** (options.divergence_first_quantize_bits or 11)}"


def _rebuild(model: AcuityModel, inputs: PreparedInputs, path: Path, options: Namespace) -> int:
    kind = _kind(options)
    target = arithmetic_of(kind)
    graph = float_network(inputs.graph, target)
    config = config_of(graph, kind, {})
    source, _ = samples(inputs, options.batch_size, options.iterations)
    customized: dict[str, NumberType] = {}
    tuned = ""
    if options.MLE:
        quantized, ranges, customized = _tuned(graph, source, kind, target, options)
        tuned = f"{model.stem.name}.mle.npuc.mlir"
        folder = (model.data or model.path).parent
        save_graph(quantized.source, folder / tuned, f"{model.stem.name}.mle.data")
        print(f"Save tuned weights to {folder / model.stem.name}.mle.data")
    else:
        ranges = CalibrationTable({})
        if needs_ranges(graph, config, target):
            ranges = ranges_from(
                graph, source, schemes_of(graph, config, target), _method(options), warn=warn
            )
        quantized = quantize_network(graph, ranges, config, target)
        if options.algorithm == "auto":
            again, _ = samples(inputs, options.batch_size, options.iterations)
            customized = _suggested(_measured(quantized, again))
            config = config_of(graph, kind, customized)
            quantized = quantize_network(graph, ranges, config, target)
    file = replace(described(quantized, ranges, kind, customized), tuned=tuned)
    if options.compute_entropy:
        again, _ = samples(inputs, options.batch_size, options.iterations)
        file = _with_entropy(file, quantized, again, Path(options.output_dir) / "entropy.txt")
    write_quantize_file(file, path)
    counts = f"{counted(len(file.tensors), 'tensor')}, {counted(source.total or 0, 'sample')}"
    print(f"Save quantize file to {path} ({kind}, {counts})")
    how = (
        ["--ladder", ",".join(_steps(options))]
        if options.MLE
        else ["--no-tune", "--method", _method(options)]
    )
    tell_equivalent(
        "quantize",
        f"{model.stem}.npuc.mlir",
        "--data",
        inputs.meta.databases[0].path,
        *how,
        *_scheme_words(kind),
    )
    return 0


def _scheme_words(kind: NumberType) -> list[str]:
    level = LEVELS[kind]
    if isinstance(level, str):
        return ["--scheme", level]
    return [
        "--scheme",
        "int8",
        *(word for key, value in level.items() for word in ("--scheme-option", f"{key}={value}")),
    ]


def _steps(options: Namespace) -> tuple[str, ...]:
    """The steps of the ladder that --MLE stands for."""
    return ("ranges", "adaquant", "mixed") if options.algorithm == "auto" else ("ranges", "adaquant")


def _tuned(
    graph: Graph, source: Source, kind: NumberType, target: Target | None, options: Namespace
) -> tuple[Quantized, Mapping[str, Any], dict[str, NumberType]]:
    """The network whose weights and ranges are tuned layer by layer; with `auto`, also the layers that get more bits."""
    config = config_of(graph, kind, {})
    steps = _steps(options)
    quantized, ranges = quantize_on_data(
        graph,
        source,
        config,
        target,
        "mse",
        threads=len(os.sched_getaffinity(0)),
        warn=warn,
        ladder=PipelineOptions(steps),
    )
    plain = schemes_of(quantized.source, config, target)
    customized = {}
    for op in quantized.source.ops:
        before, now = plain(op), quantized.scheme_of(op)
        if before is not None and before != now:
            lid = lid_of(spelled(quantized.source, result_names(op)[0]))
            customized[lid] = NumberType(FLOAT) if now is None else _WIDE
    if customized:
        quantized = quantize_network(
            quantized.source, ranges, config_of(quantized.source, kind, customized), target
        )
    return quantized, ranges, customized


def _measured(quantized: Quantized, source: Source) -> Measurements:
    return analyze(quantized.source, quantized.graph, source, quantized.scheme_of, warn=warn).measurements


def _suggested(measured: Measurements) -> dict[str, NumberType]:
    """Layers that should have 16 bits, by identifier."""
    hybrid = suggest(measured, lambda name, change: LEVELS[_WIDE])
    return {lid_of(spelled(measured.source, name)): _WIDE for name in hybrid.layers}


def _with_entropy(file: QuantizeFile, quantized: Quantized, source: Source, path: Path) -> QuantizeFile:
    """Write the entropy of each layer, the worst first; the file with suggestions for the layers that lose most."""
    if file.base.qtype in FLOATS:
        raise UsageError(
            f"--compute-entropy measures integers, and --quantizer {file.base.quantizer} has none"
        )
    measured = _measured(quantized, source)
    rows = sorted(measured.tensors, key=lambda tensor: -tensor.entropy)
    lines = [f"{lid_of(spelled(measured.source, tensor.name))} {tensor.entropy:.6f}" for tensor in rows]
    with write_atomically(path) as out:
        out.write(("\n".join(lines) + "\n").encode())
    print(f"Save entropy to {path}")
    return replace(file, customized={**_suggested(measured), **file.customized})


def _hybrid(model: AcuityModel, inputs: PreparedInputs, path: Path, kind: NumberType) -> int:
    """The network with the types that X.quantize gives single layers."""
    file = read_quantize_file(path)
    if file.base != kind:
        raise UsageError(
            f"{path} was made with {file.base}, and --quantizer and --qtype say {kind}",
            fix="State the same as with --rebuild",
        )
    target = arithmetic_of(kind)
    graph = tuned_network(model, file)
    own = replace(inputs, graph=prepared(graph, inputs.meta).graph)
    quantized, ranges = quantized_by_file(own, file, target, str(path))
    written = replace(described(quantized, ranges, kind, file.customized), tuned=file.tuned)
    view = with_suffix(str(model.stem), ".quantize.json")
    kept = read_json(model.path).get("npuc", {})
    write_view(
        view,
        model.graph,
        model.name,
        model.platform,
        kept,
        {lid: str(entry) for lid, entry in file.customized.items()},
    )
    write_quantize_file(written, path)
    print(f"Save hybrid net to {view}")
    print(f"Save quantize file to {path} ({kind}, {len(file.customized)} customized layers)")
    return 0
