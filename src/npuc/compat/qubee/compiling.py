"""`mxq_compile`: from a model and calibration data to a program, `<nickname>.mxq`.

The file is a compiled model of npuc under the name that was asked for; `npuc run`, `npuc sim` and the C runtime read it by its
content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuc.arrays import Array
from npuc.codegen.compile_model import Compilation, CompileOptions
from npuc.compat.qubee.mmc import Compiler
from npuc.compat.qubee.models import ImportedModel, import_model
from npuc.compat.qubee.notices import in_own_words, note, tell_command, told_once, unknown_keyword, wrong
from npuc.compat.qubee.samples import calibration_data, calibration_path, first_sample, save_sample
from npuc.compat.qubee.settings import CompileSettings
from npuc.engine import float_engine
from npuc.errors import CompileError, ScheduleError, UsageError
from npuc.files import writable
from npuc.flow import Quantized, compile_network, quantize_by_method, quantize_network, quantize_on_data
from npuc.ir import Graph
from npuc.ir.target_rewrites import rewritten_for
from npuc.partition.trimming import Trimmed, trimmed
from npuc.program.file import save_compiled
from npuc.quant.channel_outputs import FLOAT_REASON
from npuc.quant.ladder.run import PipelineOptions
from npuc.quant.prequantized import is_quantized
from npuc.runtime.engine import CompiledEngine
from npuc.schedule.cache import Cache
from npuc.words import counted

_LATER = ("target_device", "inference_scheme")
"""Keywords of later releases that mean something here."""


@in_own_words
def mxq_compile(
    model: Any,
    calib_data_path: Path | str | None = None,
    model_nickname: str | None = None,
    save_path: Path | str | None = None,
    input_shape: Any = None,
    backend: str = "onnx",
    device: str = "cpu",
    quantize_method: str = "Percentile",
    quantize_percentile: float = 0.99995,
    topk_ratio: float = 0,
    smooth_factor: float = 1.6,
    is_quant_ch: bool = False,
    optimization: bool = True,
    optimization_level: int = 5,
    save_sample: bool = False,
    use_random_calib: bool = False,
    cpu_offload: bool = False,
    quant_output: str = "layer",
    adaq_useadaquant: bool = False,
    adaq_weightDeltaLR: float = 0,
    adaq_biasDeltaLR: float = 0,
    adaq_weightScaleLR: float = 0,
    adaq_biasScaleLR: float = 0,
    adaq_actScaleLR: float = 0,
    adaq_batchSize: int = 16,
    adaq_epoch: int = 10,
    example_input: Any = None,
    **later: Any,
) -> None:
    """Quantize a model on calibration data, compile it, and write the program to `save_path`.

    Without `cpu_offload`, arrays are height × width × channels, and what the NPU cannot do at the ends of the model is cut off.
    """
    arguments = dict(locals())
    settings = CompileSettings.of(arguments | known_keywords(mxq_compile, later))
    checked_device(device)
    imported = import_model(model, backend, input_shape, example_input)
    compile_imported(imported, calib_data_path, model_nickname, save_path, device, settings)


def known_keywords(function: Callable[..., Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of later releases that mean something here; a note about others."""
    known = {name: value for name, value in later.items() if name in _LATER}
    for name in later.keys() - known.keys():
        unknown_keyword(
            function, name, [*CompileSettings.__dataclass_fields__, "calib_data_path", "save_path"]
        )
    return known


def checked_device(device: Any) -> str:
    """torch's name of a device."""
    if device not in ("cpu", "gpu", "cuda"):
        raise wrong("device", device, "cpu or gpu")
    if device == "cpu":
        return "cpu"
    from npuc.extras import require_torch

    if require_torch("device='gpu' needs PyTorch, which is not installed").cuda.is_available():
        return "cuda"
    note(f"device='{device}' has no effect: there is no GPU here")
    return "cpu"


def compile_imported(
    imported: ImportedModel,
    calib_data_path: Any,
    model_nickname: Any,
    save_path: Any,
    device: str,
    settings: CompileSettings,
) -> Compiler:
    """Quantize and compile a network, write the program, and report."""
    if model_nickname is not None and (not isinstance(model_nickname, str) or not model_nickname):
        raise wrong("model_nickname", model_nickname, "a word, or None")
    if save_path is not None and not isinstance(save_path, str | Path):
        raise wrong("save_path", save_path, "the name of a file, such as model.mxq")
    settings.tell_unused()
    if settings.use_random_calib and calib_data_path is not None:
        note("calib_data_path has no effect: use_random_calib is True")
    nickname = model_nickname or imported.nickname
    path = writable(Path(save_path) if save_path is not None else Path(f"{nickname}.mxq"))
    imported = replace(imported, graph=rewritten_for(imported.graph, settings.target, "float"))
    source = calibration_data(
        imported.graph, calib_data_path, random=settings.use_random_calib, own_shapes=settings.cpu_offload
    )
    tell_command(_command(imported, calib_data_path, path, settings))
    quantized = _quantized(imported, source, settings, device)
    network = _for_the_npu(quantized, settings)
    compilation = _compiled(network, settings, nickname)
    sample = _sample(imported, source, network, compilation) if settings.save_sample else None
    save_compiled(compilation.model, path)
    layers = sum(len(part.ops) for part in compilation.partition.parts if part.device == "npu")
    cpu = sum(len(part.ops) for part in compilation.partition.parts if part.device not in ("npu", "convert"))
    note(f"{imported.path} -> {path}: {counted(layers, 'layer')} on the NPU, {cpu} on the CPU")
    if sample is not None:
        note(f"a sample of inputs and outputs is in {save_sample(*sample, str(path))}/")
    return Compiler(compilation.model, quantized.graph)


