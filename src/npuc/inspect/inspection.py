"""What would run where, told before any quantization or of an integer program, by what compiles it.

A float program is quantized for the target with ranges of one random input: that decides nothing about accuracy, and
all about which layers have an integer form there. What comes of it is compiled layer by layer, so that a layer that does
not fit local memory is told, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from npuc.errors import CompileError, NpucError
from npuc.ir import Graph, layer_name, npu, result_names, top
from npuc.ir.definition import TensorOp
from npuc.partition.ends import words_for
from npuc.partition.partition import Partition, partition
from npuc.partition.work import macs
from npuc.target import Target

if TYPE_CHECKING:
    from pathlib import Path

    from npuc.codegen.compile_model import CompileOptions
    from npuc.flow import Quantized
    from npuc.frontend.options import ImportOptions
    from npuc.quant.config import QuantizationConfig


_STAND_IN = (
    "the ranges are made up: what is decided by data, such as 16 bits for a layer or outputs that are joined in float, is not in "
    "it (--data PATH gives it)"
)


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
    """The kinds of the float layers before the first integer layer."""
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


def load_for_inspection(
    path: Path, options: ImportOptions | None = None, *, force_float: bool = False
) -> Graph:
    """A network as it is quantized, or an integer one as it is."""
    from npuc.flow import load_model, network_to_quantize
    from npuc.frontend.sniff import describe_content
    from npuc.quant.report import is_integer

    if describe_content(path).kind == "mlir" and not force_float and is_integer(graph := load_model(path)):
        return graph
    return network_to_quantize(path, options, force_float=force_float)


def inspect_graph(
    graph: Graph,
    target: Target,
    options: CompileOptions | None = None,
    config: QuantizationConfig | None = None,
    quantized: Quantized | None = None,
) -> tuple[Inspection, Graph]:
    """Where the layers of a float program, or the ops of an integer one, would run; also the program with those layers.

    `options` are those of a compilation, `config` that of the quantization; `quantized` is what data made of the program.
    """
    from npuc.codegen.compile_model import CompileOptions
    from npuc.quant.report import is_integer

    options = options or CompileOptions()
    plain: tuple[Graph, Graph, tuple[str, ...]] = graph, graph, ()
    if quantized is not None:
        plain = quantized.source, quantized.graph, ()
    integers = quantized is not None or is_integer(graph)
    source, made, notes = plain if integers else _quantized(graph, target, config)
    found, more = _placed(made, target, options)
    return _report(source, found, target, (*notes, *more)), source


def _placed(made: Graph, target: Target, options: CompileOptions) -> tuple[Partition, tuple[str, ...]]:
    """The partition that compiling an integer program ends with; where it cannot be compiled, what it begins with."""
    from npuc.codegen.compile_model import compile_program

    try:
        # Every level finds what fits layer by layer; what does not may fit in one of the ways that higher levels try.
        done = compile_program(made, target, replace(options, level=0))
        if done.too_large and options.level > 0:
            done = compile_program(made, target, options)
        return done.partition, ()
    except CompileError as error:
        where = f"{error.where}: " if error.where else ""
        parted = partition(made, target, options.devices, options.island_threshold)
        return parted, (f"it cannot be compiled: {where}{error.message}",)


def _quantized(
    graph: Graph, target: Target, config: QuantizationConfig | None
) -> tuple[Graph, Graph, tuple[str, ...]]:
    """The float program, the integer one, and what to know besides."""
    from npuc.flow import expanded, needs_ranges, quantize_network
    from npuc.quant.prequantized import is_quantized

    notes: tuple[str, ...] = ()
    graph = expanded(graph)
    ranges: dict[str, tuple[float, float]] | None = None
    if not is_quantized(graph):
        ranges = {}
        if needs_ranges(graph, config, target):
            ranges, notes = _ranges(graph)
            notes = (_STAND_IN, *notes)
    done = quantize_network(graph, ranges, config, target)
    return done.source, done.graph, notes


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


def _report(source: Graph, found: Partition, target: Target, notes: tuple[str, ...]) -> Inspection:
    places: dict[str, tuple[str, int]] = {}
    ops: dict[str, TensorOp] = {}
    for number, part in enumerate(found.parts):
        where = "host" if part.device == "convert" else part.device
        for member in part.ops:
            name = result_names(member)[0]
            ops.setdefault(name, member)
            if where != "host" or name not in places:
                places[name] = where, number
    layers = []
    by_side: dict[str, list[TensorOp]] = {"before": [], "after": []}
    listed: list[TensorOp] = [
        op
        for op in source.ops
        if isinstance(op, TensorOp) and op.results and not isinstance(op, top.WeightOp)
    ]
    # The conversions that a quantized model brings became types of the tensors around them.
    listed = [
        op
        for op in listed
        if not isinstance(op, top.Quantize | top.Dequantize) or _is_there(op, ops.get(result_names(op)[0]))
    ]
    names = {result_names(op)[0] for op in listed}
    # What quantization or the compiler added is told where it is not on the NPU.
    listed += [op for name, op in ops.items() if name not in names and places[name][0] not in ("npu", "host")]
    for op in listed:
        name = result_names(op)[0]
        device, number = _place(op, places)
        fit = found.fits.get(name)
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
                found.reasons.get(name, "") if device not in ("npu", "host") else "",
                found.levers.get(name, "") if device == "cpu" else "",
                side,
                macs(op),
                number,
            )
        )
    return Inspection(
        target.name,
        tuple(layers),
        tuple(("host" if part.device == "convert" else part.device, len(part.ops)) for part in found.parts),
        words_for(by_side["before"]),
        words_for(by_side["after"]),
        notes,
    )


def _is_there(op: TensorOp, made: TensorOp | None) -> bool:
    """Whether an op of the source is one of the integer program, rather than one of the same name."""
    return type(op) is type(made)


def _place(op: TensorOp, places: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """The device and subgraph of a layer; one that quantization made part of another is where that is."""
    device, number = places.get(result_names(op)[0], ("", -1))
    if isinstance(op, npu.Quantize | npu.Dequantize):
        return "host", number
    if device not in ("", "host"):
        return device, number
    return next(_near(op, places), "npu"), -1


def _near(op: TensorOp, places: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """The devices of the layers around one: of those that read it first, then of those that it reads, then further on."""
    seen, waiting = {op}, [op]
    while waiting:
        found: list[TensorOp] = []
        for one in waiting:
            found += [use.operation for value in one.results for use in value.uses]
            found += [value.owner for value in one.operands]  # type: ignore[misc]
        waiting = [one for one in dict.fromkeys(found) if isinstance(one, TensorOp) and one not in seen]
        seen.update(waiting)
        for one in waiting:
            device = places.get(result_names(one)[0], ("",))[0] if one.results else ""
            if device not in ("", "host"):
                yield device
