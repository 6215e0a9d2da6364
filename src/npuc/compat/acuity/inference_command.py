"""`pegasus inference`: run a network on its samples, in float or in integers, and keep inputs and outputs as .tensor files."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.compat.acuity.input_meta import PreparedInputs, prepared, read_meta
from npuc.compat.acuity.layers import attached_names, lid_of
from npuc.compat.acuity.model_files import AcuityModel, open_model, with_suffix
from npuc.compat.acuity.options import (
    model_options,
    one_of,
    parser,
    sampling_options,
    tell_device,
    tell_equivalent,
)
from npuc.compat.acuity.postprocess import TASKS, Postprocess, of_task, read_postprocess
from npuc.compat.acuity.quantization import arithmetic_of, quantized_by_file, samples, spelled, tuned_network
from npuc.compat.acuity.quantize_file import QuantizeFile, read_quantize_file
from npuc.compat.arguments import VendorParser
from npuc.compat.running import warn
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import UsageError
from npuc.files import existing_file, filled_folder, write_atomically
from npuc.flow import quantize_network
from npuc.ir import Graph
from npuc.quant.prequantized import is_quantized
from npuc.quant.report import is_integer
from npuc.tensors import write_npz


def _parser(command: str, description: str) -> VendorParser:
    own = parser(command, description)
    model_options(own)
    own.add("--model-quantize", help="the .quantize file; MODEL.quantize if left out")
    sampling_options(own)
    own.add(
        "--dtype",
        type=one_of("float32", "float", "float16", "quantized"),
        default="float32",
        help="the numbers to compute with",
    )
    own.add("--output-dir", default=".", help="the folder of the files")
    return own


def main(arguments: list[str]) -> int:
    """Run the command."""
    own = _parser("pegasus inference", "Run a model on its samples.")
    own.add(
        "--postprocess",
        type=one_of(*TASKS),
        help="what to do with outputs; classification_classic if left out",
    )
    own.add("--postprocess-file", help="a file that says it")
    options = own.parse(arguments)
    if options.postprocess and options.postprocess_file:
        raise UsageError("--postprocess and --postprocess-file exclude each other")
    model, inputs, graph = _opened(options)
    task = of_task(options.postprocess or "classification_classic")
    if options.postprocess_file:
        task = read_postprocess(options.postprocess_file, model.graph)
    engine = _engine(graph)
    raw = (
        IntegerEngine(graph, raw=True, threads=_threads())
        if task.file_type == "QTENSOR" and is_integer(graph)
        else None
    )
    if task.file_type == "QTENSOR" and raw is None:
        raise UsageError("file_type QTENSOR needs --dtype quantized: a float network has no integers")
    source, size = samples(inputs, options.batch_size, options.iterations)
    with filled_folder(options.output_dir) as folder:
        count = _infer(model, inputs, (engine, raw), source, task, folder, options)
    print(f"{count} samples, batches of {size}, {options.dtype}")
    tell_equivalent("run", f"{model.stem}.npuc.mlir", "--input", inputs.meta.databases[0].path)
    return 0


def _infer(
    model: AcuityModel,
    inputs: PreparedInputs,
    engines: tuple[Any, Any],
    source: Any,
    task: Any,
    folder: Path,
    options: Namespace,
) -> int:
    """Run all batches, print and store what the task says; the number of samples."""
    engine, raw = engines
    attached = attached_names(model.graph)
    runs = [batch.inputs for batch in Feeder(inputs.graph, source, strict=True, warn=warn).batches()]
    per_batch = max(1, -(-len(runs) // options.iterations))
    for iteration in range(options.iterations):
        chosen = runs[iteration * per_batch : (iteration + 1) * per_batch]
        if not chosen:
            break
        prefix = f"iter_{iteration}_" if options.iterations > 1 else ""
        results = _stacked([engine.run(run) for run in chosen])
        for name, array in results.items():
            _print_top(attached.get(name, name), array, task)
        if task.file_type:
            stored = _stacked([raw.run(run) for run in chosen]) if raw is not None else results
            _dump({**_stacked(chosen), **stored}, attached, folder, prefix, task)
    return len(runs)


def dump(arguments: list[str]) -> int:
    """`pegasus dump`: every tensor of one sample, by the toolkit's names."""
    options = _parser("pegasus dump", "Write every tensor of the first sample.").parse(arguments)
    model, inputs, graph = _opened(options)
    with filled_folder(options.output_dir) as folder:
        run = next(iter(Feeder(inputs.graph, inputs.source(1), strict=True, warn=warn).batches())).inputs
        tensors = {**run, **_engine(graph, ALL_TENSORS).run(run)}
        names = {
            name: spelled(model.graph, name)
            for name in tensors
            if model.graph.find(name) is not None or name in run
        }
        path = folder / f"{model.stem.name}_tensors.npz"
        write_npz(path, {theirs: np.asarray(tensors[name]) for name, theirs in names.items()})
        for name, theirs in names.items():
            array = np.asarray(tensors[name], np.float32)
            _write_text(
                folder / f"{lid_of(theirs).replace('/', '_')}_out0_{_shape_words(array)}.tensor", array
            )
        print(f"{len(names)} tensors written to {folder}, all of them to {path}")
    return 0


