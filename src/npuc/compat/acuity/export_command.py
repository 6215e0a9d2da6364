"""`pegasus export`: the case code of a network (`ovxlib`), or the network in another format."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from npuc.codegen.compile_model import CompileOptions
from npuc.compat.acuity.case_code import normal_case, packed_case, standalone_case
from npuc.compat.acuity.chips import DEFAULT, PER_CHANNEL, target_of
from npuc.compat.acuity.import_command import imported_again
from npuc.compat.acuity.inference_command import quantize_file_of
from npuc.compat.acuity.input_meta import InputMeta, PreparedInputs, prepared, read_meta
from npuc.compat.acuity.layers import TOOL
from npuc.compat.acuity.model_files import AcuityModel, open_model, with_suffix, write_view
from npuc.compat.acuity.options import model_options, one_of, parser, positive, sub_command, tell_equivalent
from npuc.compat.acuity.postprocess import read_postprocess
from npuc.compat.acuity.quantization import config_of, quantized_by_file, tuned_network
from npuc.compat.acuity.quantize_file import FLOAT, NumberType
from npuc.compat.arguments import VendorParser
from npuc.compat.running import warn
from npuc.errors import QuantizationError, UsageError
from npuc.files import make_folder, writable
from npuc.flow import Quantized, compile_network, expanded, quantize_network
from npuc.ir import Graph, shape_of
from npuc.ir.passes import run_pipeline
from npuc.ir.target_rewrites import rewritten_for
from npuc.program.file import compiled_bytes
from npuc.quant.prequantized import is_quantized
from npuc.quant.report import is_integer
from npuc.schedule.cache import Cache
from npuc.target import Target
from npuc.transform import CANONICAL

_FORMATS = ("ovxlib", "tflite", "onnx", "timvx", "nnapi")
_NHWC = ("tensorflow", "tflite", "keras")
_REFUSED = {
    "timvx": "code for TIM-VX needs the vendor's driver; 'pegasus export tflite' writes what its delegate runs",
    "nnapi": "code for NNAPI needs the vendor's driver; 'pegasus export tflite' writes what a delegate runs",
}


def export_parser(form: str) -> VendorParser:
    """The options for one format."""
    own = parser(f"pegasus export {form}", f"Export a model as {form}.")
    model_options(own, meta=form == "ovxlib")
    own.add("--model-quantize", help="the .quantize file")
    own.add(
        "--dtype",
        type=one_of("float", "float16", "float32", "quantized"),
        default="float",
        help="the numbers of the application",
    )
    own.add(
        "--batch-size", type=positive, help="samples of a run; shape[0] of the inputmeta file if left out"
    )
    own.add("--output-path", help="the folder of the application and the prefix of its files")
    if form != "ovxlib":
        own.add("--with-input-meta", help="the inputmeta file, .yml")
        return own
    own.add(
        "--optimize",
        default="default",
        help="the chip: VIPNANOQI_PID0X88 and others, None, default, or a target of npuc",
    )
    own.add("--postprocess-file", help="what an application does with outputs")
    own.add("--save-fused-graph", action="store_true", help="write the network as it is compiled, as .json")
    own.add(
        "--force-remove-permute", action="store_true", help="inputs and outputs of NHWC models become NCHW"
    )
    own.add(
        "--pack-nbg-unify", action="store_true", help="also write the application with a compiled network"
    )
    own.add("--pack-nbg-viplite", action="store_true", help="also write it without files and heap")
    own.add("--viv-sdk", help="not needed")
    own.add_ignored("--build-platform", "make builds it")
    own.add_ignored("--target-ide-project", "projects of IDEs are written anyway")
    own.add_ignored("--customer-lids", "it is reserved")
    own.add_ignored("--customer-ops", "it is reserved")
    return own


def main(arguments: list[str]) -> int:
    """Run the command."""
    form, rest = sub_command("export", arguments, _FORMATS)
    if form in _REFUSED:
        raise UsageError(f"pegasus export {form} is not supported: {_REFUSED[form]}")
    options = export_parser(form).parse(rest)
    model = open_model(options.model, options.model_data)
    return _ovxlib(model, options) if form == "ovxlib" else _other(model, options, form)


@dataclass(frozen=True)
class _Place:
    """Where an application goes, and what its files are called."""

    folder: Path
    name: str


def _place(model: AcuityModel, output: str | None) -> _Place:
    """A folder that exists or ends in a slash keeps the name of the network; any other path has a prefix as its last part."""
    name = model.stem.name
    if not output:
        return _Place(model.path.parent, name)
    if output.endswith("/") or Path(output).is_dir():
        return _Place(Path(output), name)
    return _Place(Path(output).parent, Path(output).name)


def _check(options: Namespace, model: AcuityModel) -> None:
    """Refuse options that contradict each other."""
    packs = [name for name in ("pack_nbg_unify", "pack_nbg_viplite") if getattr(options, name)]
    if len(packs) > 1:
        raise UsageError("--pack-nbg-unify and --pack-nbg-viplite exclude each other")
    for name in ("save_fused_graph", "force_remove_permute"):
        if packs and getattr(options, name):
            raise UsageError(
                f"--{name.replace('_', '-')} and --{packs[0].replace('_', '-')} exclude each other"
            )
    if packs and options.optimize.lower() in ("none", "default"):
        raise UsageError(
            f"--{packs[0].replace('_', '-')} needs --optimize with the name of a chip",
            fix="Such as VIPNANOQI_PID0X88",
        )
    if options.force_remove_permute and model.platform not in _NHWC:
        raise UsageError(
            f"--force-remove-permute is for models of {', '.join(_NHWC)}, and this one is of {model.platform}"
        )
    if options.viv_sdk:
        warn("pegasus export: --viv-sdk has no effect here: npuc compiles for the chip itself")


def _ovxlib(model: AcuityModel, options: Namespace) -> int:
    _check(options, model)
    target = target_of(options.optimize)
    meta = read_meta(options.with_input_meta)
    if options.postprocess_file:
        read_postprocess(options.postprocess_file, model.graph)
    quantized = _quantized(model, meta, target, options)
    place = _place(model, options.output_path)
    level = 0 if options.optimize.lower() == "none" else 2
    compiled = compile_network(
        quantized.graph, target, CompileOptions(level=level, cache=Cache.default()), place.name
    ).model
    content = compiled_bytes(compiled)
    make_folder(place.folder)
    written = normal_case(compiled, content, place.folder, place.name)
    if options.save_fused_graph:
        fused = place.folder / f"{place.name}_fused.json"
        write_view(fused, quantized.source, model.name, model.platform, {})
        written.append(fused)
    if options.pack_nbg_unify or options.pack_nbg_viplite:
        absolute = place.folder.absolute()
        kind = "nbg_unify" if options.pack_nbg_unify else "nbg_viplite"
        packed = absolute.with_name(f"{absolute.name}_{kind}")
        make = packed_case if options.pack_nbg_unify else standalone_case
        written += make(compiled, content, make_folder(packed), place.name)
    for path in written:
        if "runtime" not in path.parts[-3:-1] and "runtime" not in path.parts:
            print(f"Save {path}")
    print(f"{len(written)} files for {target.name}; 'make -f makefile.linux' builds the application")
    tell_equivalent("compile", f"{model.stem}.npuc.mlir", "--target", target.name, "-o", f"{place.name}.npu")
    return 0


def _quantized(model: AcuityModel, meta: InputMeta, target: Target, options: Namespace) -> Quantized:
    """The network in the numbers of the application."""
    if options.dtype != "quantized":
        if options.model_quantize:
            warn(f"--model-quantize has no effect: --dtype is {options.dtype}")
        return _in_float(_ends(model.graph, meta, model, options), target)
    file, where = quantize_file_of(model, options.model_quantize)
    if file is None:
        graph = rewritten_for(_ends(model.graph, meta, model, options).graph, target, "float")
        return quantize_network(graph, None, None, target)
    if file.base.quantizer.startswith("perchannel") and target.name == DEFAULT:
        raise QuantizationError(
            f"perchannel_symmetric_affine is supported by E8 chips only, and --optimize says {options.optimize}",
            fix=f"--optimize VIPNANOQI_PID0XE8 ({PER_CHANNEL})",
        )
    inputs = _ends(tuned_network(model, file), meta, model, options)
    return quantized_by_file(inputs, file, target, where)[0]


def _ends(graph: Graph, meta: InputMeta, model: AcuityModel, options: Namespace) -> PreparedInputs:
    """The network with the batch, the layouts and the preprocessing that an application has."""
    batch = options.batch_size or meta.batch
    own = graph.inputs[0]
    if shape_of(own.value)[:1] != (batch,) and options.batch_size:
        if graph is not model.graph:
            raise UsageError(
                "--batch-size cannot change after --MLE", fix="Import the model with that batch first"
            )
        graph = imported_again(model, batch)
        graph.set_names_for(TOOL, model.graph.names_for(TOOL))
    inputs = prepared(graph, meta, fuse=True)
    if options.force_remove_permute:
        turned = run_pipeline(inputs.graph, f"set-layout{{own=nhwc inputs=nchw outputs=nchw}},{CANONICAL}")
        return PreparedInputs(turned, meta)
    return inputs


def _in_float(inputs: PreparedInputs, target: Target) -> Quantized:
    """The network in float, which runs on the CPU."""
    graph = inputs.graph
    if is_quantized(graph):
        graph = run_pipeline(graph, f"drop-quantization,{CANONICAL}")
    warn("--dtype float: numbers are float32, and layers run on the CPU; --dtype quantized uses the NPU")
    graph = rewritten_for(expanded(graph), target, "float")
    return quantize_network(graph, {}, config_of(graph, NumberType(FLOAT), {}), target)


def _other(model: AcuityModel, options: Namespace, form: str) -> int:
    """The network as TFLite or ONNX, in float or in the integers of X.quantize."""
    from npuc.export.onnx.file import export_onnx
    from npuc.export.qdq import export_quantized_onnx
    from npuc.export.tflite import export_tflite

    graph = model.graph
    if options.dtype == "float16":
        raise UsageError(
            f"--dtype float16: 'pegasus export {form}' writes float32", fix="--dtype float32, or quantized"
        )
    batch = shape_of(graph.inputs[0].value)[:1]
    if options.batch_size and batch != (options.batch_size,):
        if options.dtype == "quantized":
            raise UsageError(
                f"--batch-size {options.batch_size}: the network was quantized with a batch of {batch[0] if batch else 1}",
                fix="Import the model with that batch, and quantize it again",
            )
        graph = imported_again(model, options.batch_size)
    if options.dtype == "quantized":
        if not options.with_input_meta:
            raise UsageError("--dtype quantized needs --with-input-meta, too")
        graph = _quantized_elsewhere(model, options)
    else:
        for name in ("model_quantize", "with_input_meta"):
            if getattr(options, name):
                warn(f"--{name.replace('_', '-')} has no effect: --dtype is {options.dtype}")
    path = writable(with_suffix(options.output_path or str(model.stem), f".{form}"))
    if form == "onnx" and is_integer(graph):
        export_quantized_onnx(graph, path)
    elif form == "onnx":
        export_onnx(graph, path)
    else:
        export_tflite(graph, path)
    print(f"Save {path}")
    return 0


def _quantized_elsewhere(model: AcuityModel, options: Namespace) -> Graph:
    """The integer network for another runtime."""
    file, where = quantize_file_of(model, options.model_quantize)
    meta = read_meta(options.with_input_meta)
    if file is None:
        return quantize_network(model.graph, None).graph
    inputs = prepared(tuned_network(model, file), meta)
    return quantized_by_file(inputs, file, None, where)[0].graph
