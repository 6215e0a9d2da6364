"""`vitis_inspect.VitisInspector`: which layers of a Keras model the DPU runs, before anything is quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from npuc.compat.vitis.notices import note, without_effect
from npuc.compat.vitis.pytorch_nndct.inspector import report_of
from npuc.compat.vitis.targets import B4096, resolve_target
from npuc.errors import UsageError
from npuc.files import writable, write_atomically
from npuc.flow import expanded
from npuc.inspect.inspection import Inspection, inspect_graph
from npuc.inspect.svg import svg_of
from npuc.integrations.keras import imported, require_model

__all__ = ["VitisInspector"]


class VitisInspector:
    """Inspects models for one target: a name, a fingerprint or an arch.json file; the B4096 if there is none."""

    def __init__(self, target: str | None = None) -> None:
        if target is not None and not isinstance(target, str):
            raise UsageError(
                f"target is a {type(target).__name__}", fix="Give a name such as 'DPUCZDX8G_ISA1_B4096'"
            )
        self.target = resolve_target(target or B4096)

    def inspect_model(
        self,
        model: Any,
        input_shape: Any = None,
        dump_model: bool = True,
        dump_model_file: str = "inspect_model.h5",
        plot: bool = True,
        plot_file: str = "model.svg",
        dump_results: bool = True,
        dump_results_file: str = "inspect_results.txt",
        verbose: int = 0,
    ) -> Inspection:
        """Write the model, a drawing and the devices of all layers with reasons."""
        require_model(
            model, "inspect_model takes a Keras model", "Load the file first: keras.models.load_model"
        )
        files = {dump_results_file: dump_results, plot_file: plot, dump_model_file: dump_model}
        for file in (file for file, is_written in files.items() if is_written):
            writable(file)
        if verbose:
            without_effect("verbose", f"{dump_results_file} has the device of every layer, with reasons")
        shapes = _shapes(model, input_shape)
        example = [np.zeros(shape, np.float32) for shape in shapes]
        graph = expanded(imported(model, example[0] if len(example) == 1 else example)[0])
        inspection, shown = inspect_graph(graph, self.target)
        note(f"{inspection.count('npu')} layers on the DPU, {inspection.count('cpu')} on the CPU")
        texts = {
            dump_results_file: dump_results and report_of(inspection),
            plot_file: plot and svg_of(shown, inspection),
        }
        for file, text in texts.items():
            if text:
                with write_atomically(Path(file)) as out:
                    out.write(text.encode())
        if dump_model:
            model.save(dump_model_file)
        return inspection


def _shapes(model: Any, stated: Any) -> list[tuple[int, ...]]:
    """The shapes of the inputs with a batch of one, where none is stated."""
    own = [tuple(tensor.shape) for tensor in model.inputs]
    if stated is not None:
        rows = stated if stated and isinstance(stated[0], list | tuple) else [stated]
        if len(rows) != len(own):
            raise UsageError(f"input_shape has {len(rows)} shapes, and the model {len(own)} inputs")
        own = [
            tuple(row) if len(row) == len(shape) else (1, *row) for row, shape in zip(rows, own, strict=True)
        ]
    return [
        tuple(1 if side is None or (axis == 0) else int(side) for axis, side in enumerate(shape))
        for shape in own
    ]
