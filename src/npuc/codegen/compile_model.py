"""From an Npu program to a compiled model: every subgraph of the partition, and where their tensors are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from npuc import __version__
from npuc.aliases import renamed_keywords
from npuc.codegen.debug_notes import Subgraph, debug_notes
from npuc.codegen.encode import encode_schedule
from npuc.codegen.integer_ends import with_integer_ends
from npuc.codegen.memory_fallback import Placement
from npuc.codegen.offload import refuse_offload
from npuc.codegen.outputs import check_outputs, check_shape, with_own_outputs
from npuc.codegen.plain_inputs import with_plain_inputs
from npuc.errors import CompileError, ScheduleError
from npuc.garbage import collected_seldom
from npuc.ir import Graph, Value, npu, value_name
from npuc.ir.states import set_states
from npuc.ir.target_rewrites import rewritten_for
from npuc.partition import ISLAND_THRESHOLD, Part, Partition, partition
from npuc.partition.obstacles import Obstacle, ObstacleRule
from npuc.partition.work import host_seconds
from npuc.program.model import (
    ChipSubgraph,
    CompiledModel,
    Conversion,
    CpuSubgraph,
    HostConversion,
    NpuSubgraph,
    Segment,
    State,
)
from npuc.program.model import Tensor as FileTensor
from npuc.schedule import Position, Schedule, ScheduleOptions, schedule
from npuc.schedule.bounds import bounds
from npuc.schedule.cache import Cache
from npuc.schedule.grouping import DoesNotFit
from npuc.schedule.layer_notes import layer_notes
from npuc.schedule.layers import Tensor, aligned
from npuc.schedule.memory_reduction import CostFunction
from npuc.schedule.network import Network, build_network, tensor_of
from npuc.schedule.schedule_file import ScheduleFile
from npuc.schedule.scheduled import Scheduled
from npuc.schedule.search import Weights, weight_blocks
from npuc.target import Target
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.schedule.bm1684x.scheduler import ChipSchedule


@dataclass(frozen=True)
class CompileOptions:
    """What a user may ask for."""

    level: int = 2
    """0 runs layer by layer, 1 forms groups, 2 and 3 try more points of the search space and keep the fastest."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """Layers, or patterns of names, that are to run on `npu` or `cpu`."""
    island_threshold: float = ISLAND_THRESHOLD
    cores: int | None = None
    """Cores to use at most; None: all that the target has."""
    schedule: ScheduleFile = field(default_factory=ScheduleFile.model_construct)
    """Decisions that are not searched for."""
    cache: Cache | None = None
    """Where results of searches are kept."""
    local_memory: int | None = None
    """Bytes of local memory of a core to use at most; None: all that the target has."""
    least_ops: int = 1
    """Ops of an NPU subgraph at the least; the CPU gets smaller ones, if it can run them."""
    npu_only: bool = False
    """Refuse a network of which anything is left to the CPU."""
    integer_ends: str = ""
    """`inputs`, `outputs` or `both` if the program is to take and give integers there; empty: what the network has."""
    integer_ports: tuple[str, ...] = ()
    """The inputs and outputs that `integer_ends` is about; empty: all."""


@dataclass(frozen=True)
class NpuPart:
    """How a subgraph of the NPU came about."""

    name: str
    network: Network
    schedule: Schedule

    @property
    def scheduled(self) -> Scheduled:
        """What the search knows beside the schedule."""
        assert self.schedule.search is not None
        return self.schedule.search

    @property
    def cached(self) -> bool:
        """Whether its decisions came from the cache."""
        return self.schedule.cached


@dataclass(frozen=True)
class ChipPart:
    """How a subgraph of a chip came about."""

    name: str
    schedule: ChipSchedule


@dataclass(frozen=True)
class Compilation:
    """A compiled model and how it came about."""

    model: CompiledModel
    partition: Partition
    parts: tuple[NpuPart, ...]
    """Those of the NPU."""
    chips: tuple[ChipPart, ...] = ()
    """Those of a chip with an instruction set of its own."""
    too_large: Mapping[str, Obstacle] = field(default_factory=dict)
    """Layers that are on the CPU because they do not fit local memory, with what they need."""


@renamed_keywords(judge="cost_function")
def compile_model(
    graph: Graph,
    target: Target,
    *,
    level: int = 2,
    name: str = "model",
    cores: int | None = None,
    cost_function: CostFunction | None = None,
    devices: Mapping[str, str] | None = None,
) -> CompiledModel:
    """Compile an Npu program for a machine.

    `level` 0 runs layer by layer, 1 forms groups, 2 and 3 try more points of the search space and keep the one that
    `cost_function` (by default the cycle simulator) finds fastest. `cores` uses fewer than the machine has.
    `devices` puts layers on `cpu` or `npu`; a layer that does not fit local memory, however it is cut, goes to the CPU.
    """
    options = CompileOptions(level, devices or {}, cores=cores)
    return compile_program(graph, target, options, name, cost_function).model


@renamed_keywords(judge="cost_function")
@collected_seldom()
def compile_program(
    graph: Graph,
    target: Target,
    options: CompileOptions | None = None,
    name: str = "model",
    cost_function: CostFunction | None = None,
) -> Compilation:
    """Compile an Npu program for a machine, and tell how.

    What runs where is asked once, of the partitioner. One thing shows only while a subgraph is scheduled, that a layer finds no
    room: then it all begins again with less asked of the NPU (`memory_fallback`).
    """
    options = options or CompileOptions()
    check_outputs(graph)
    graph = rewritten_for(graph, target, "integer")
    graph = with_plain_inputs(with_integer_ends(graph, options.integer_ends, options.integer_ports))
    options = replace(options, integer_ends="", integer_ports=())
    set_states(graph, graph.states)
    graph, copies = with_own_outputs(graph)
    whole = int(target.memory.local.size)
    if not 0 < (whole if options.local_memory is None else options.local_memory) <= whole:
        raise CompileError(
            f"{options.local_memory:,} bytes of local memory are asked for, and a core of {target.name} has {whole:,}",
            fix=f"Allow between 1 and {whole} bytes, or leave the limit out",
        )
    usable = min(whole, options.local_memory or whole, options.schedule.least_local_memory or whole)
    placement = Placement(graph, target, dict(options.devices), options.schedule.by_inputs, usable)
    known = dict.fromkeys(copies, Obstacle.of(ObstacleRule.OUTPUT_COPY))
    while True:
        parted = partition(graph, target, placement.devices, options.island_threshold, options.least_ops)
        parted = parted.with_obstacles({**known, **placement.too_large})
        if options.npu_only:
            refuse_offload(parted, target)
        try:
            return _compile(graph, target, parted, placement, options, name, cost_function)
        except DoesNotFit as failure:
            placement.give_way(failure)
        except _UnknownName as unknown:
            # A schedule that was written has the names of a partition without the layers that do not fit.
            plain = replace(options, level=0, schedule=ScheduleFile(), cache=None)
            too_large = compile_program(graph, target, plain, name, cost_function).too_large
            if too_large.keys() <= placement.too_large.keys():
                raise unknown.error from None
            placement.leave_to_cpu(too_large)


class _UnknownName(Exception):
    """A schedule names what is not in this partition."""

    def __init__(self, error: ScheduleError) -> None:
        super().__init__(error.message)
        self.error = error


def _compile(
    graph: Graph,
    target: Target,
    parted: Partition,
    placement: Placement,
    options: CompileOptions,
    name: str,
    cost_function: CostFunction | None,
) -> Compilation:
    titles = [f"{part.device}{number}" for number, part in enumerate(parted.parts)]
    networks = {
        title: build_network(graph, part.ops, part.inputs, part.outputs, placement.by_inputs, target)
        for title, part in zip(titles, parted.parts, strict=True)
        if part.device == "npu" and target.instruction_set == "npuc"
    }
    try:
        options.schedule.check_names(networks)
    except ScheduleError as error:
        raise _UnknownName(error) from error
    inputs = {port.value: port.name for port in graph.inputs}
    outputs = {port.value: port.name for port in graph.outputs}
    places: dict[Value, FileTensor] = {}
    segments = [Segment("weights", "weights", 0), Segment("workspace", "workspace", 0)]
    at = 0
    taken = {*inputs.values(), *outputs.values()}
    on_npu = {v for part in parted.parts if part.device == "npu" for v in (*part.inputs, *part.outputs)}
    for value in dict.fromkeys([*inputs, *(v for part in parted.parts for v in _made(part)), *outputs]):
        check_shape(value, f"tensor '{value_name(value)}'")
        tensor = tensor_of(value)
        port = inputs.get(value) or outputs.get(value)
        if port is not None:
            segment, offset = len(segments), 0
            segments.append(Segment(port, "io", tensor.size))
        else:
            segment, offset = 1, at
            at += aligned(tensor.size)
        name_here = port or _unused(tensor.name, taken)
        taken.add(name_here)
        own_order = value in on_npu and target.instruction_set == "npuc"
        order = tensor.order if own_order else tuple(range(len(tensor.shape)))
        places[value] = FileTensor(
            name_here,
            tensor.shape,
            order,
            tensor.dtype,
            tensor.scale,
            tensor.zero_point,
            segment,
            offset,
            tensor.size,
        )
    weights = Weights()
    layers: list[str] = []
    npu_parts: list[NpuPart] = []
    subgraphs: list[NpuSubgraph | ChipSubgraph | CpuSubgraph | HostConversion] = []
    chips: list[ChipPart] = []
    noted: list[Subgraph] = []
    workspace = at
    for title, part in zip(titles, parted.parts, strict=True):
        if part.device == "npu" and target.instruction_set != "npuc":
            chip, chip_part = _chip(graph, part, places, title)
            subgraphs.append(chip)
            chips.append(chip_part)
            noted.append(Subgraph(part))
        elif part.device == "npu":
            network = networks[title]
            npu_subgraph, npu_part = _npu(
                network, part, target, places, weights, at, options, len(layers), title, cost_function
            )
            noted.append(Subgraph(part, network, len(layers), npu_part.scheduled.written))
            layers += [layer.name for layer in network.layers]
            workspace = max(workspace, npu_part.schedule.workspace)
            subgraphs.append(npu_subgraph)
            npu_parts.append(npu_part)
        elif part.device == "convert":
            subgraphs.append(HostConversion(title, tuple(_conversion(op, places) for op in part.ops)))
            noted.append(Subgraph(part))
        else:
            on_cpu, called = _cpu(graph, part, places, parted.reasons, title)
            subgraphs.append(on_cpu)
            noted.append(Subgraph(part, called=called))
    segments[0] = Segment("weights", "weights", weights.size)
    segments[1] = Segment("workspace", "workspace", workspace)
    model = CompiledModel(
        name=name,
        target=target.to_dict(),
        fingerprint=target.fingerprint,
        segments=tuple(segments),
        weights=weights.bytes(),
        tensors=tuple(places.values()),
        inputs=tuple(inputs.values()),
        outputs=tuple(outputs.values()),
        layers=tuple(layers),
        subgraphs=tuple(subgraphs),
        metadata={
            **_metadata(graph, options, layers),
            "schedule": _schedule(npu_parts, subgraphs, target),
            **_host_estimates(titles, parted),
        },
        debug=debug_notes(graph, noted, places).encoded(),
        states=tuple(State(name, output) for name, output in graph.states.items()),
    )
    return Compilation(model, parted, tuple(npu_parts), tuple(chips), placement.too_large)


def _metadata(graph: Graph, options: CompileOptions, layers: Sequence[str]) -> dict[str, Any]:
    """For tools: who made it, how, how images become inputs, and which layers the original's nodes and tensors are in."""
    preprocess = {port.name: port.preprocess for port in graph.inputs if port.preprocess}
    known = set(layers)
    names = {
        name: layer for layer, others in graph.origins.names_of(known).items() for name in sorted(others)
    }
    tools = {tool: graph.names_for(tool) for tool in graph.named_tools}
    return {
        "npuc": __version__,
        "level": options.level,
        **({"preprocess": preprocess} if preprocess else {}),
        **({"names": names} if names else {}),
        **({"tool_names": tools} if tools else {}),
    }