def _quantized(imported: ImportedModel, source: Any, settings: CompileSettings, device: str) -> Quantized:
    graph, target = imported.graph, settings.target
    if is_quantized(graph):
        note(f"{imported.path} brings its own quantization, which is kept")
        return quantize_network(graph, None, None, target)
    config = settings.config(source.total)
    if not settings.adaq_useadaquant:
        return quantize_by_method(graph, source, config, target, settings.method, warn=told_once())[0]
    ladder = PipelineOptions(("adaquant",), checked_device(device))
    return quantize_on_data(
        graph, source, config, target, settings.method, widen=False, warn=told_once(), ladder=ladder
    )[0]


def _for_the_npu(quantized: Quantized, settings: CompileSettings) -> Trimmed:
    """The network to compile: with its CPU layers, or without those at the ends."""
    if settings.cpu_offload:
        return Trimmed(quantized.graph)
    try:
        network = trimmed(quantized.graph, settings.target, _channel_factors(quantized.graph))
    except CompileError as error:
        raise CompileError(error.message, fix="Give cpu_offload=True to run them on the CPU") from error
    for layers, end, ports in (
        (network.before, "input", network.graph.inputs),
        (network.after, "output", network.graph.outputs),
    ):
        if layers:
            names = ", ".join(port.name for port in ports)
            note(
                f"without cpu_offload, the layers at the {end}s that the NPU cannot run are cut off ({', '.join(layers)}); the "
                f"{end}s are now {names}"
            )
    return network


def _channel_factors(graph: Graph) -> list[str]:
    """The multiplications that give channels of outputs their magnitude: no layers of the model."""
    return [name for name, reason in graph.float_reasons.items() if reason == FLOAT_REASON]


def _compiled(network: Trimmed, settings: CompileSettings, nickname: str) -> Compilation:
    cache = Cache.default()
    if not settings.optimization:
        if cache is None:
            raise UsageError(
                "optimization=False needs a cache, and NPUC_CACHE is off", fix="Unset NPUC_CACHE"
            )
        cache = replace(cache, only=True)
    options = CompileOptions(settings.level, cores=settings.cores, cache=cache)
    if not settings.cpu_offload:
        alone = not _channel_factors(network.graph)
        options = replace(options, npu_only=alone, island_threshold=0)
    try:
        return compile_network(network.graph, settings.target, options, nickname)
    except ScheduleError as error:
        if settings.optimization:
            raise
        raise UsageError(
            f"optimization=False, and nothing is known of the model '{nickname}' from an earlier compilation with these settings",
            fix="Compile it once with optimization=True",
        ) from error


def _sample(
    imported: ImportedModel, source: Any, network: Trimmed, compilation: Compilation
) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """The first sample as the inputs of the program, and its outputs."""
    inputs = first_sample(imported.graph, source)
    if network.before:
        names = [port.name for port in network.graph.inputs]
        inputs = float_engine(imported.graph, fetch=names).run(inputs)
    inputs = {name: inputs[name] for name in compilation.model.inputs}
    return inputs, CompiledEngine(compilation.model).run(inputs)


def _command(imported: ImportedModel, data: Any, path: Path, settings: CompileSettings) -> list[str]:
    """The words of `npuc compile` that do the same."""
    words = ["npuc", "compile", imported.path, "--target", settings.target.name]
    words += ["--random"] if settings.use_random_calib else ["--data", str(calibration_path(Path(data)))]
    for name, shape in imported.input_shapes.items():
        words += ["--input-shape", f"{name}={','.join(map(str, shape))}"]
    words += [
        "--method",
        settings.method,
        "--scheme-option",
        f"per_channel={str(settings.is_quant_ch).lower()}",
    ]
    words += ["--ladder", "adaquant", "--no-widen"] if settings.adaq_useadaquant else ["--no-tune"]
    words += ["--per-channel-outputs"] if settings.quant_output == "ch" else []
    words += ["--output-method", "sigmoid"] if settings.quant_output == "sigmoid" else []
    words += [f"-O{settings.level}"] + (
        [] if settings.cpu_offload else ["--npu-only", "--island-threshold", "0"]
    )
    words += ["--cores", str(settings.cores)] if settings.cores else []
    return [*words, "-o", str(path.with_suffix(".npu"))]
