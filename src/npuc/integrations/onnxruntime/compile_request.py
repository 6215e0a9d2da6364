"""What the execution provider asks of the compiler: a folder with a model and options in, a plan and its programs out.

    FOLDER/model.onnx     the graph as ONNX Runtime hands it over
    FOLDER/request        options, one `key=value` a line
    FOLDER/plan           which nodes become which program (native/ort/ort_plan.c has the format)
    FOLDER/part0.npu ...  the programs
    FOLDER/report.json    what runs where, and why (`npuc.integrations.report`)

The provider calls it inside of the process where that is Python's, and as `npuc ort-compile FOLDER` elsewhere. A model that
cannot be compiled is no error: its plan claims no nodes and says why. A wrong option is one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from npuc.errors import NpucError, UsageError
from npuc.files import write_atomically
from npuc.integrations.report import FRAMEWORK, IntegrationReport, ReportedNode
from npuc.words import counted

if TYPE_CHECKING:
    import onnx

    from npuc.flow import Quantized
    from npuc.integrations.onnxruntime.parts import ModelNodes, SeparatePart
    from npuc.ir import Graph
    from npuc.partition import Partition
    from npuc.program.model import CompiledModel
    from npuc.target import Target

_LOG = logging.getLogger(__name__)

PLAN_HEAD = "npuc-ort-plan 1"
DEFAULT_TARGET = "edge-4t"
INTEGRATION = "ONNX Runtime"
_INFO, _WARNING = 1, 2
_STALE = 24 * 3600.0
"""Seconds after which the folder of a compilation that was killed is removed."""
_NO_RANGES = "no ranges of its tensors are known"
_RANGES_LEVER = "Give the provider option calibration (a table of 'npuc calibrate', or an .npz of samples), or a QDQ model"
_SHAPE_LEVER = "Fix it with SessionOptions.add_free_dimension_override_by_name, or by exporting the model with static shapes"


class OptionMistake(Exception):
    """An option is wrong: the session must not be made."""

    def __init__(self, error: NpucError, option: str) -> None:
        super().__init__(f"the provider option {option}: {error.paragraph().removesuffix('.')}")


class Unsupported(Exception):
    """A model, or all of its nodes, cannot be compiled as it is."""

    def __init__(self, reason: str, lever: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.lever = lever


@dataclass(frozen=True)
class Request:
    """The options of a session that the result depends on."""

    key: str
    target: str = DEFAULT_TARGET
    scheme: str = ""
    calibration: str = ""
    level: int = 2
    batch: int = 1
    """The batch that a model with a symbolic batch is compiled for; runs take any multiple of samples."""

    @staticmethod
    def read(folder: Path) -> Request:
        """The request of a folder."""
        try:
            lines = (folder / "request").read_text(encoding="ascii").splitlines()
            values = {name: unquote(value) for name, _, value in (line.partition("=") for line in lines)}
            numbers = {name: int(values.pop(name)) for name in ("level", "batch") if name in values}
            return Request(**values, **numbers)  # type: ignore[arg-type]
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(
                f"there is no request of the execution provider in {folder}",
                fix="The command is for the provider's own use; npuc compile compiles models",
            ) from error


@dataclass(frozen=True)
class Program:
    """A compiled part, and the nodes that it replaces."""

    part: SeparatePart
    model: CompiledModel
    batched: bool


def compile_request(folder: Path) -> None:
    """Do what a folder asks for; `OptionMistake` if an option is wrong."""
    import onnx

    request = Request.read(folder)
    _remove_stale(folder)
    with _option("target", request.target):
        from npuc.target import load_target

        target = load_target(request.target)
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    try:
        programs, report = _compiled(folder / "model.onnx", proto, request, target)
    except Unsupported as why:
        programs, report = [], _all_left(proto, target, why)
    _write_plan(folder, request, programs, report)


@contextmanager
def _option(name: str, value: str) -> Iterator[None]:
    """Errors inside are about an option."""
    try:
        yield
    except NpucError as error:
        raise OptionMistake(error, f"{name}={value}") from error


def _remove_stale(folder: Path) -> None:
    """Folders that killed compilations left behind."""
    for other in folder.parent.glob(".work-*"):
        with suppress(OSError):
            if other != folder and time.time() - other.stat().st_mtime > _STALE:
                for file in other.iterdir():
                    file.unlink()
                other.rmdir()


def _compiled(
    path: Path, proto: onnx.ModelProto, request: Request, target: Target
) -> tuple[list[Program], IntegrationReport]:
    from npuc.flow import network_to_quantize
    from npuc.frontend.options import ImportOptions
    from npuc.integrations.onnxruntime.parts import ModelNodes
    from npuc.ir.target_rewrites import rewritten_for

    shapes, is_batched = _static_shapes(proto, request.batch)
    try:
        graph = network_to_quantize(path, ImportOptions(input_shapes=shapes))
        graph = rewritten_for(graph, target, "float")
    except NpucError as error:
        raise Unsupported(f"the model cannot be imported: {error.message}", error.fix or "") from error
    quantized = _quantized(graph, request, target)
    model = ModelNodes(proto)
    integers = rewritten_for(quantized.graph, target, "integer")
    parted, programs, refused = _programs(model, integers, request, target)
    if is_batched and programs:
        mixing = _mixing(path, proto, shapes, programs)
        refused |= mixing
        programs = {
            number: replace(program, batched=True)
            for number, program in programs.items()
            if number not in mixing
        }
    return list(programs.values()), _report(quantized, parted, target, programs, refused)


def _static_shapes(proto: onnx.ModelProto, batch: int) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Shapes for inputs whose first axis is symbolic, and whether there are such; other symbolic axes are refused."""
    shapes: dict[str, tuple[int, ...]] = {}
    constants = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise Unsupported(f"the shape of the input '{value.name}' is not known", _SHAPE_LEVER)
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        for axis, (size, dim) in enumerate(zip(dims, tensor.shape.dim, strict=True)):
            if size is None and axis > 0:
                name = f" ('{dim.dim_param}')" if dim.dim_param else ""
                raise Unsupported(
                    f"axis {axis} of the input '{value.name}' has no fixed size{name}", _SHAPE_LEVER
                )
        if dims and dims[0] is None:
            shapes[value.name] = (batch, *(size for size in dims[1:] if size is not None))
    return shapes, bool(shapes)


