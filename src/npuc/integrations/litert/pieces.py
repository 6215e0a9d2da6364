"""The pieces of a quantized `.tflite` model that the NPU takes from LiteRT, as one program with an entry for each.

Operators are sorted as LiteRT itself sorts them for a delegate: all that can run on the NPU and whose inputs are there make a
piece; then what can only run outside; then the next piece:

    operators   CONV  CONV  CUSTOM  CONV  SOFTMAX
    pieces      [0    0]    -       [1    1]

A piece is imported by cutting the model at its tensors, quantized by TFLite's own arithmetic, and compiled. If something of it
would run on the CPU, its operators are tried one by one, and those that the NPU cannot run are left to LiteRT with the reason.
Ends of an entry are called `#7 name`, by the number of the tensor in the file, which is its number in the interpreter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from npuc.errors import CompileError, NpucError
from npuc.flow import bring_in_form, compile_network, expanded, quantize_network
from npuc.frontend.options import ImportOptions
from npuc.frontend.tflite import import_tflite
from npuc.frontend.tflite.reader import TfliteModel, TfliteOperator, read
from npuc.integrations.litert.runtime_tensors import read_runtime_tensors, with_runtime_shapes
from npuc.integrations.report import FRAMEWORK, IntegrationReport, ReportedNode, report_of
from npuc.ir import Graph
from npuc.partition import partition
from npuc.partition.work import macs
from npuc.program.combine import combine
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.quant.config import QuantizationConfig

if TYPE_CHECKING:
    from npuc.codegen.compile_model import Compilation
    from npuc.flow import Quantized
    from npuc.target import Target

SCHEME = "tflite"
_TYPES = ("INT8", "UINT8", "INT16")
"""Types of activations that the NPU takes with LiteRT's bits."""
_ARITHMETIC_OF_FLOATS = "it computes with {types}; only integer operators are taken, whose bits are LiteRT's"
_QUANTIZE_IT = "Quantize the model to int8 with its converter"


@dataclass(frozen=True)
class Pieces:
    """What the NPU takes of a model."""

    entries: dict[str, CompiledModel]
    """By the name of the piece, in the order in which they run; all over the same weights."""
    operators: dict[str, tuple[int, ...]]
    """The numbers of the operators of each piece."""
    report: IntegrationReport


@dataclass
class _Planner:
    model: TfliteModel
    target: Target
    reasons: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Operator to reason and lever of its staying with LiteRT."""
    moves: set[int] = field(default_factory=set)
    """Operators that only move elements: the NPU runs them between others, but not alone."""
    tried: set[int] = field(default_factory=set)

    def run(self) -> list[tuple[tuple[int, ...], Quantized, Compilation]]:
        """The pieces: operators, the integer network, the compiled program."""
        for index, operator in enumerate(self.model.main.operators):
            if types := self._other_types(operator):
                words = ", ".join(dict.fromkeys(types))
                self.reasons[index] = (_ARITHMETIC_OF_FLOATS.format(types=words), _QUANTIZE_IT)
        compiled: dict[tuple[int, ...], tuple[Quantized, Compilation]] = {}
        while True:
            pieces = pieces_of(self.model.main.operators, self.reasons)
            pending = [piece for piece in pieces if piece not in compiled]
            if not pending:
                return [(piece, *compiled[piece]) for piece in pieces]
            for piece in pending:
                outcome = self._compiled(piece)
                if isinstance(outcome, str):
                    self._give_up(piece, outcome)
                else:
                    compiled[piece] = outcome

    def _other_types(self, operator: TfliteOperator) -> list[str]:
        """The types of tensors that are no integers of a quantized network."""
        tensors = self.model.main.tensors
        ends = [
            tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0 and tensors[i].weight is None
        ]
        if any(0 in tensor.shape for tensor in ends):
            return ["tensors whose shape is not known before the run"]
        return [
            tensor.type_name for tensor in ends if tensor.type_name not in _TYPES or not tensor.is_quantized
        ]

    def graph(self, piece: Collection[int]) -> Graph:
        """The operators of a piece as a network, with the model's tensors as its ends."""
        inputs, outputs = ends_of(self.model, piece)
        ends = {*inputs, *outputs}
        tensors = tuple(
            replace(tensor, name=f"#{tensor.index} {tensor.name}") if tensor.index in ends else tensor
            for tensor in self.model.main.tensors
        )
        named = replace(
            self.model, main=replace(self.model.main, tensors=tensors), input_names={}, output_names={}
        )
        options = ImportOptions(
            inputs=tuple(tensors[i].name for i in inputs), outputs=tuple(tensors[i].name for i in outputs)
        )
        return expanded(bring_in_form(import_tflite(named, options), options))

    def _quantized(self, piece: Collection[int]) -> Quantized:
        return quantize_network(self.graph(piece), None, QuantizationConfig(scheme=SCHEME), self.target)

    def _compiled(self, piece: tuple[int, ...]) -> tuple[Quantized, Compilation] | str:
        """The program of a piece, or why there is none that runs on the NPU alone."""
        try:
            quantized = self._quantized(piece)
            compilation = compile_network(quantized.graph, self.target, name=f"piece{piece[0]}")
        except NpucError as error:
            return error.message
        if all(isinstance(part, NpuSubgraph) for part in compilation.model.subgraphs):
            return quantized, compilation
        return next(iter(compilation.partition.reasons.values()), "a part of it would run on the CPU")

    def _give_up(self, piece: tuple[int, ...], why: str) -> None:
        """Leave to LiteRT what keeps a piece from the NPU: the operators that fail alone, else moves, else all of it."""
        fresh = [index for index in piece if index not in self.tried]
        self.tried.update(fresh)
        refused = {index: words for index in fresh if (words := self._refusal(index)) is not None}
        if not refused:
            moves = self.moves.intersection(piece)
            refused = dict.fromkeys(moves or piece, (why, ""))
        self.reasons |= refused

    def _refusal(self, index: int) -> tuple[str, str] | None:
        """Reason and lever of an operator that the NPU cannot run; None if it can."""
        try:
            integers = self._quantized((index,)).graph
            parted = partition(integers, self.target, island_threshold=0)
        except NpucError as error:
            return error.message, ""
        if all(part.device == "npu" for part in parted.parts):
            return None
        if all(op.name.startswith("top.") for part in parted.parts for op in part.ops):
            # Without integers of its own, an operator that moves elements is judged with its neighbours.
            self.moves.add(index)
            return None
        name, reason = next(iter(parted.reasons.items()), ("", "a part of it would run on the CPU"))
        return reason, parted.levers.get(name, "")

    def left(self) -> list[ReportedNode]:
        """The operators that stay with LiteRT."""
        nodes = []
        for index, (reason, lever) in sorted(self.reasons.items()):
            operator = self.model.main.operators[index]
            nodes.append(
                ReportedNode(
                    f"{index} {operator.name}", operator.name, FRAMEWORK, self._macs(index), reason, lever
                )
            )
        return nodes

    def _macs(self, index: int) -> int:
        """The multiply-accumulates of an operator; 0 if it cannot be imported."""
        try:
            return sum(macs(op) for op in self.graph((index,)).ops)
        except NpucError:
            return 0