def _opened(options: Namespace) -> tuple[AcuityModel, PreparedInputs, Graph]:
    """The model, its samples, and the network to run."""
    tell_device(options.device)
    model = open_model(options.model, options.model_data)
    meta = read_meta(options.with_input_meta)
    inputs = prepared(model.graph, meta)
    if options.dtype != "quantized":
        if options.dtype == "float16":
            warn("--dtype float16: numbers are float32 here")
        return model, inputs, inputs.graph
    file, where = quantize_file_of(model, options.model_quantize)
    if file is None:
        return model, inputs, own_integers(inputs.graph)
    own = prepared(tuned_network(model, file), meta)
    quantized, _ = quantized_by_file(own, file, arithmetic_of(file.base), where)
    return model, inputs, quantized.graph


def quantize_file_of(model: AcuityModel, stated: str | None) -> tuple[QuantizeFile | None, str]:
    """X.quantize, where it is stated or beside X.json; None for a model that brings its own quantization."""
    beside = with_suffix(str(model.stem), ".quantize")
    if stated:
        return read_quantize_file(existing_file(stated)), stated
    if beside.is_file():
        return read_quantize_file(beside), str(beside)
    if is_quantized(model.graph):
        return None, ""
    raise UsageError(
        "--dtype quantized needs --model-quantize", fix="'pegasus quantize --rebuild' writes the file"
    )


def own_integers(graph: Graph) -> Graph:
    """The integers of a model that brings its own quantization."""
    return quantize_network(graph, None).graph


def _threads() -> int:
    return len(os.sched_getaffinity(0))


def _engine(graph: Graph, fetch: Any = ()) -> Any:
    """What runs a network."""
    if is_integer(graph):
        return IntegerEngine(graph, fetch=fetch, threads=_threads())
    return FloatEngine(graph, fetch=fetch, threads=_threads())


def _stacked(runs: list[Mapping[str, Array]]) -> dict[str, Array]:
    """Tensors of several runs as one batch."""
    if len(runs) == 1:
        return {name: np.asarray(array) for name, array in runs[0].items()}
    return {name: np.concatenate([np.atleast_1d(run[name]) for run in runs]) for name in runs[0]}


def _print_top(name: str, array: Array, task: Postprocess) -> None:
    if not task.top:
        return
    print(f"{name} {list(array.shape)}")
    for row in np.atleast_2d(array.reshape(len(array) if array.ndim > 1 else 1, -1)):
        for index in np.argsort(-row, kind="stable")[: task.top]:
            print(f"  {int(index):6d}: {float(row[index]):.6f}")


def _dump(
    tensors: Mapping[str, Array], attached: Mapping[str, str], folder: Path, prefix: str, task: Postprocess
) -> None:
    for name, array in tensors.items():
        if name not in attached:
            continue
        base = folder / f"{prefix}{attached[name].replace('/', '_')}_out0_{_shape_words(array)}"
        if task.file_type == "NPY":
            with write_atomically(Path(f"{base}.npy")) as out:
                np.save(out, array)
        else:
            _write_text(Path(f"{base}.{'qtensor' if task.file_type == 'QTENSOR' else 'tensor'}"), array)


def _shape_words(array: Array) -> str:
    return "_".join(map(str, array.shape))


def _write_text(path: Path, array: Array) -> None:
    """Numbers of a tensor, one a line, with all digits that a float32 has."""
    form = "{:.9g}" if array.dtype.kind == "f" else "{:d}"
    with write_atomically(path) as out:
        out.write(("\n".join(form.format(value) for value in array.ravel().tolist()) + "\n").encode())
