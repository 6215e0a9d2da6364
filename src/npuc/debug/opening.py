"""Anything that has layers to look at: a model of any kind, or a dump of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from npuc.arrays import Array
from npuc.calib.compiled import interface_of
from npuc.debug.compiled import CompiledLayers
from npuc.debug.dump import Dump, DumpedTensor
from npuc.debug.layers import FloatLayers, IntegerLayers, Layers, LayerTensor, Visit
from npuc.files import existing_model
from npuc.flow import load_model
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph
from npuc.program.file import load_entries, named_entry
from npuc.program.model import CompiledModel
from npuc.quant.report import is_integer

Kind = Literal["float", "integer", "compiled", "dump"]


@dataclass(frozen=True)
class Opened:
    """A file or folder with layers."""

    path: Path
    kind: Kind
    graph: Graph | None
    """The program; of a compiled model its inputs only; of a dump None."""
    compiled: CompiledModel | None = None
    dump: Dump | None = None

    def layers(self, threads: int = 1) -> Layers:
        """What runs it."""
        if self.compiled is not None:
            return CompiledLayers(self.compiled, threads)
        assert self.graph is not None, "a dump does not run"
        return (
            IntegerLayers(self.graph, threads) if self.kind == "integer" else FloatLayers(self.graph, threads)
        )

    def outputs(self) -> dict[str, str]:
        """The outputs in their order, and the name of the tensor that each is among the layers."""
        if self.compiled is not None:
            return {name: name for name in self.compiled.outputs}
        if self.graph is None:
            assert self.dump is not None
            return {name: name for name in self.dump.index.outputs}
        names = self.graph.distinct_names()
        return {port.name: names[port.value] for port in self.graph.outputs}


def open_layers(path: Path, load: Callable[[Path], Graph] = load_model, entry: str = "") -> Opened:
    """Open a model (.onnx, .tflite, .mlir, .npu, ...) or the folder of a dump.

    Of a program with several entries it is the one that `entry` names, or the first.
    """
    if path.is_dir() and not (path / "saved_model.pb").is_file():
        return Opened(path, "dump", None, dump=Dump(path))
    existing_model(path)
    if describe_content(path).kind == "npu":
        entries = load_entries(path)
        compiled = named_entry(entries, entry if len(entries) > 1 else "", str(path))
        return Opened(path, "compiled", interface_of(compiled), compiled)
    graph = load(path)
    return Opened(path, "integer" if is_integer(graph) else "float", graph)


class DumpedRun:
    """A run of a dump, seen as if it were executed."""

    def __init__(self, dump: Dump, run: int) -> None:
        self.dump, self.run = dump, run

    def trace(self, inputs: Mapping[str, Array], visit: Visit) -> None:
        """Show the tensors in their order; the inputs are those of the dump."""
        for entry in self.dump.index.tensors:
            if entry.run == self.run and visit(stored_tensor(self.dump, entry)):
                return


def stored_tensor(dump: Dump, entry: DumpedTensor) -> LayerTensor:
    """A tensor of a dump."""
    return LayerTensor(
        entry.name,
        entry.layer,
        entry.kind,
        entry.dtype,
        entry.scale,
        entry.zero_point,
        dump.read(entry),
        dump.computed(entry),
    )
