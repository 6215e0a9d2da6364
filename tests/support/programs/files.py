"""Compiled models made by hand: random instructions, but ones that a reader has to accept."""

from __future__ import annotations

import io
import os
import struct
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arithmetic.sparsity import BLOCK_SIZES
from npuc.arrays import Array
from npuc.program import checks, checksums, elf
from npuc.program.combine import combine
from npuc.program.file import parse_compiled, save_compiled
from npuc.program.file_writer import make_sections
from npuc.program.isa import COMPRESSED, INSTRUCTIONS, NONE, QUEUES, RECORD, SPARSE, Instruction
from npuc.program.model import (
    SHARED,
    Allocation,
    CompiledModel,
    Conversion,
    CpuSubgraph,
    HostConversion,
    NpuSubgraph,
    Segment,
    Tensor,
    records,
)
from npuc.target import load_target
from support.paths import ROOT
from support.programs.instructions import as_stream

SEGMENTS = (
    Segment("weights", "weights", 4096),
    Segment("workspace", "workspace", 100_000),
    Segment("image", "io", 3 * 32 * 32),
    Segment("scores", "io", 40),
)
TENSORS = (
    Tensor("image", (1, 3, 32, 32), (0, 2, 3, 1), "i8", 0.0078125, -3, 2, 0, 3 * 32 * 32),
    Tensor("middle", (1, 16, 8, 8), (0, 2, 3, 1), "i8", 0.05, 4, 1, 640, 1024),
    Tensor("reals", (1, 16, 8, 8), (0, 1, 2, 3), "f32", 0.0, 0, 1, 1664, 4096),
    Tensor("features", (1, 10), (0, 1), "f32", 0.0, 0, 1, 64, 40),
    Tensor("scores", (1, 10), (0, 1), "f32", 0.0, 0, 3, 0, 40),
)
LAYERS = ("conv1", "conv1/relu", "größe/π", "pool")