def pieces_of(operators: Sequence[TfliteOperator], left: Collection[int]) -> list[tuple[int, ...]]:
    """The operators that are not left to LiteRT, in pieces that run one after the other; each needs only what is before it."""
    makers = {tensor: index for index, operator in enumerate(operators) for tensor in operator.outputs}
    waiting = list(range(len(operators)))
    done: set[int] = set()
    pieces: list[tuple[int, ...]] = []
    idle, for_npu = 0, False
    # Phases of the NPU and of LiteRT take turns; two that take nothing leave operators that need what nobody makes.
    while waiting and idle < 2:
        for_npu = not for_npu
        taken = []
        for index in waiting:
            needed = {makers[tensor] for tensor in operators[index].inputs if tensor in makers}
            if (index not in left) == for_npu and needed <= done:
                taken.append(index)
                done.add(index)
        if for_npu and taken:
            pieces.append(tuple(taken))
        idle = 0 if taken else idle + 1
        waiting = [index for index in waiting if index not in done]
    return pieces


def ends_of(model: TfliteModel, piece: Collection[int]) -> tuple[list[int], list[int]]:
    """The tensors that a piece reads and that others read of it, in the order in which they occur."""
    main = model.main
    results = {tensor for index in piece for tensor in main.operators[index].outputs}
    read_outside = {
        tensor
        for index, operator in enumerate(main.operators)
        if index not in piece
        for tensor in operator.inputs
    }
    read_outside.update(main.outputs)
    inputs = [
        tensor
        for index in sorted(piece)
        for tensor in main.operators[index].inputs
        if tensor >= 0 and tensor not in results and main.tensors[tensor].weight is None
    ]
    outputs = [
        tensor
        for index in sorted(piece)
        for tensor in main.operators[index].outputs
        if tensor in read_outside
    ]
    return list(dict.fromkeys(inputs)), list(dict.fromkeys(outputs))


def plan_pieces(path: Path | str, target: Target, runtime_tensors: Path | None = None) -> Pieces:
    """The pieces of a `.tflite` file for a target; `runtime_tensors` is the delegate's list of what the interpreter has."""
    model = read(path)
    if runtime_tensors is not None:
        model = with_runtime_shapes(model, read_runtime_tensors(runtime_tensors), Path(path))
    planner = _Planner(model, target)
    compiled = planner.run()
    models: Mapping[str, CompiledModel] = {
        f"piece{number}": compilation.model for number, (_, _, compilation) in enumerate(compiled)
    }
    reports = [report_of("LiteRT", quantized.source, done, target) for _, quantized, done in compiled]
    nodes = tuple(node for report in reports for node in report.nodes) + tuple(planner.left())
    return Pieces(
        combine(models).entries if len(models) > 1 else dict(models),
        {f"piece{number}": piece for number, (piece, _, _) in enumerate(compiled)},
        IntegrationReport("LiteRT", target.name, nodes, len(compiled)),
    )


def require_pieces(pieces: Pieces, path: Path | str) -> None:
    """`CompileError` if the NPU takes nothing of the model."""
    if not pieces.entries:
        raise CompileError(
            f"no operator of {path} runs on {pieces.report.target} with LiteRT's bits",
            fix=f"It says why: {pieces.report.rest[0].reason}" if pieces.report.rest else None,
        )
