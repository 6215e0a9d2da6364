"""Where the cycles of a program go, seen from the matrix engine.

Every cycle of a core is one of: *needed* (the work of its layers at the array's own fit, as the bounds count it), *twice*
(more work than that: rows at the seams of tiles, tiles that fill the array badly), *starts* of instructions, *banks* (an
instruction slowed by a transfer in the same bank), or a gap. A gap ends when an instruction of the matrix engine starts; going
back from there through what it waited for, each cycle of the gap gets a cause: `vector`, `weights`, `loads` and `stores` (data
on the DRAM channel), `shared` (data of the shared memory), `latency` (a transfer was asked for, and the channel was free),
`barrier` (other cores), or `order` (nothing of that).

    python benchmarks/gaps.py MODEL TARGET [-O 2] [--top 12]
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import networks
import numpy as np

from npuc.arrays import Array
from npuc.codegen.compile_model import compile_model
from npuc.partition import partition
from npuc.profile.work import on_channel
from npuc.program.isa import BY_NAME, BY_OPCODE, HEAD, MULTICAST, QUEUES, RECORD
from npuc.program.model import SHARED, CompiledModel, NpuSubgraph
from npuc.schedule.bounds import bounds
from npuc.schedule.cost import START
from npuc.schedule.network import Network, build_network
from npuc.schedule.tiler import Tiler
from npuc.sim.cycles import CoreTimeline, SubgraphTimeline, costs, simulate_streams
from npuc.target import Target, load_target

LOAD, STORE, MATRIX, VECTOR = range(len(QUEUES))
WEIGHTS, WORKSPACE = 0, 1
"""Numbers of segments."""


def heads(stream: Array) -> Array:
    """The heads of the instructions of a stream."""
    offsets, at = [], 0
    for part in HEAD:
        offsets.append(at)
        at += np.dtype(part.type).itemsize * part.count
    formats = [(f"<{part.type}", (part.count,)) if part.count > 1 else f"<{part.type}" for part in HEAD]
    kind = np.dtype(
        {"names": [part.name for part in HEAD], "formats": formats, "offsets": offsets, "itemsize": RECORD}
    )
    return np.ascontiguousarray(stream).view(kind).reshape(-1)


def transfers(stream: Array) -> Array:
    """The fields of all instructions as if each were a load."""
    return np.ascontiguousarray(stream).view(BY_NAME["load"].dtype).reshape(-1)


@dataclass
class Gap:
    """The matrix engine idle before an instruction."""

    layer: str
    at: int
    length: int
    causes: Counter[str]


@dataclass
class Account:
    """The cycles of one core."""

    total: int
    needed: int
    twice: dict[str, int]
    """By layer, as are all dicts here."""
    starts: dict[str, int]
    banks: dict[str, int]
    gaps: list[Gap] = field(default_factory=list)

    @property
    def causes(self) -> Counter[str]:
        """Cycles of all gaps by cause."""
        cycles_of: Counter[str] = Counter()
        for gap in self.gaps:
            cycles_of.update(gap.causes)
        return cycles_of

    def shares(self) -> dict[str, float]:
        """Parts of the total; they add up to 1."""
        parts = {
            "needed": self.needed,
            "twice": sum(self.twice.values()),
            "starts": sum(self.starts.values()),
        }
        parts["banks"] = sum(self.banks.values())
        return {name: cycles / self.total for name, cycles in {**parts, **self.causes}.items()}


def matrix_work(network: Network, target: Target) -> dict[str, int]:
    """Cycles that each layer needs of the matrix engine, as the bounds count them."""
    from npuc.schedule.cost import Costs

    machine = Costs(target)
    tiler = Tiler(machine)
    work = {}
    for layer in network.layers:
        tile = tiler.tile(layer, tiler.whole(layer), (0, layer.channels))
        work[layer.name] = sum(
            machine.work(template.instruction)
            for template in layer.templates(tile)
            if template.instruction.queue == "matrix"
        )
    return work


def gaps(
    streams: Sequence[Array],
    went: SubgraphTimeline,
    target: Target,
    layers: tuple[str, ...],
    needed: dict[str, int],
) -> list[Account]:
    """The account of each core of a subgraph."""
    chains = [_Chain(stream, times) for stream, times in zip(streams, went.cores, strict=True)]
    for chain in chains:
        chain.share([interval for other in chains for interval in other.own])
    work = [
        _engine(stream, chain, target, layers, went.total)
        for stream, chain in zip(streams, chains, strict=True)
    ]
    everything: Counter[str] = Counter()
    for _, done in work:
        everything.update(done)
    for account, done in work:
        # A core needs of a layer the part that it does of it.
        for name, cycles in done.items():
            part = min(1.0, needed.get(name, everything[name]) / everything[name]) if cycles else 1.0
            account.needed += round(cycles * part)
            account.twice[name] = cycles - round(cycles * part)
    return [account for account, _ in work]


def _engine(
    stream: Array, chain: _Chain, target: Target, layers: tuple[str, ...], total: int
) -> tuple[Account, Counter[str]]:
    """What the matrix engine of a core did, and its work by layer."""
    cost, times, head = costs(target, stream), chain.times, chain.head
    done: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    banks: Counter[str] = Counter()
    account = Account(total, 0, {}, starts, banks)
    free = 0
    for i in chain.queues[MATRIX]:
        layer = layers[int(head["layer"][i])]
        begin, end = int(times.start[i]), int(times.end[i])
        if begin > free:
            account.gaps.append(Gap(layer, free, begin - free, chain.causes(i, free)))
        if not chain.is_barrier(i):
            done[layer] += int(cost[i]) - START
            starts[layer] += START
            banks[layer] += end - begin - int(cost[i])
        free = max(free, end)
    if free < total:
        last = int(np.argmax(times.end)) if times.end.size else -1
        causes = chain.causes(last, free, behind=True) if last >= 0 else Counter()
        causes["barrier"] += total - free - sum(causes.values())
        account.gaps.append(Gap("(end)", free, total - free, causes))
    return account, done


class _Chain:
    """What each instruction of a core waited for."""

    def __init__(self, stream: Array, times: CoreTimeline) -> None:
        self.head, self.times = heads(stream), times
        head = self.head
        queue = head["queue"]
        self.queues = [np.flatnonzero(queue == number).tolist() for number in range(len(QUEUES))]
        self.place = np.zeros(len(queue), np.int64)
        for members in self.queues:
            self.place[members] = np.arange(len(members))
        record = transfers(stream)
        moving = [i for i in (*self.queues[LOAD], *self.queues[STORE]) if self._moves(i)]
        self.kind = {}
        for i in moving:
            if record["segment"][i] == SHARED:
                self.kind[i] = "shared"
            elif queue[i] == STORE:
                self.kind[i] = "stores"
            else:
                self.kind[i] = "weights" if record["segment"][i] == WEIGHTS else "loads"
        self.own = [
            (int(times.start[i]), int(times.end[i]), kind)
            for i, kind in self.kind.items()
            if kind != "shared"
        ]
        self.share(self.own)

    def share(self, intervals: list[tuple[int, int, str]]) -> None:
        """State what is on the DRAM channel, of all cores."""
        self.channel = sorted(intervals)
        self.begins = [start for start, _, _ in self.channel]

    def is_barrier(self, i: int) -> bool:
        """Whether an instruction waits for the other cores."""
        return bool(self.head["opcode"][i] == BY_NAME["barrier"].opcode)

    def _moves(self, i: int) -> bool:
        return BY_OPCODE[int(self.head["opcode"][i])].name in ("load", "store")

    def causes(self, i: int, since: int, behind: bool = False) -> Counter[str]:
        """Why nothing happened from `since` to the start of an instruction (or to its end)."""
        cycles_of: Counter[str] = Counter()
        now = int(self.times.end[i] if behind else self.times.start[i])
        if behind:
            now = self._through(i, now, since, cycles_of)
        while now > since:
            before, waiting = self._binding(i), i
            if before is None:
                cycles_of["barrier" if self.is_barrier(i) else "order"] += now - since
                break
            i, released, whole = before
            if released < now:
                cycles_of["barrier" if self.is_barrier(waiting) else "order"] += now - max(released, since)
            now = min(now, released)
            if now > since and whole:
                now = self._through(i, now, since, cycles_of)
            elif now > since:
                earlier = max(since, min(now, int(self.times.issue[i])))
                cycles_of["order"] += now - earlier
                now = earlier
        return cycles_of

    def _through(self, i: int, now: int, since: int, cycles_of: Counter[str]) -> int:
        """Go back through the time that an instruction took."""
        issue, start = int(self.times.issue[i]), int(self.times.start[i])
        if i in self.kind:
            first = max(start, since)
            cycles_of[self.kind[i]] += max(0, now - first)
            now = min(now, first)
            earlier = max(issue, since)
            if now > earlier and self.kind[i] == "shared":
                cycles_of["shared"] += now - earlier
            elif now > earlier:
                self._channel_or_latency(earlier, now, cycles_of)
            return min(now, earlier)
        first = max(start, since)
        name = QUEUES[int(self.head["queue"][i])]
        cycles_of[name] += max(0, now - first)
        return min(now, first)

    def _channel_or_latency(self, low: int, high: int, cycles_of: Counter[str]) -> None:
        at = max(0, bisect_left(self.begins, low) - 1)
        covered = low
        while at < len(self.channel) and self.channel[at][0] < high:
            start, end, kind = self.channel[at]
            cycles_of["latency"] += max(0, start - covered)
            begin = max(start, covered)
            cycles_of[kind] += max(0, min(end, high) - begin)
            covered = max(covered, min(end, high))
            at += 1
        cycles_of["latency"] += high - covered

    def _binding(self, i: int) -> tuple[int, int, bool] | None:
        """The instruction that let this one go, when, and whether by ending (or by being issued)."""
        options: list[tuple[int, int, bool]] = []
        for queue, count in enumerate(self.head["wait"][i].tolist()):
            if count:
                other = self.queues[queue][count - 1]
                options.append((other, int(self.times.end[other]), True))
        if place := int(self.place[i]):
            own = int(self.head["queue"][i])
            before = self.queues[own][place - 1]
            if own in (MATRIX, VECTOR):
                options.append((before, int(self.times.end[before]), True))
            else:
                options.append((before, int(self.times.issue[before]) + 1, False))
        return max(options, key=lambda option: option[1], default=None)


@dataclass(frozen=True)
class Channel:
    """The DRAM channel of a program on one core."""

    busy: int
    idle: dict[str, int]
    """Idle cycles before a transfer, by what it waited for: `room after LAYER`, `data of LAYER`, `latency` or `nothing`."""
    filled: float
    """The part of local memory that was in use while the channel was idle before a load, on average."""


def channel(
    stream: Array, times: CoreTimeline, subgraph: NpuSubgraph, target: Target, layers: tuple[str, ...]
) -> Channel:
    """When the channel is idle, and why. Before a store it waits for data; before a load, for room."""
    head = heads(stream)
    chain = _Chain(stream, times)
    order = sorted(
        (i for i, kind in chain.kind.items() if kind != "shared"), key=lambda i: (int(times.start[i]), i)
    )
    idle: Counter[str] = Counter()
    free, weighted, waited = 0, 0.0, 0
    for i in order:
        begin = int(times.start[i])
        if begin > free:
            issue = int(times.issue[i])
            late = min(begin, issue) - free
            idle["latency"] += begin - max(free, issue)
            if late > 0:
                j: int = i
                while (before := chain._binding(j)) is not None and not before[2]:
                    j = before[0]
                if before is None:
                    word = "nothing"
                else:
                    layer = layers[int(head["layer"][before[0]])]
                    word = f"{'data of' if chain.kind[j] == 'stores' else 'room after'} {layer}"
                idle[word] += late
                if chain.kind[j] != "stores":
                    weighted += late * _filled(subgraph, times, free, issue)
                    waited += late
        free = max(free, int(times.end[i]))
    busy = sum(end - start for start, end, _ in chain.channel)
    return Channel(busy, dict(idle), weighted / waited / int(target.memory.local.size) if waited else 0.0)


def _filled(subgraph: NpuSubgraph, times: CoreTimeline, low: int, high: int) -> float:
    """Bytes that objects take in local memory in the middle of some cycles."""
    now = (low + high) // 2
    return float(
        sum(
            a.size
            for a in subgraph.allocations
            if times.issue[a.first] <= now < times.end[a.last] and a.core == 0
        )
    )


def account_of(compiled: CompiledModel, graph: Any, target: Target) -> list[Account]:
    """The accounts of all NPU subgraphs and cores."""
    parts = [part for part in partition(graph, target).parts if part.device == "npu"]
    accounts: list[Account] = []
    subgraphs = [subgraph for subgraph in compiled.subgraphs if isinstance(subgraph, NpuSubgraph)]
    for part, subgraph in zip(parts, subgraphs, strict=True):
        needed = matrix_work(build_network(graph, part.ops, part.inputs, part.outputs), target)
        went = simulate_streams(target, subgraph.streams, subgraph.name, compiled.layers)
        accounts += gaps(subgraph.streams, went, target, compiled.layers, needed)
    return accounts


def traffic(compiled: CompiledModel) -> dict[str, int]:
    """Bytes on the DRAM channel: what is loaded and stored, and how much of it more than once; a multicast load counts once."""
    moved: Counter[str] = Counter()
    for subgraph in compiled.subgraphs:
        if not isinstance(subgraph, NpuSubgraph):
            continue
        loaded: set[tuple[int, int, int]] = set()
        for core, stream in enumerate(subgraph.streams):
            head, record = heads(stream), transfers(stream)
            for i in np.flatnonzero(
                np.isin(head["opcode"], (BY_NAME["load"].opcode, BY_NAME["store"].opcode))
            ):
                if core and head["flags"][i] & MULTICAST and head["opcode"][i] == BY_NAME["load"].opcode:
                    continue  # with that of the first core
                segment, size = int(record["segment"][i]), int(on_channel(record[i : i + 1])[0])
                if segment == SHARED:
                    moved["shared"] += size
                    continue
                where = {WEIGHTS: "weights", WORKSPACE: "workspace"}.get(segment, "ports")
                stores = head["opcode"][i] == BY_NAME["store"].opcode
                moved[f"{where} {'stored' if stores else 'loaded'}"] += size
                key = segment, int(record["offset"][i]), size
                if not stores and where != "workspace":
                    moved["loaded again"] += size if key in loaded else 0
                    loaded.add(key)
    return dict(moved)


def by_layer(account: Account, top: int) -> list[tuple[int, str, str]]:
    """Cycles lost before and in a layer, most first, with what they went for."""
    lost: dict[str, Counter[str]] = defaultdict(Counter)
    for gap in account.gaps:
        lost[gap.layer].update(gap.causes)
    for name, table in (("twice", account.twice), ("starts", account.starts), ("banks", account.banks)):
        for layer, cycles in table.items():
            if cycles:
                lost[layer][name] += cycles
    rows = sorted(
        ((sum(c.values()), layer, c) for layer, c in lost.items()), key=lambda row: (-row[0], row[1])
    )
    return [(n, layer, ", ".join(f"{k} {v}" for k, v in c.most_common())) for n, layer, c in rows[:top]]


def describe(name: str, target: Target, level: int, top: int) -> None:
    """Print the account of a model."""
    graph = networks.integer(name)
    compiled = compile_model(graph, target, level=level)
    parts = [part for part in partition(graph, target).parts if part.device == "npu"]
    built = [build_network(graph, part.ops, part.inputs, part.outputs) for part in parts]
    limits = [bounds(network, target) for network in built]
    accounts = account_of(compiled, graph, target)
    cores = max(1, len(accounts) // max(1, len(limits)))
    for number, account in enumerate(accounts):
        bound = limits[number // cores].buffered
        title = f"{name} {target.name} -O{level}, subgraph {number // cores}, core {number % cores}"
        print(f"{title}: {account.total} cycles, bound {bound} ({bound / account.total:.3f})")
        print("  " + ", ".join(f"{key} {100 * part:.1f}%" for key, part in account.shares().items() if part))
        for cycles, layer, words in by_layer(account, top):
            print(f"  {cycles:9d} {100 * cycles / account.total:5.1f}%  {layer}: {words}")
    for subgraph in compiled.subgraphs:
        if isinstance(subgraph, NpuSubgraph) and len(subgraph.streams) == 1:
            went = simulate_streams(target, subgraph.streams, subgraph.name, compiled.layers)
            busy = channel(subgraph.streams[0], went.cores[0], subgraph, target, compiled.layers)
            words = sorted(busy.idle.items(), key=lambda item: -item[1])[:top]
            print(
                f"  channel of {subgraph.name}: busy {busy.busy}, idle {went.total - busy.busy}; "
                f"while a load waited for room, {100 * busy.filled:.0f}% of local memory was in use"
            )
            print("    " + ", ".join(f"{word} {cycles}" for word, cycles in words))
    moved = traffic(compiled)
    needed = sum(limit.bytes for limit in limits)
    print(f"  bytes: {', '.join(f'{key} {value}' for key, value in moved.items())}; compulsory {needed}")


def main() -> None:
    """Print the accounts that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("target")
    parser.add_argument("-O", dest="level", type=int, default=2)
    parser.add_argument("--top", type=int, default=12)
    options = parser.parse_args()
    describe(options.model, load_target(options.target), options.level, options.top)


if __name__ == "__main__":
    main()
