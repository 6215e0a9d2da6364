"""On which device each layer of a float or integer network would run, determined with the compiler itself.

A float network is quantized for the target with the ranges of one random input: the accuracy is meaningless, but which
layers have an integer form on the target is exact. The result is compiled layer by layer, so that layers that do not fit
local memory are reported, too.
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
    """`native` or `rewrite` on the NPU, else empty."""
    runs_as: str
    """The op kind that it runs as, if that differs from `kind`."""
    reason: str
    lever: str
    obstacle: dict[str, Any]
    """What keeps it from the NPU, as data: the rule, what the layer has, what is allowed; empty if it is there."""
    side: str
    """`before` the first or `after` the last integer layer, else empty."""
    macs: int
    subgraph: int
    """The number of its subgraph, or -1 if it is part of another layer."""


@dataclass(frozen=True)
class Inspection:
    """The placement of the layers of a network on a target."""

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
    """A network ready for quantization, or an integer network unchanged."""
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
    """Where the layers of a float network, or the ops of an integer one, would run; also the graph with those layers.

    `options` and `config` configure compilation and quantization. `quantized` is the result of quantizing the network on
    data, if that was done.
    """
    from npuc.codegen.compile_model import CompileOptions
    from npuc.quant.report import is_integer

    options = options or CompileOptions()
    plain: tuple[Graph, Graph, tuple[str, ...]] = graph, graph, ()
    if quantized is not None:
        plain = quantized.source, quantized.graph, ()
    is_quantized = quantized is not None or is_integer(graph)
    source, integer_graph, notes = plain if is_quantized else _quantized(graph, target, config)
    parts, compile_notes = _placed(integer_graph, target, options)
    return inspection_of(source, parts, target, (*notes, *compile_notes)), source


def _placed(integers: Graph, target: Target, options: CompileOptions) -> tuple[Partition, tuple[str, ...]]:
    """The final partition of compiling an integer network, or the initial one and a note if it does not compile."""
    from npuc.codegen.compile_model import compile_program

    try:
        # Level 0 is enough if every layer fits local memory by itself; if not, a higher level may find a schedule that fits.
        compilation = compile_program(integers, target, replace(options, level=0))
        if compilation.too_large and options.level > 0:
            compilation = compile_program(integers, target, options)
        return compilation.partition, ()
    except CompileError as error:
        where = f"{error.where}: " if error.where else ""
        parted = partition(integers, target, options.devices, options.island_threshold, options.least_ops)
        return parted, (f"it cannot be compiled: {where}{error.message}",)


def _quantized(
    graph: Graph, target: Target, config: QuantizationConfig | None
) -> tuple[Graph, Graph, tuple[str, ...]]:
    """The float network, the integer network, and notes for the user."""
    from npuc.flow import expanded, needs_ranges, quantize_network
    from npuc.ir.target_rewrites import rewritten_for
    from npuc.quant.prequantized import is_quantized

    notes: tuple[str, ...] = ()
    graph = rewritten_for(expanded(graph), target, "float")
    ranges: dict[str, tuple[float, float]] | None = None
    if not is_quantized(graph):
        ranges = {}
        if needs_ranges(graph, config, target):
            ranges, notes = _ranges(graph)
            notes = (_STAND_IN, *notes)
    if config is not None:  # which needs data, and changes nothing about where layers run
        config = config.model_copy(update={"per_channel_outputs": False, "output_method": None})
    quantized = quantize_network(graph, ranges, config, target)
    return quantized.source, quantized.graph, notes


def _ranges(graph: Graph) -> tuple[dict[str, tuple[float, float]], tuple[str, ...]]:
    """The range of every tensor for one random input; [-1, 1] if the network cannot be run."""
    import numpy as np

    from npuc.calib.random_inputs import random_inputs
    from npuc.engine import ALL_TENSORS, FloatEngine

    names = [*graph.tensor_names(), *(port.name for port in graph.inputs)]
    ranges = dict.fromkeys(names, (-1.0, 1.0))
    try:
        inputs = random_inputs(graph)
        values = {**inputs, **FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(inputs)}
    except NpucError as error:
        return ranges, (f"the network could not be run on random data ({error.message}): ranges are guesses",)
    for name, value in values.items():
        if value.dtype.kind == "f" and np.isfinite(value).all() and value.size and value.any():
            ranges[name] = float(value.min()), float(value.max())
    return ranges, ()


def inspection_of(source: Graph, parts: Partition, target: Target, notes: tuple[str, ...] = ()) -> Inspection:
    """Where the layers of a float network run in the partition of its integer network."""
    places: dict[str, tuple[str, int]] = {}
    ops: dict[str, TensorOp] = {}
    for number, part in enumerate(parts.parts):
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
    # The conversions of a prequantized model have become the types of the tensors around them.
    listed = [
        op
        for op in listed
        if not isinstance(op, top.Quantize | top.Dequantize) or _is_there(op, ops.get(result_names(op)[0]))
    ]
    names = {result_names(op)[0] for op in listed}
    # Ops that quantization or the compiler added are listed if they do not run on the NPU.
    listed += [op for name, op in ops.items() if name not in names and places[name][0] not in ("npu", "host")]
    for op in listed:
        name = result_names(op)[0]
        device, number = _place(op, places)
        fit = parts.fits.get(name)
        obstacle = parts.obstacles.get(name) if device not in ("npu", "host") else None
        side = parts.sides.get(name, "")
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
                "" if obstacle is None else obstacle.reason,
                obstacle.lever if obstacle is not None and device == "cpu" else "",
                {} if obstacle is None else obstacle.to_dict(),
                side,
                macs(op),
                number,
            )
        )
    return Inspection(
        target.name,
        tuple(layers),
        tuple(("host" if part.device == "convert" else part.device, len(part.ops)) for part in parts.parts),
        words_for(by_side["before"]),
        words_for(by_side["after"]),
        notes,
    )


def _is_there(op: TensorOp, integer_op: TensorOp | None) -> bool:
    """Whether an op of the source still exists in the integer network, rather than another op of the same name."""
    return type(op) is type(integer_op)


def _place(op: TensorOp, places: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """The device and subgraph of a layer; a layer that was merged into another runs where that one does."""
    device, number = places.get(result_names(op)[0], ("", -1))
    if isinstance(op, npu.Quantize | npu.Dequantize):
        return "host", number
    if device not in ("", "host"):
        return device, number
    return next(_near(op, places), "npu"), -1


def _near(op: TensorOp, places: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """The devices of the layers around an op, nearest first; those that read it come before those that it reads."""
    visited, waiting = {op}, [op]
    while waiting:
        neighbours: list[TensorOp] = []
        for neighbour in waiting:
            neighbours += [use.operation for value in neighbour.results for use in value.uses]
            neighbours += [value.owner for value in neighbour.operands]  # type: ignore[misc]
        waiting = [
            neighbour
            for neighbour in dict.fromkeys(neighbours)
            if isinstance(neighbour, TensorOp) and neighbour not in visited
        ]
        visited.update(waiting)
        for neighbour in waiting:
            device = places.get(result_names(neighbour)[0], ("",))[0] if neighbour.results else ""
            if device not in ("", "host"):
                yield device