def _host_estimates(titles: Sequence[str], parted: Partition) -> dict[str, Any]:
    """For tools: what the subgraphs of the CPU are estimated to take, in nanoseconds; nothing if there are none."""
    estimates = {
        title: round(1e9 * sum(map(host_seconds, part.ops)))
        for title, part in zip(titles, parted.parts, strict=True)
        if part.device == "cpu"
    }
    return {"host_nanoseconds": estimates} if estimates else {}


def _schedule(parts: Sequence[NpuPart], subgraphs: Sequence[Any], target: Target) -> dict[str, Any]:
    """For the profiler: by subgraph its groups, each as first layer of the table, behind the last, tiles; its bounds; and
    its layers."""
    entries: dict[str, Any] = {}
    by_name = {subgraph.name: subgraph for subgraph in subgraphs}
    at = 0
    for part in parts:
        done = part.schedule
        limits = bounds(part.network, target, len(done.cores))
        groups = [[at + group.first, at + group.last, group.tile_count] for group in done.groups]
        ends = by_name[part.name].inputs, by_name[part.name].outputs
        notes = layer_notes(part.network, at, *ends)
        at += len(part.network.layers)
        entries[part.name] = {
            "groups": groups,
            "bounds": {"roofline": limits.roofline, "buffered": limits.buffered, "bytes": limits.bytes},
            **notes,
        }
    return entries


