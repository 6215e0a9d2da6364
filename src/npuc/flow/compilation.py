"""From a network in integers to a program, and the whole way in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.files import existing_model
from npuc.flow.importing import expanded, load_model, network_to_quantize
from npuc.flow.quantization import Quantized, needs_ranges, quantize_network, quantize_on_data
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph

if TYPE_CHECKING:
    from npuc.codegen.compile_model import Compilation, CompileOptions
    from npuc.program.model import CompiledModel
    from npuc.quant.config import QuantizationConfig
    from npuc.target import Target


def compile_network(
    graph: Graph, target: Target, options: CompileOptions | None = None, name: str = "model"
) -> Compilation:
    """An integer network as a program for a machine; `npuc.program.file.save_compiled` writes its `model`."""
    from npuc.codegen.compile_model import compile_program
    from npuc.quant.report import is_integer

    # A quantized network may have only float layers, if the configuration says so: it runs on the CPU.
    if not is_integer(graph) and not graph.float_reasons:
        raise UsageError(
            "the network is not integer yet", fix="Quantize it first (npuc.flow.quantize_on_data)"
        )
    return compile_program(graph, target, options, name)


@dataclass(frozen=True)
class CompiledNetwork:
    """A program and how it came about: what `compile_model` returns."""

    compilation: Compilation
    quantized: Quantized | None
    """None if the model was an integer network already."""

    @property
    def model(self) -> CompiledModel:
        """The compiled model."""
        return self.compilation.model

    def save(self, path: Path | str) -> None:
        """Write the compiled model, an `.npu` file."""
        from npuc.program.file import save_compiled

        save_compiled(self.model, path)

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """The outputs for one set of inputs: by name, or the array of the only input."""
        from npuc.runtime.engine import CompiledEngine

        return CompiledEngine(self.model).run(inputs)


def compile_model(
    model: Path | str | Graph,
    data: Any = None,
    *,
    target: Target | Path | str,
    imported: ImportOptions | None = None,
    config: QuantizationConfig | None = None,
    method: str | None = None,
    max_count: int | None = None,
    options: CompileOptions | None = None,
    threads: int | None = None,
    warn: Callable[[str], None] | None = None,
) -> CompiledNetwork:
    """The whole way in one call, with the defaults of `npuc compile`; `npuc.compile` is this function.

    `model` is a file of any format, an `.mlir` file or a graph. `data` is for calibration: a folder, a list, a file, or samples
    as arrays; a network that brings its own quantization, or a float scheme, needs none. `target` is a name, a file or a
    `Target`.

        >>> done = npuc.compile("model.onnx", "images/", target="edge-4t")        # doctest: +SKIP
        >>> done.save("model.npu")                                                # doctest: +SKIP
    """
    from npuc.calib.sources import DataOptions, open_data
    from npuc.ir.target_rewrites import rewritten_for
    from npuc.quant.prequantized import is_quantized
    from npuc.quant.report import is_integer
    from npuc.target import Target, load_target

    if not isinstance(model, Path | str | Graph):
        raise UsageError(
            f"{type(model).__name__} is neither the path of a model nor a graph",
            fix="npuc.from_torch(module, example_inputs) makes a graph of a live torch model; save other objects to a file",
        )
    machine = target if isinstance(target, Target) else load_target(target)
    name = "model" if isinstance(model, Graph) else Path(model).stem
    graph = model if isinstance(model, Graph) else load_model(model) if _is_own(model) else None
    if graph is not None and is_integer(graph):
        return CompiledNetwork(compile_network(graph, machine, options, name), None)
    graph = expanded(model) if isinstance(model, Graph) else network_to_quantize(model, imported)
    graph = rewritten_for(graph, machine, "float")
    if is_quantized(graph) or not needs_ranges(graph, config, machine):
        quantized = quantize_network(graph, None if is_quantized(graph) else {}, config, machine)
    elif data is None:
        raise UsageError(
            "there are no ranges to quantize with",
            fix="Give some typical inputs as data: a folder, a list or arrays",
        )
    else:
        source = open_data(graph, data, DataOptions(max_count=max_count))
        quantized, _ = quantize_on_data(graph, source, config, machine, method, threads=threads, warn=warn)
    return CompiledNetwork(compile_network(quantized.graph, machine, options, name), quantized)


def _is_own(path: Path | str) -> bool:
    """Whether a file is a network that npuc wrote."""
    return describe_content(existing_model(path)).kind == "mlir"
