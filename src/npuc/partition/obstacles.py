"""Why an op is not on the NPU, as data: which rule says so, what the op has, what is allowed; and the words for each rule.

An `Obstacle` is what every question about a device is answered with (`npuc.partition.fit`, `npuc.partition.partition`, a layer
that finds no room while it is scheduled). Its `reason` and its `lever`, what would change the answer, are made here and nowhere
else: reports, errors and compiled files print them, and `to_dict` is for tools.

    >>> wide = Obstacle.of(ObstacleRule.MULTIPLIER_BITS, target="edge-4t", bits=31, allowed=15)
    >>> wide.reason
    'its multipliers have 31 bits, and those of edge-4t 15'
    >>> wide.to_dict()
    {'rule': 'multiplier_bits', 'target': 'edge-4t', 'bits': 31, 'allowed': 15}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

_QUANTIZE_FOR = "Quantize the float network for this machine: npuc quantize --target {target}"

_KNOWN_OPERATORS = (
    "Use a form that npuc has in its place, or teach npuc {operator} by a plugin (docs/plugins.md)"
)


class ObstacleRule(Enum):
    """What can stand against an op: its key, the reason, and the lever where one is known; both name facts in braces."""

    # The op has no integers.
    ONNX_OPERATOR = "onnx_operator", "npuc has no form of the ONNX operator {operator}", _KNOWN_OPERATORS
    KEPT_ONNX = "kept_onnx", "{noted}", _KNOWN_OPERATORS
    """The importer noted why the operator has no other form."""
    POSTPROCESSING = (
        "postprocessing",
        "{noted}",
        "To leave it to your own program, compile without --add-postprocess",
    )
    FLOAT_TYPE = (
        "float_type",
        "it computes with {dtype}, and {target} does not",
        "Quantize to the types of the target: leave --scheme out",
    )
    NOT_FLOAT32 = "not_float32", "it computes with {dtype}, and only float32 is quantized"
    STAYED_FLOAT = "stayed_float", "it stayed float: {noted}"
    REAL_NUMBERS = (
        "real_numbers",
        "it computes with real numbers",
        "'npuc quantize' says why it stayed float",
    )

    # The machine computes with other numbers.
    ACTIVATION_TYPE = "activation_type", "{target} has no activations of type {dtype}", _QUANTIZE_FOR
    ZERO_POINT = (
        "zero_point",
        "activations of type {dtype} have no zero point on {target}",
        _QUANTIZE_FOR,
    )
    POWER_OF_TWO = (
        "power_of_two",
        "scales are powers of two on {target}, and one is {scale:.6g}",
        _QUANTIZE_FOR,
    )
    WEIGHT_TYPE = "weight_type", "{target} has no weights of type {dtype}", _QUANTIZE_FOR
    PRODUCT = "product", "the array of {target} does not multiply {activation} by {weight}", _QUANTIZE_FOR
    GRANULARITY = "granularity", "weights have per-tensor scales on {target}", _QUANTIZE_FOR
    REQUANTIZATION = (
        "requantization",
        "it requantizes by {kind}, and {target} by {allowed}",
        _QUANTIZE_FOR,
    )
    MULTIPLIER_BITS = (
        "multiplier_bits",
        "its multipliers have {bits} bits, and those of {target} {allowed}",
        _QUANTIZE_FOR,
    )
    TABLE_ENTRIES = (
        "table_entries",
        "its table has {entries} entries, and one of {target} {allowed}",
        "Change the field arithmetic.tables of the target, if the machine has more",
    )

    # A limit of the target; `words` are the target's own.
    LIMIT = (
        "limit",
        "{words}",
        "Change the layer so that {require} holds, or change the field {field} of the target",
    )
    FUSED = "fused", "{words}", "Train with {allowed} there instead"
    FUNCTION = "function", "{words}", "Train with {instead} instead, which runs here"
    FIELD = "field", "{words}", "Change the field {field} of the target, if the machine has it after all"
    OP_KIND = "op_kind", "{target} has no '{kind}'"

    # The instruction set has no such form; `words` are those of the scheduling rule.
    INSTRUCTION_FORM = "instruction_form", "{words}"
    OPEN_SHAPES = "open_shapes", "its shapes are known at run time only"
    NO_OPERANDS = "no_operands", "it takes nothing from the network"

    # It could run on the NPU, and does not.
    LOCAL_MEMORY = (
        "local_memory",
        "it needs {needed:,} bytes of local memory however it is cut, and {target} has {allowed:,}",
    )
    MEMORY_LIMIT = (
        "memory_limit",
        "it needs {needed:,} bytes of local memory however it is cut, and {allowed:,} of the {whole:,} of {target} may be used",
    )
    SMALL_SUBGRAPH = (
        "small_subgraph",
        "the NPU would save about {saved:.1f} us, and moving the data costs about {moving:.1f} us",
    )
    FEW_OPS = (
        "few_ops",
        "the NPU could run {ops} ops at a stretch there, and subgraphs have {least} at the least",
        "Ask for smaller subgraphs: --min-ops {ops}",
    )
    OUTPUT_COPY = "output_copy", "it is a copy for an output of its own"
    ACCELERATOR = "accelerator", "the accelerator '{accelerator}' takes it"
    AS_ASKED = "as_asked", "as asked"

    def __init__(self, key: str, reason: str, lever: str = "") -> None:
        self.key = key
        self.reason = reason
        self.lever = lever


@dataclass(frozen=True)
class Obstacle:
    """What stands against an op on the NPU."""

    rule: ObstacleRule
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the rule's words name: numbers and names."""

    @staticmethod
    def of(rule: ObstacleRule, **facts: Any) -> Obstacle:
        """An obstacle by its rule and the facts that the rule's words name."""
        return Obstacle(rule, facts)

    @property
    def reason(self) -> str:
        """A sentence without a full stop that continues 'it is not on the NPU:'."""
        return self.rule.reason.format(**self.facts)

    @property
    def lever(self) -> str:
        """What would change the answer; empty where nothing is known."""
        return self.rule.lever.format(**self.facts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for tools."""
        return {"rule": self.rule.key, **self.facts}
