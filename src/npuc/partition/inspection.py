"""What would run where, told before any quantization or of an integer program.

A float program is quantized for the target with ranges of one random input: that decides nothing about accuracy, and
all about which layers have an integer form there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.errors import NpucError
from npuc.ir import Graph, dtype_of, layer_name, npu, result_names, top
from npuc.ir.definition import TensorOp
from npuc.partition.ends import words_for
from npuc.partition.fit import Fit, unfit_layers
from npuc.partition.partition import ISLAND_THRESHOLD, Partition, partition
from npuc.partition.work import macs
from npuc.target import Target

if TYPE_CHECKING:
    from npuc.frontend.options import ImportOptions


@dataclass(frozen=True)
class InspectedLayer:
    """Where a layer would run."""

    name: str
    """The name of its first result."""
    layer: str
    kind: str
    device: str
    """npu, cpu, or host for a conversion between reals and integers."""
    how: str
    """native or rewrite on the NPU, else empty."""
    runs_as: str
    """The op kind that it runs as, where that is another."""
    reason: str
    lever: str
    side: str
    """before or after, for what is done before the first or after the last integer layer."""
    macs: int
    subgraph: int
    """The number of its subgraph, or -1 if it is part of another layer."""


@dataclass(frozen=True)
class Inspection:
    """A network on a target."""

    target: str
    layers: tuple[InspectedLayer, ...]
    subgraphs: tuple[tuple[str, int], ...]
    """Device and number of ops, in the order in which they run."""
    before: str
    """What the float layers before the first integer layer do."""
    after: str
    notes: tuple[str, ...] = ()

    @property
    def macs(self) -> int:
        """All multiply-accumulates."""
        return sum(layer.macs for layer in self.layers)

    @property
    def npu_macs(self) -> int:
        """Those on the NPU."""
        return sum(layer.macs for layer in self.layers if layer.device == "npu")

    @property
    def share(self) -> float:
        """The share of multiply-accumulates on the NPU; 1 if there are none."""
        return self.npu_macs / self.macs if self.macs else 1.0

    def count(self, device: str) -> int:
        """How many layers run on a device."""
        return sum(layer.device == device for layer in self.layers)

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "target": self.target,
            "layers": [asdict(layer) for layer in self.layers],
            "subgraphs": [{"device": device, "ops": ops} for device, ops in self.subgraphs],
            "npu_layers": self.count("npu"),
            "cpu_layers": self.count("cpu"),
            "macs": self.macs,
            "npu_macs": self.npu_macs,
            "npu_share": self.share,
            "before": self.before,
            "after": self.after,
            "notes": list(self.notes),
        }


def load_for_inspection(path: Path, options: ImportOptions | None = None) -> Graph:
    """A network in canonical form, or an integer one as it is."""
    from npuc.flow import import_model, load_model
    from npuc.frontend.sniff import describe_content

    own = describe_content(path).kind == "mlir"
    return load_model(path) if own else import_model(path, options)


def inspect_graph(
    graph: Graph,
    target: Target,
    overrides: Mapping[str, str] | None = None,
    island_threshold: float = ISLAND_THRESHOLD,
) -> tuple[Inspection, Graph]:
    """Where the layers of a float program, or the ops of an integer one, would run; also the program with those layers."""
    from npuc.quant.report import is_integer

    if is_integer(graph):
        found = partition(graph, target, overrides, island_threshold)
        return _report(graph, graph, found, target, {}, ()), graph
    source, made, reasons, notes = _quantized(graph, target)
    found = partition(made, target, overrides, island_threshold)
    return _report(source, made, found, target, reasons, notes), source


def _quantized(graph: Graph, target: Target) -> tuple[Graph, Graph, dict[str, str], tuple[str, ...]]:
    """The float program, the integer one, why layers stayed float, and what to know besides."""
    from npuc.flow import quantize_network
    from npuc.quant.prequantized import is_quantized

    notes: tuple[str, ...] = ()
    if is_quantized(graph):
        done = quantize_network(graph, None, None, target)
    else:
        ranges, notes = _ranges(graph)
        done = quantize_network(graph, ranges, None, target)
    reasons = {layer.name: layer.reason for layer in done.outcome.layers if layer.reason}
    return done.source, done.graph, reasons, notes


def _ranges(graph: Graph) -> tuple[dict[str, tuple[float, float]], tuple[str, ...]]:
    """The ranges of every tensor for one random input; of [-1, 1] where it cannot be run."""
    import numpy as np

    from npuc.calib.random_inputs import random_inputs
    from npuc.engine import ALL_TENSORS, FloatEngine

    names = [*graph.tensor_names(), *(port.name for port in graph.inputs)]
    found = dict.fromkeys(names, (-1.0, 1.0))
    try:
        inputs = random_inputs(graph)
        values = {**inputs, **FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(inputs)}
    except NpucError as error:
        return found, (f"the network could not be run on random data ({error.message}): ranges are guesses",)
    for name, value in values.items():
        if value.dtype.kind == "f" and np.isfinite(value).all() and value.size and value.any():
            found[name] = float(value.min()), float(value.max())
    return found, ()


def _report(
    source: Graph,
    made: Graph,
    found: Partition,
    target: Target,
    reasons: Mapping[str, str],
    notes: tuple[str, ...],
) -> Inspection:
    places: dict[str, tuple[str, int]] = {}
    for number, part in enumerate(found.parts):
        where = "host" if part.device == "convert" else part.device
        for member in part.ops:
            name = result_names(member)[0]
            if where != "host" or name not in places:
                places[name] = where, number
    limits: Mapping[str, Fit] = unfit_layers(source, target) if source is not made else {}
    layers = []
    by_side: dict[str, list[TensorOp]] = {"before": [], "after": []}
    for op in source.ops:
        if isinstance(op, top.WeightOp) or not op.results:
            continue
        assert isinstance(op, TensorOp)
        name = result_names(op)[0]
        device, number = _place(op, name, places)
        fit = found.fits.get(name)
        reason, lever = found.reasons.get(name, ""), found.levers.get(name, "")
        if device == "cpu" and name in limits and reason != "as asked":
            reason, lever = limits[name].reason, limits[name].lever
        elif device == "cpu" and name in reasons and reason != "as asked":
            reason, lever = reasons[name], _float_lever(op)
        side = found.sides.get(name, "")
        if side:
            by_side[side].append(op)
        how, runs_as = (fit.how, fit.runs_as) if fit is not None and device == "npu" and fit else ("", "")
        kind = op.op_type if isinstance(op, top.Onnx) else op.name.split(".", 1)[1]
        layers.append(
            InspectedLayer(
                name,
                layer_name(op),
                kind,
                device,
                how or ("native" if device == "npu" else ""),
                runs_as if how == "rewrite" else "",
                reason if device not in ("npu", "host") else "",
                lever if device == "cpu" else "",
                side,
                macs(op),
                number,
            )
        )
    return Inspection(
        target.name,
        tuple(layers),
        tuple(("host" if part.device == "convert" else part.device, len(part.ops)) for part in found.parts),
        words_for(by_side["before"]) if by_side["before"] else "",
        words_for(by_side["after"]) if by_side["after"] else "",
        notes,
    )


def _place(op: TensorOp, name: str, places: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """The device and subgraph of a layer; one that quantization made part of another is where its neighbours are."""
    device, number = places.get(name, ("", -1))
    if isinstance(op, npu.Quantize | npu.Dequantize):
        return "host", number
    # A layer whose result only a conversion holds ended in that conversion.
    return ("npu", -1) if device in ("", "host") else (device, number)


def _float_lever(op: TensorOp) -> str:
    if isinstance(op, top.Onnx):
        return "Cut the model there (npuc import --outputs) and do it in the application"
    if dtype_of(op.results[0].type).name != "f32":
        return "Cut the model there (npuc import --outputs) and do it in the application"
    return ""