def _unused(name: str, taken: set[str]) -> str:
    """A name of its own: an integer tensor may have that of the output that is made of it."""
    while name in taken:
        name += "/integers"
    return name


def _npu(
    network: Network,
    part: Part,
    target: Target,
    places: dict[Value, FileTensor],
    weights: Weights,
    workspace: int,
    options: CompileOptions,
    first_layer: int,
    title: str,
    cost_function: CostFunction | None,
) -> tuple[NpuSubgraph, NpuPart]:
    where: dict[Tensor, tuple[int, int]] = {}
    for value, tensor in zip(part.inputs, network.inputs, strict=True):
        place = places[value]
        where[tensor.storage] = place.segment, place.offset
    values = dict(zip(network.outputs, part.outputs, strict=True))
    for tensor, (output, at) in network.stored_results.items():
        place = places[values[output]]
        where[tensor] = place.segment, place.offset + at
    schedule_options = ScheduleOptions(
        Position(where, workspace, weights.size, first_layer),
        title,
        options.level,
        options.cores,
        options.schedule.for_subgraph(title),
        options.cache,
        options.local_memory,
        cost_function,
    )
    done = schedule(network, target, schedule_options)
    blocks = [(block.layer, block.channels) for block in done.constants]
    for block in weight_blocks(network, blocks, target):
        weights.add(block)
    subgraph = NpuSubgraph(
        title,
        encode_schedule(done),
        tuple(places[value].name for value in part.inputs),
        tuple(places[value].name for value in part.outputs),
        done.allocations,
    )
    return subgraph, NpuPart(title, network, done)