def _quantized(graph: Graph, request: Request, target: Target) -> Quantized:
    """The integer network: with the model's own quantization, or with ranges of a table or of samples."""
    from npuc.flow import needs_ranges, quantize_network
    from npuc.quant.config import QuantizationConfig
    from npuc.quant.prequantized import is_quantized

    config = None
    if request.scheme:
        with _option("scheme", request.scheme):
            config = QuantizationConfig(scheme=request.scheme)
            config.resolve(graph)
    try:
        if is_quantized(graph):
            return quantize_network(graph, None, config, target)
        if not needs_ranges(graph, config, target):
            return quantize_network(graph, {}, config, target)
    except NpucError as error:
        raise Unsupported(f"the network cannot be quantized: {error.message}", error.fix or "") from error
    if not request.calibration:
        raise Unsupported(_NO_RANGES, _RANGES_LEVER)
    with _option("calibration", request.calibration):
        return _with_ranges(graph, Path(request.calibration), config, target)


def _with_ranges(graph: Graph, file: Path, config: Any, target: Target) -> Quantized:
    from npuc.calib.collection import observed_tensors
    from npuc.calib.sources import open_data
    from npuc.calib.table import load_table
    from npuc.flow import quantize_network, quantize_on_data
    from npuc.ir import result_names, top, value_name
    from npuc.ir.definition import TensorOp
    from npuc.quant.config import QuantizationConfig

    if file.suffix in (".npz", ".npy"):
        return quantize_on_data(graph, open_data(graph, file), config, target)[0]
    table = load_table(file)
    known = observed_tensors(graph)
    missing = tuple(name for name in known if name not in table)
    if len(missing) == len(known):
        raise UsageError(
            "it has no tensor of the model", fix="Make it of this model: npuc calibrate MODEL.onnx"
        )
    if missing:
        # ONNX Runtime has simplified the model: some tensors are others than those that the table was made for. What makes
        # or reads one cannot have integers there.
        touching = tuple(
            result_names(op)[0]
            for op in graph.ops
            if isinstance(op, TensorOp) and not isinstance(op, top.WeightOp) and op.results
            if not {*map(value_name, op.operands), *result_names(op)}.isdisjoint(missing)
        )
        config = (config or QuantizationConfig()).with_layers(touching, "float")
    quantized = quantize_network(graph, table, config, target)
    if missing:
        count = counted(len(missing), "tensor")
        note = (
            f"the calibration table has no range for {count} of the model as ONNX Runtime simplified it, such as '{missing[0]}', "
            "and their layers stay float: samples (.npz) give every range, and ORT_DISABLE_ALL keeps the model as it is"
        )
        outcome = replace(quantized.outcome, notes=(*quantized.outcome.notes, note))
        quantized = replace(quantized, outcome=outcome)
    return quantized


