"""What a target states, as paths into its file, and what a compiled program uses of it.

`stated(target)` are the choices that a machine offers: types and scales, pairs of types that it multiplies, granularities,
requantization kinds, tables, wide sums, cores, memories, the weight decoder. `used(program, done)` reads the same paths
from the instructions of a compiled program and from the types of its network, so that a test can tell which promises nothing
keeps. Fields that are no choices but figures (lanes, latencies, widths) are compared by their effect, in the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from npuc.arithmetic.dtypes import CODES, dtype_of
from npuc.arithmetic.kinds import KINDS, Kind
from npuc.arithmetic.requantization import is_power_of_two
from npuc.codegen.compile_model import Compilation
from npuc.ir import Graph, npu, top
from npuc.ir import dtype_of as element_of
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import quant_of
from npuc.program.instruction import decode
from npuc.program.instructions import Conv, Load, Matmul, Store, Table
from npuc.program.isa import COMPRESSED, NONE
from npuc.program.model import SHARED, NpuSubgraph
from npuc.target import Target


def schema_fields(model: type[BaseModel] = Target, path: str = "") -> Iterator[str]:
    """The path of every field that a target file may have, parts of parts included."""
    for name, field in model.model_fields.items():
        here = f"{path}.{name}" if path else name
        # Of a mapping to parts the whole is one field: its keys are names.
        several = isinstance(origin := get_origin(field.annotation), type) and issubclass(origin, Mapping)
        kinds = () if several else (field.annotation, *get_args(field.annotation))
        inner = [kind for kind in kinds if _is_part(kind)]
        if inner:
            yield from schema_fields(inner[0], here)
        else:
            yield here


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def stated(target: Target) -> set[str]:
    """The choices that a target offers."""
    arithmetic, array, memory = target.arithmetic, target.compute.array, target.memory
    paths = {
        f"arithmetic.{what}.formats.{name}.{scale}"
        for what in ("activations", "weights")
        for name, scales in getattr(arithmetic, what).formats.items()
        for scale in scales
    }
    # A target that extends another keeps the rates of types that it leaves out: those promise nothing.
    paths |= {
        f"compute.array.rates.{a}.{w}"
        for a, row in array.rates.items()
        for w in row
        if a in arithmetic.activations.formats and w in arithmetic.weights.formats
    }
    paths |= {f"arithmetic.weights.granularity.{name}" for name in arithmetic.weights.granularity}
    paths |= {f"arithmetic.requantization.kinds.{kind}" for kind in arithmetic.requantization.kinds}
    optional = {
        "compute.cores": target.compute.cores > 1,
        "compute.table_units": target.compute.table_units > 0,
        "memory.shared": memory.shared is not None,
        "memory.weight_decoder": memory.weight_decoder is not None,
        "memory.weight_contexts": memory.weight_contexts is not None,
        "compute.sparsity": target.compute.sparsity is not None,
        "arithmetic.accumulator.wide_bits": arithmetic.accumulator.wide_bits is not None,
        "arithmetic.bias.wide_bits": arithmetic.bias.wide_bits is not None,
        "arithmetic.tables.entries_8bit": arithmetic.tables.entries_8bit > 0,
        "arithmetic.tables.entries_16bit": "i16" in arithmetic.activations.formats
        and arithmetic.tables.entries_16bit > 0,
    }
    paths |= {path for path, there in optional.items() if there}
    return paths


def used(program: Graph, done: Compilation) -> set[str]:
    """The choices that a compiled program uses: what its instructions say, and the scales of the layers on the NPU."""
    paths: set[str] = set()
    for subgraph in done.model.subgraphs:
        if isinstance(subgraph, NpuSubgraph):
            if len(subgraph.streams) > 1 and all(len(stream) > 1 for stream in subgraph.streams):
                paths.add("compute.cores")
            for stream in subgraph.streams:
                for record in stream:
                    paths |= _of_instruction(*decode(record.tobytes()))
    for part in done.partition.parts:
        if part.device == "npu":
            for op in part.ops:
                paths |= _of_layer(op, program)
    return paths


def _short(code: int) -> str:
    return dtype_of(CODES[code]).short


def _of_instruction(head: Any, instruction: Any) -> set[str]:
    paths: set[str] = set()
    match instruction:
        case Load() | Store():
            if instruction.transfer.segment == SHARED:
                paths.add("memory.shared")
            if isinstance(instruction, Load) and head.flags & COMPRESSED:
                paths.add("memory.weight_decoder")
        case Conv():
            x, w, wide = _short(instruction.source.x_dtype), _short(instruction.w_dtype), instruction.wide
            paths.add(f"compute.array.rates.{x}.{w}")
            if instruction.sparse_m:
                paths.add("compute.sparsity")
            if wide:
                paths.add("arithmetic.accumulator.wide_bits")
            if wide and instruction.bias != NONE:
                paths.add("arithmetic.bias.wide_bits")
            if not dtype_of(CODES[instruction.source.x_dtype]).is_float:
                paths.add(f"arithmetic.requantization.kinds.{KINDS[instruction.stage.kind]}")
                per = "channel" if instruction.stage.count > 1 else "tensor"
                paths.add(f"arithmetic.weights.granularity.per_{per}")
            if instruction.table != NONE:
                paths |= _table(instruction.s_dtype)
        case Matmul():
            paths.add(
                f"compute.array.rates.{_short(instruction.source.x_dtype)}.{_short(instruction.second.b_dtype)}"
            )
        case Table():
            paths |= _table(instruction.source.x_dtype)
    return paths


def _table(dtype: int) -> set[str]:
    eight = dtype_of(CODES[dtype]).itemsize == 1
    kind = {True: {"8bit"}, False: {"16bit"} if CODES[dtype] == "i16" else set()}[eight]
    return {"compute.table_units", *(f"arithmetic.tables.entries_{bits}" for bits in kind)}


def _of_layer(op: TensorOp, program: Graph) -> set[str]:
    """The types and scales of a layer: an affine type has a zero point, a symmetric one a scale that is no power of two."""
    paths: set[str] = set()
    linear = isinstance(op, npu.Conv | npu.Deconv | npu.MatMul | npu.FloatLinear)
    for value in (*op.operands, *op.results):
        if isinstance(value.owner, top.WeightOp):
            continue
        kind = quant_of(value)
        if kind is not None:
            scale = _scale(kind.scale, kind.zero_point != 0)
            paths.add(f"arithmetic.activations.formats.{kind.dtype.short}.{scale}")
        elif isinstance(op, npu.FloatOp):
            paths.add(f"arithmetic.activations.formats.{element_of(value.type).short}.float")
    if linear and program.constant(op.weight) is not None:  # type: ignore[attr-defined]
        name = element_of(op.weight.type).short  # type: ignore[attr-defined]
        scales = program.constant(getattr(op, "weight_scale", None))
        if isinstance(op, npu.FloatLinear):
            paths.add(f"arithmetic.weights.formats.{name}.float")
        elif name == "u8":
            paths.add(f"arithmetic.weights.formats.{name}.affine")
        elif op.kind is Kind.POW2:  # type: ignore[attr-defined]
            paths.add(f"arithmetic.weights.formats.{name}.power_of_two")
        elif scales is not None:
            paths |= {
                f"arithmetic.weights.formats.{name}.{_scale(float(s), False)}" for s in scales.reshape(-1)
            }
    return paths


def _scale(scale: float, shifted: bool) -> str:
    if shifted:
        return "affine"
    return "power_of_two" if is_power_of_two(scale) else "symmetric"