def _chip(
    graph: Graph, part: Part, places: dict[Value, FileTensor], title: str
) -> tuple[ChipSubgraph, ChipPart]:
    """A subgraph as the program of a chip."""
    from npuc.codegen.bm1684x import encode_chip
    from npuc.program.bm1684x.bmodel import write_bmodel
    from npuc.schedule.bm1684x.check import check_program
    from npuc.schedule.bm1684x.scheduler import schedule_chip

    done = schedule_chip(graph, part.ops, part.inputs, part.outputs)
    ports = [
        [(places[value].name, places[value].shape, places[value].scale) for value in values]
        for values in (part.inputs, part.outputs)
    ]
    encoded = encode_chip(done, title, *ports)
    violations = check_program(encoded)
    if violations:
        raise CompileError(
            f"its program breaks {counted(len(violations), 'rule')} of the chip, the first: {violations[0]}",
            where=f"subgraph '{title}'",
            fix="This is a mistake of npuc: report it; --device LAYER=cpu goes around it",
        )
    program = write_bmodel(encoded)
    inputs, outputs = (tuple(name for name, _, _ in side) for side in ports)
    return ChipSubgraph(title, program, inputs, outputs), ChipPart(title, done)


def _made(part: Part) -> list[Value]:
    """The tensors that a part leaves in DRAM; conversions do with each of theirs, be it for the next one."""
    return [v for op in part.ops for v in op.results] if part.device == "convert" else list(part.outputs)


def _conversion(op: Any, places: dict[Value, FileTensor]) -> Conversion:
    rounding = op.rounding if isinstance(op, npu.Quantize) else "half_away"
    return Conversion(places[op.operands[0]].name, places[op.results[0]].name, rounding)


def _cpu(
    graph: Graph, part: Part, places: dict[Value, FileTensor], reasons: Any, title: str
) -> tuple[CpuSubgraph, dict[Value, str]]:
    """The subgraph, and what values are called in its model."""
    from npuc.codegen.host import host_program
    from npuc.codegen.host_ops import host_section

    names = [value_name(op.results[0]) for op in part.ops]
    model, called = host_program(graph, part, {value: place.name for value, place in places.items()}, reasons)
    subgraph = CpuSubgraph(
        title,
        model,
        tuple(places[value].name for value in part.inputs),
        tuple(places[value].name for value in part.outputs),
        {name: reasons[name] for name in names if name in reasons},
        host_section(
            model, [places[value] for value in part.inputs], [places[value] for value in part.outputs]
        ),
    )
    return subgraph, called