def _programs(
    model: ModelNodes, integers: Graph, request: Request, target: Target
) -> tuple[Partition, dict[int, Program], dict[int, str]]:
    """The partition, the programs of its NPU subgraphs by their numbers, and why others have none.

    A layer that finds no room in local memory shows only when its subgraph is compiled: the partition then begins again
    with that layer on the CPU.
    """
    from npuc.codegen.compile_model import CompileOptions, compile_program
    from npuc.integrations.onnxruntime.parts import separated
    from npuc.partition import partition
    from npuc.program.model import CpuSubgraph
    from npuc.schedule.cache import Cache

    options = CompileOptions(level=request.level, cache=Cache.default())
    devices: dict[str, str] = {}
    known: dict[str, Any] = {}
    compiled: dict[tuple[int, ...], CompiledModel] = {}
    while True:
        try:
            parted = partition(integers, target, devices).with_obstacles(known)
        except NpucError as error:
            raise Unsupported(f"the network cannot be partitioned: {error.message}") from error
        parts, separated_reasons = separated(model, integers, parted)
        reasons = dict(separated_reasons)
        programs: dict[int, Program] = {}
        too_large: dict[str, Any] = {}
        for number, part in parts.items():
            if (done := compiled.get(part.nodes)) is None:
                try:
                    compilation = compile_program(part.network, target, options, f"part{number}")
                except NpucError as error:
                    reasons[number] = f"it cannot be compiled: {error.message}"
                    continue
                too_large |= compilation.too_large
                done = compiled[part.nodes] = compilation.model
            if any(isinstance(subgraph, CpuSubgraph) for subgraph in done.subgraphs):
                reasons[number] = "some of it needs the CPU"
                continue
            programs[number] = Program(part, done, batched=False)
        fresh = {name: obstacle for name, obstacle in too_large.items() if name not in known}
        if not fresh:
            return parted, programs, reasons
        known |= fresh
        devices |= dict.fromkeys(fresh, "cpu")


