"""`tensorflow.compiler.vitis_vai`: a quantized Keras model compiled in place, and on-the-fly quantization.

    from tensorflow.compiler import vitis_vai
    vitis_vai.quantize(float_model, calib_dataset=images, save_path="quantized.h5")
    model = vitis_vai.create_wego_model(input_h5="quantized.h5")
    model.predict(images)

`npuc.keras.compile` does both in one line (docs/tensorflow.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from npuc.compat.vitis.keras_model import Integers, integers_of, model_of
from npuc.compat.vitis.notices import note
from npuc.compat.vitis.targets import B4096
from npuc.compat.vitis.vitis_quantize import VitisQuantizer
from npuc.compat.vitis.wego_torch import AccuracyMode
from npuc.compat.vitis.xmodels import open_xmodel
from npuc.errors import UnknownTensorError, UsageError
from npuc.files import make_folder
from npuc.flow import compile_network
from npuc.ir import Graph, shape_of
from npuc.runtime.engine import CompiledEngine
from npuc.target import load_target
from npuc.target.fingerprint import fingerprint_of

__all__ = ["TargetInfo", "create_wego_graph", "create_wego_model", "enums", "get_target_info", "quantize"]

_PLACE = "tensorflow.compiler.vitis_vai"
enums = SimpleNamespace(AccuracyMode=AccuracyMode)


@dataclass(frozen=True)
class TargetInfo:
    """The machine that programs are compiled for."""

    batch: int
    target: str
    fingerprint: int


def extend(_: ModuleType) -> None:
    """Make the module importable under the name that it has in the vendor's build of TensorFlow."""
    sys.modules[_PLACE] = sys.modules[__name__]


def get_target_info() -> TargetInfo:
    """The simulated DPU."""
    target = load_target(B4096)
    return TargetInfo(1, target.name, fingerprint_of(target))


def create_wego_model(
    input_h5: Any,
    feed_dict: Mapping[str, Sequence[int]] | None = None,
    accuracy_mode: Any = AccuracyMode.Default,
) -> Any:
    """Compile what `quantize` gave or wrote; a Keras model whose calls run the program."""
    if accuracy_mode is not AccuracyMode.Default:
        note("accuracy_mode means nothing here: layers on the CPU are float in both modes")
    if os.environ.get("WEGO_ENABLE_AGGRESSIVE_SHAPE_INFERENCE"):
        note("WEGO_ENABLE_AGGRESSIVE_SHAPE_INFERENCE means nothing here: open batches are always 1")
    integers = _integers(input_h5)
    _check_shapes(integers.graph, feed_dict or {})
    name = Path(str(input_h5)).stem if isinstance(input_h5, str | Path) else str(input_h5.name)
    compiled = compile_network(integers.graph, load_target(B4096), name="wego").model
    return model_of(Integers(integers.graph, integers.inputs, CompiledEngine(compiled)), name)


def create_wego_graph(*_: Any, **__: Any) -> Any:
    """Refused: the nodes that it puts into a graph are the vendor's."""
    raise UsageError(
        "create_wego_graph is not supported: graphs of TensorFlow 1 would hold nodes of the vendor's build",
        fix="vai_q_tensorflow and vai_c_tensorflow compile the frozen graph; vart runs the program",
    )


def quantize(
    input_float: Any,
    quantize_strategy: str = "pof2s",
    custom_quantize_strategy: Any = None,
    calib_dataset: Any = None,
    calib_steps: int | None = None,
    calib_batch_size: int | None = None,
    save_path: Path | str = "./vai_wego/quantized.h5",
    verbose: int = 0,
    add_shape_info: bool = False,
    dump: bool = False,
    dump_output_dir: Path | str = "./vai_dump/",
) -> Any:
    """Quantize a Keras model and write it to `save_path`; with `dump`, every tensor of the first sample, too."""
    quantizer = VitisQuantizer(input_float, quantize_strategy, custom_quantize_strategy)
    done = quantizer.quantize_model(calib_dataset, calib_batch_size, calib_steps, verbose, add_shape_info)
    make_folder(Path(save_path).parent)
    done.save(save_path)
    if dump:
        VitisQuantizer.dump_model(done, calib_dataset, str(dump_output_dir))
    return done


def _integers(source: Any) -> Integers:
    if not isinstance(source, str | Path):
        return integers_of(source)
    graph = open_xmodel(source)
    if not isinstance(graph, Graph):
        raise UsageError(f"{source} is compiled, and not quantized", fix="Give what vitis_vai.quantize wrote")
    return Integers.of(graph, [port.name for port in graph.inputs])


def _check_shapes(graph: Graph, stated: Mapping[str, Sequence[int]]) -> None:
    """Shapes of inputs that are not those of the quantized network are errors."""
    shapes = {port.name: tuple(shape_of(port.value)) for port in graph.inputs}
    for name, shape in stated.items():
        own = name.removesuffix(":0")
        if own not in shapes:
            raise UnknownTensorError(
                f"feed_dict names the input '{name}'", fix=f"There are {', '.join(shapes)}"
            )
        if tuple(shape)[1:] != shapes[own][1:]:
            raise UsageError(
                f"feed_dict has {list(shape)} for '{name}', which was quantized for {list(shapes[own])}"
            )