def _transfer(record: Array, rng: np.random.Generator, store: bool, local: int, shared: int) -> None:
    """Give a load or a store a block that fits on both sides."""
    choices = [k for k in range(len(SEGMENTS)) if not (store and k == 0)] + ([SHARED] if shared else [])
    for row in record:
        segment = int(rng.choice(choices))
        whole = shared if segment == SHARED else SEGMENTS[segment].size
        size = rng.integers(1, 3, 4)
        size[3] = rng.integers(1, max(2, min(whole // 8, 64)))
        stride = [int(size[3] * 4), int(size[3] * 2), int(size[3])]
        # The innermost two axes may run backwards: the block then starts at their ends.
        back = rng.random(3) < 0.2
        reach = sum(s * (int(n) - 1) for s, n in zip(stride, size[:3], strict=True)) + int(size[3])
        start = sum(s * (int(n) - 1) for s, n, b in zip(stride, size[:3], back, strict=True) if b)
        row["segment"] = segment
        row["size"] = size
        signed = [-s if b else s for s, b in zip(stride, back, strict=True)]
        row["far_stride"] = signed
        row["near_stride"] = signed
        row["offset"] = start + int(rng.integers(0, max(1, whole - reach + 1)))
        row["local"] = start + int(rng.integers(0, local - reach + 1))
        if not store:
            row["stored"] = 0
            # What a stream stands for is nobody's business here.
            if segment == 0 and size[3] > 1 and rng.random() < 0.5:
                row["size"] = 1, 1, 1, size[3]
                row["stored"], row["flags"] = rng.integers(1, size[3]), COMPRESSED


def _random(instruction: Instruction, rng: np.random.Generator, local: int, shared: int) -> Array:
    record = records(instruction.name, 1)
    for field in instruction.fields:
        if field.name in ("sparse_n", "sparse_m"):
            continue
        if field.address:
            value = NONE if rng.random() < 0.1 else rng.integers(0, local)
        elif field.name in checks.CHOICES and field.type == "u1":
            value = rng.integers(0, checks.CHOICES[field.name])
        elif field.name == "bytes" and field.type == "u1":
            value = rng.choice(checks.WIDTHS)
        elif field.name in ("x_segment", "b_segment"):
            value = rng.integers(0, 2)  # the weights or the workspace, which are large enough
        elif field.name.endswith("_segment"):
            value = 1
        elif field.name in ("x_bytes", "y_bytes"):
            value = rng.integers(1, 100)
        else:
            value = rng.integers(0, 100, field.count if field.count > 1 else None)
        record[field.name] = value
    if instruction.name in ("load", "store"):
        _transfer(record, rng, instruction.name == "store", local, shared)
    if instruction.name == "conv":
        _weights(record)
    return record


def _weights(record: Array) -> None:
    """Give a convolution dense weights, or a sparsity pattern that fits it."""
    rng = np.random.default_rng(record["weight"])
    if rng.random() < 0.5:
        block = int(rng.choice(BLOCK_SIZES))
        record["sparse_n"], record["sparse_m"], record["flags"] = rng.integers(1, block), block, SPARSE
        record["groups"], record["c"] = 2, 2 * block * rng.integers(1, 4)
        record["w_zero_point"], record["x_dtype"] = 0, rng.integers(0, 3)


def random_stream(rng: np.random.Generator, count: int, local: int, shared: int, barriers: int = 0) -> Array:
    """`count` instructions for one core; `barriers` at its end, in every queue."""
    kinds = [instruction for instruction in INSTRUCTIONS if instruction.queue != "any"]
    rows = np.zeros((count + barriers * len(QUEUES), RECORD), np.uint8)
    done = np.zeros(len(QUEUES), np.int64)
    for number in range(count):
        instruction = kinds[number % len(kinds)] if count < 200 else kinds[int(rng.integers(len(kinds)))]
        record = _random(instruction, rng, local, shared)
        queue = QUEUES.index(instruction.queue)
        record["queue"] = queue
        record["layer"] = rng.integers(0, len(LAYERS))
        record["wait"] = rng.integers(0, done + 1)
        done[queue] += 1
        rows[number] = as_stream(record)[0]
    for number in range(barriers):
        for queue in range(len(QUEUES)):
            record = records("barrier", 1)
            record["queue"], record["number"] = queue, number + 1
            rows[count + number * len(QUEUES) + queue] = as_stream(record)[0]
    return rows


def random_model(
    seed: int = 0, count: int = 40, cores: int = 2, target: str = "server-32t", **changes: Any
) -> CompiledModel:
    """A model of four subgraphs (NPU, host, CPU, NPU) for a preset."""
    rng = np.random.default_rng(seed)
    machine = load_target(target)
    local = machine.memory.local.size
    shared = machine.memory.shared.size if machine.memory.shared else 0
    streams = tuple(random_stream(rng, count, local, shared, barriers=2) for _ in range(cores))
    allocations = tuple(
        Allocation(f"tile {core}", core, 64 * core, 4096, core, count - 1) for core in range(cores)
    )
    last = random_stream(rng, 3, local, shared)
    fields: dict[str, Any] = {
        "name": "net",
        "target": machine.to_dict(),
        "fingerprint": machine.fingerprint,
        "segments": SEGMENTS,
        "weights": rng.integers(0, 256, SEGMENTS[0].size).astype(np.uint8),
        "tensors": TENSORS,
        "inputs": ("image",),
        "outputs": ("scores",),
        "layers": LAYERS,
        "subgraphs": (
            NpuSubgraph("front", streams, ("image",), ("middle",), allocations),
            HostConversion("reals", (Conversion("middle", "reals", "half_even"),)),
            CpuSubgraph("odd", b"not really ONNX", ("reals",), ("features",), {"nms": "has no form"}),
            NpuSubgraph("back", (last,), ("features",), ("scores",)),
        ),
        "metadata": {"options": {"level": 2}, "npuc": "0.1.0"},
    }
    return CompiledModel(**(fields | changes))


def as_bytes(program: CompiledModel | Mapping[str, CompiledModel]) -> bytes:
    """The bytes of the file of a model, or of a program with several entries."""
    out = io.BytesIO()
    elf.write(out, *make_sections(program))
    return out.getvalue()


def parse(data: bytes) -> CompiledModel:
    """The model of a file's bytes."""
    return parse_compiled(np.frombuffer(data, np.uint8), "model.npu")


def saved(path: Path, model: CompiledModel | None = None) -> Path:
    """Write a model to a file."""
    save_compiled(model or random_model(), path)
    return path


def build_driver(folder: Path, *flags: str) -> Path:
    """The C reader with address and undefined-behaviour checks, as a program."""
    program = folder / "read_files"
    names = ("file.c", "file_digest.c", "sha256.c", "sha256_ni.c", "threads.c")
    sources = [*(ROOT / "native/src" / name for name in names), ROOT / "tests/codegen/read_files.c"]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [
        "gcc",
        "-std=c11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-pthread",
        *checks,
        *flags,
    ]
    command += [f"-I{ROOT / 'native/include'}", *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def read_in_c(driver: Path, files: list[bytes]) -> list[str]:
    """What the C reader says of each file."""
    stream = b"".join(struct.pack("<Q", len(data)) + data for data in files)
    # The preloads of `make sanitize` are for Python; this program has its own.
    surroundings = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run([str(driver)], input=stream, capture_output=True, env=surroundings, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return done.stdout.decode().splitlines()


def sealed(data: bytes | bytearray) -> bytes:
    """The file with the checksum that belongs to it, so that a reader looks further."""
    count = 0
    while checksums.size_for(max(0, len(data) - checksums.BYTES * (count + 1))) > checksums.BYTES * (
        count + 1
    ):
        count += 1
    body = bytes(data[: -checksums.BYTES * (count + 1)])
    return body + checksums.seal([body])


@cache
def good() -> bytes:
    return as_bytes(random_model(count=20))


@cache
def good_entries() -> bytes:
    """A program with three entries."""
    models = {name: random_model(seed, count=20) for seed, name in enumerate(("a", "b", "größer"))}
    return as_bytes(combine(models).entries)