def _mixing(
    path: Path, proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], programs: Mapping[int, Program]
) -> dict[int, str]:
    """Programs whose tensors are not, sample by sample, those of a smaller batch, found by running the float model."""
    import numpy as np
    import onnx
    import onnxruntime

    ends = {
        number: [name for name, _ in (*program.part.inputs, *program.part.outputs)]
        for number, program in programs.items()
    }
    watched = sorted(
        {name for names in ends.values() for name in names} - {i.name for i in proto.graph.input}
    )
    extended = onnx.ModelProto()
    extended.CopyFrom(proto)
    del extended.graph.output[:]
    extended.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in watched)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    generator = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    constants = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name in constants:
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = shapes.get(value.name) or tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        batched = (2 * shape[0], *shape[1:]) if value.name in shapes else shape
        feeds[value.name] = generator.uniform(0, 1, batched).astype(dtype)
    try:
        session = onnxruntime.InferenceSession(
            extended.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        halves = []
        for half in range(2):
            few = {
                name: x[half * len(x) // 2 : (half + 1) * len(x) // 2]
                for name, x in feeds.items()
                if name in shapes
            }
            halves.append(dict(zip(watched, session.run(watched, {**feeds, **few}), strict=True)))
        whole = dict(zip(watched, session.run(watched, feeds), strict=True))
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        return dict.fromkeys(programs, f"the model does not run with a batch of another size: {words}")

    def splits(name: str) -> bool:
        if name in feeds:
            return name in shapes
        parts = [half[name] for half in halves]
        if any(part.ndim == 0 or part.shape != parts[0].shape for part in parts):
            return False
        joined = np.concatenate(parts)
        return joined.shape == whole[name].shape and bool(
            np.allclose(joined, whole[name], rtol=1e-3, atol=1e-4)
        )

    return {
        number: f"'{bad[0]}' is not one result for each sample of a batch"
        for number, names in ends.items()
        if (bad := [name for name in names if not splits(name)])
    }


def _report(
    quantized: Quantized,
    parted: Partition,
    target: Target,
    programs: Mapping[int, Program],
    refused: Mapping[int, str],
) -> IntegrationReport:
    """What runs where, by layers; what npuc would leave to its own CPU subgraphs is ONNX Runtime's."""
    from npuc.inspect.inspection import inspection_of

    inspection = inspection_of(quantized.source, parted, target)
    part_of = {
        name: number
        for number, part in enumerate(parted.parts)
        for op in part.ops
        for name in _names(op)
        if part.device == "npu"
    }
    nodes = []
    for layer in inspection.layers:
        number = part_of.get(layer.name, layer.subgraph)
        device, reason, lever = layer.device, layer.reason, layer.lever
        if device == "npu" and number in refused:
            device, reason, lever = FRAMEWORK, f"its subgraph is left out: {refused[number]}", ""
        elif device not in ("npu", "host"):
            device = FRAMEWORK
        nodes.append(ReportedNode(layer.name or layer.layer, layer.kind, device, layer.macs, reason, lever))
    return IntegrationReport(
        INTEGRATION, target.name, tuple(nodes), len(programs), tuple(quantized.outcome.notes)
    )


def _names(op: Any) -> Any:
    from npuc.ir import result_names

    return result_names(op)


def _all_left(proto: onnx.ModelProto, target: Target, why: Unsupported) -> IntegrationReport:
    nodes = tuple(
        ReportedNode(
            node.name or next(iter(node.output), ""), node.op_type, FRAMEWORK, 0, why.reason, why.lever
        )
        for node in proto.graph.node
    )
    return IntegrationReport(INTEGRATION, target.name, nodes, 0)


def _write_plan(folder: Path, request: Request, programs: list[Program], report: IntegrationReport) -> None:
    from npuc.program.file import save_compiled

    words = str(report).splitlines()
    level = _INFO if programs else _WARNING
    lines = [PLAN_HEAD, f"key {request.key}"]
    lines += [f"note {level} {_quoted(f'npuc: {line.strip()}')}" for line in words]
    for number, program in enumerate(programs):
        file = folder / f"part{number}.npu"
        save_compiled(program.model, file)
        lines.append(f"group {file.name} {sha256(file.read_bytes()).hexdigest()} {int(program.batched)}")
        lines += [f"node {node}" for node in program.part.nodes]
        lines += [f"in {_quoted(name)} {place}" for name, place in program.part.inputs]
        lines += [f"out {_quoted(name)} {place}" for name, place in program.part.outputs]
    text = "".join(f"{line}\n" for line in lines).encode("ascii")
    text += f"checksum {sha256(text).hexdigest()}\n".encode("ascii")
    with write_atomically(folder / "report.json") as out:
        out.write(json.dumps(report.as_json(), indent=1).encode())
    with write_atomically(folder / "plan") as out:
        out.write(text)
    _LOG.info("%s for %s", counted(len(programs), "program"), report.target)


def _quoted(text: str) -> str:
    """Bytes outside of '!' to '~', and '%', as %XX.

    >>> _quoted("a b%")
    'a%20b%25'
    """
    return "".join(chr(b) if 33 <= b <= 126 and b != 37 else f"%{b:02X}" for b in text.encode())


def run_request(folder: str, tell: Callable[[str], None]) -> int:
    """For the provider: 0, or 2 for a mistake of the user's, or 1; `tell` gets the reason."""
    try:
        compile_request(Path(folder))
        return 0
    except OptionMistake as mistake:
        tell(str(mistake))
        return 2
    except NpucError as error:
        tell(error.message)
    except Exception as error:
        _LOG.debug("the provider's request failed", exc_info=True)
        tell(f"{type(error).__name__}: {error}")
    return 1
