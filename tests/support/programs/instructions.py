"""Tiny programs made by hand: arrays are put into local memory, instructions work on them, results are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.kernels import Requant
from npuc.kernels.floats import BF16, F16
from npuc.program.isa import BY_NAME, DTYPES, KINDS, NONE, QUEUES, RECORD
from npuc.program.model import Allocation, CompiledModel, NpuSubgraph, Segment, Tensor, records
from npuc.sim import Finding, Simulator, sanitize
from npuc.target import Target, load_target

CODES = {
    np.dtype(t): DTYPES.index(n)
    for n, t in (
        ("i8", "i1"), ("ui8", "u1"), ("i16", "<i2"), ("i32", "<i4"), ("f32", "<f4"), ("i64", "<i8"), ("bf16", BF16), ("f16", F16),
    )
}  # fmt: skip
NAMES = {kind: DTYPES[code] for kind, code in CODES.items()}


def machine(local: str = "64KiB", banks: int = 16, **changes: Any) -> Target:
    """edge-4t with another local memory."""
    data = load_target("edge-4t").to_dict()
    data["memory"]["local"] |= {"size": local, "banks": banks}
    for path, value in changes.items():
        *parts, last = path.split("__")
        part = data
        for name in parts:
            part = part[name]
        part[last] = value
    return Target.from_dict(data)


def as_stream(structured: Array) -> Array:
    """Structured instructions as rows of bytes."""
    return structured.view(np.uint8).reshape(-1, RECORD)


class Draft:
    """A program in the making. By default every instruction waits for all that come before it."""

    def __init__(self, target: Target | None = None, cores: int = 1) -> None:
        self.target = target or machine()
        self.streams: list[list[Array]] = [[] for _ in range(cores)]
        self.counts = [[0] * 4 for _ in range(cores)]
        self.constants = bytearray()
        self.input = bytearray()
        self.inputs: dict[str, tuple[Array, int]] = {}
        self.outputs: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
        self.output_bytes = 0
        self.tops = [0] * cores
        self.allocations: list[Allocation] = []

    def emit(
        self, name: str, *, core: int = 0, wait: Any = None, queue: str | None = None, **fields: Any
    ) -> int:
        """Append an instruction; returns its index in the stream."""
        record = records(name, 1)
        instruction = BY_NAME[name]
        where = QUEUES.index(queue or instruction.queue)
        record["queue"] = where
        record["wait"] = self.counts[core] if wait is None else wait
        for key, value in fields.items():
            record[key] = value
        self.streams[core].append(as_stream(record)[0])
        self.counts[core][where] += 1
        return len(self.streams[core]) - 1

    def room(self, size: int, core: int = 0) -> int:
        """Fresh bytes of local memory."""
        at = self.tops[core]
        self.tops[core] = -(-(at + size) // 64) * 64
        self.allocations.append(Allocation(f"a{at}", core, at, size, 0, 1 << 30))
        return at

    def put(self, array: Any, constant: bool = False, core: int = 0, wait: Any = None) -> int:
        """Load an array, from the constants or from an input; returns where it is in local memory."""
        array = np.ascontiguousarray(array)
        bytes_ = array.tobytes()
        place = self.constants if constant else self.input
        place.extend(bytes(-len(place) % 64))
        offset = len(place)
        place.extend(bytes_)
        if not constant:
            self.inputs[f"x{len(self.inputs)}"] = (array, offset)
        at = self.room(len(bytes_), core)
        self.load(0 if constant else 2, offset, at, len(bytes_), core=core, wait=wait)
        return at

    def load(self, segment: int, offset: int, at: int, size: int, core: int = 0, wait: Any = None) -> int:
        """A load of a row of bytes."""
        return self.emit(
            "load", core=core, wait=wait, segment=segment, offset=offset, local=at, size=(1, 1, 1, size)
        )

    def fetch(self, at: int, shape: Any, dtype: Any, core: int = 0, wait: Any = None) -> int:
        """Store a result; returns the index of the store."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        self.outputs.append((tuple(shape), kind, self.output_bytes))
        offset, self.output_bytes = self.output_bytes, self.output_bytes + -(-size // 64) * 64
        return self.emit(
            "store", core=core, wait=wait, segment=3, offset=offset, local=at, size=(1, 1, 1, size)
        )

    def compiled(self, allocations: bool = False) -> CompiledModel:
        """The model."""
        tensors = [
            _tensor(name, array.shape, array.dtype, 2, offset)
            for name, (array, offset) in self.inputs.items()
        ]
        results = [
            _tensor(f"y{i}", shape, kind, 3, offset) for i, (shape, kind, offset) in enumerate(self.outputs)
        ]
        inputs, outputs = tuple(self.inputs), tuple(t.name for t in results)
        streams = tuple(np.array(stream, np.uint8).reshape(-1, 160) for stream in self.streams)
        return CompiledModel(
            "draft", self.target.to_dict(), self.target.fingerprint,
            (
                Segment("weights", "weights", len(self.constants)), Segment("workspace", "workspace", 4096),
                Segment("in", "io", len(self.input)), Segment("out", "io", max(64, self.output_bytes)),
            ),
            np.frombuffer(bytes(self.constants), np.uint8), (*tensors, *results), inputs, outputs, ("first", "second"),
            (
                NpuSubgraph(
                    "npu", streams, inputs, outputs, tuple(self.allocations) if allocations else ()
                ),
            ),
        )  # fmt: skip

    def arrays(self) -> dict[str, Array]:
        """The inputs."""
        return {name: array for name, (array, _) in self.inputs.items()}

    def run(self, threads: int = 1) -> list[Array]:
        """The stored results."""
        return list(Simulator(self.compiled(), threads).run(self.arrays()).values())

    def sanitize(self, allocations: bool = False) -> list[Finding]:
        """What the sanitizer finds."""
        return sanitize(self.compiled(allocations), self.arrays())

    def stage(self, rq: Requant, constant: bool = False) -> dict[str, Any]:
        """The fields of an output stage, with its parameters loaded."""
        first = rq.scale if rq.kind == "float_scale" else rq.multiplier
        return {
            "kind": KINDS.index(rq.kind),
            "count": rq.count,
            "multiplier": NONE if first is None or rq.kind == "pow2" else self.put(first, constant),
            "shift": NONE if rq.shift is None or rq.kind == "float_scale" else self.put(rq.shift, constant),
            "zero_point": rq.zero_point,
            "lo": rq.lo,
            "hi": rq.hi,
        }


def _tensor(name: str, shape: tuple[int, ...], kind: np.dtype[Any], segment: int, offset: int) -> Tensor:
    size = int(np.prod(shape)) * kind.itemsize
    return Tensor(name, shape, tuple(range(len(shape))), NAMES[kind], 0.0, 0, segment, offset, size)
