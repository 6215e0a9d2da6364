"""Whether the fields of a target go together: what no single field can know about the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS, SHORT
from npuc.arithmetic.kinds import Kind, Scales
from npuc.target.base import FLOATS, RANGES
from npuc.target.expressions import FUNCTIONS, Expression
from npuc.target.problems import Path, Problem
from npuc.target.vocabulary import MACHINE, OP_KINDS, nearest

if TYPE_CHECKING:
    from npuc.target.model import Target


def contradictions(target: Target) -> list[Problem]:
    """Every pair of fields that contradict each other."""
    return [
        Problem(path, message)
        for check in (
            _formats,
            _rates,
            _sparsity,
            _memory,
            _requantization,
            _widths,
            _fixed_outputs,
            _limits,
            _rewrites,
        )
        for path, message in check(target)
    ]


Contradictions = Iterator[tuple[Path, str]]


def _formats(target: Target) -> Contradictions:
    for name in ("activations", "weights"):
        formats = getattr(target.arithmetic, name).formats
        path = ("arithmetic", name, "formats")
        if not formats:
            yield path, "no element type is left"
        for element, schemes in formats.items():
            if (element in FLOATS) != (schemes == ("float",)):
                what = "float" if element in FLOATS else "symmetric, affine or power_of_two"
                yield (*path, element), f"the scales of {element} are {what}, not {', '.join(schemes)}"
            if element == "u8" and "affine" not in schemes and name == "weights":
                yield (*path, element), "weights of type u8 are affine: without a zero point none is negative"
    for element in target.arithmetic.activations.formats:
        if element not in FLOATS and SHORT[element].name not in ACTIVATION_INTEGERS:
            yield ("arithmetic", "activations", "formats", element), f"{element} is a type of weights only"


def _rates(target: Target) -> Contradictions:
    rates = target.compute.array.rates
    activations, weights = target.arithmetic.activations.formats, target.arithmetic.weights.formats
    path = ("compute", "array", "rates")
    for activation in activations:
        if not any(weight in weights for weight in rates.get(activation, {})):
            yield (
                (*path, activation),
                f"activations may be {activation}, but no rate with any weight type is stated",
            )
    for weight in weights:
        if not any(weight in rates.get(activation, {}) for activation in activations):
            yield path, f"weights may be {weight}, but no rate with any activation type is stated"


def _sparsity(target: Target) -> Contradictions:
    scales = {scale for kinds in target.arithmetic.weights.formats.values() for scale in kinds}
    if target.compute.sparsity is not None and not scales & {Scales.SYMMETRIC, Scales.POWER_OF_TWO}:
        yield (
            ("compute", "sparsity"),
            "zeros are skipped among symmetric integer weights, whose zero is the integer 0, and there are none",
        )


def _memory(target: Target) -> Contradictions:
    memory, local = target.memory, target.memory.local
    if local.size % (local.banks * local.alignment):
        yield (
            ("memory", "local", "size"),
            f"{local.size} bytes do not divide into {local.banks} banks of a multiple of {local.alignment} bytes",
        )
    if memory.weight_contexts is not None and memory.weight_decoder is None:
        yield (
            ("memory", "weight_contexts"),
            "contexts are tables of a weight decoder, and weight_decoder states none",
        )


def _requantization(target: Target) -> Contradictions:
    arithmetic, how = target.arithmetic, target.arithmetic.requantization
    for name in how.kinds:
        kind = Kind(name)
        if kind.multiplier_bits not in (None, 0, how.multiplier_bits):
            yield (
                ("arithmetic", "requantization", "multiplier_bits"),
                f"the kind '{kind}' has multipliers of {kind.multiplier_bits} bits, not {how.multiplier_bits}",
            )
    if how.kinds == (Kind.POW2,):
        for name in ("activations", "weights"):
            for element, schemes in getattr(arithmetic, name).formats.items():
                if element not in FLOATS and schemes != (Scales.POWER_OF_TWO,):
                    yield (
                        ("arithmetic", name, "formats", element),
                        f"the only requantization is '{Kind.POW2}', so the scales can only be {Scales.POWER_OF_TWO}",
                    )


def _widths(target: Target) -> Contradictions:
    bias, accumulator = target.arithmetic.bias, target.arithmetic.accumulator
    if accumulator.wide_bits is not None and accumulator.wide_bits <= accumulator.bits:
        yield ("arithmetic", "accumulator", "wide_bits"), f"is not wider than {accumulator.bits} bits"
    if bias.bits > accumulator.bits:
        yield (
            ("arithmetic", "bias", "bits"),
            f"{bias.bits} bits are more than the accumulator's {accumulator.bits}",
        )
    if bias.wide_bits is not None and bias.wide_bits > (accumulator.wide_bits or accumulator.bits):
        yield (
            ("arithmetic", "bias", "wide_bits"),
            f"{bias.wide_bits} bits are more than the widest accumulator's",
        )
    if bias.significant_bits is not None and bias.significant_bits > bias.bits:
        yield ("arithmetic", "bias", "significant_bits"), f"is more than the {bias.bits} bits that there are"


def _fixed_outputs(target: Target) -> Contradictions:
    formats = target.arithmetic.activations.formats
    for op, outputs in target.arithmetic.fixed_outputs.items():
        for element, output in outputs.items():
            path = ("arithmetic", "fixed_outputs", op, element)
            if element not in formats:
                yield path, f"activations are never {element}"
                continue
            low, high = RANGES[element]
            if not low <= output.zero_point <= high:
                yield (
                    (*path, "zero_point"),
                    f"{output.zero_point} is not in the range {low} to {high} of {element}",
                )
            if output.zero_point and "affine" not in formats[element]:
                yield (
                    (*path, "zero_point"),
                    f"is {output.zero_point}, but {element} has no affine scales here",
                )
            if output.scale <= 0:
                yield (*path, "scale"), "is not above zero"


def _limits(target: Target) -> Contradictions:
    limits = target.limits
    for name in limits.constants:
        taken = "a function" if name in FUNCTIONS else "a figure of the machine" if name in MACHINE else ""
        if not taken and any(name in OP_KINDS[op] for op in limits.rules):
            taken = "a parameter of an op that has rules"
        if taken:
            yield ("limits", "constants", name), f"'{name}' is already {taken}"
    for op, rules in limits.rules.items():
        for name, rule in rules.items():
            path = ("limits", "rules", op, name, "require")
            if rule.require.kind != "truth":
                yield path, f"'{rule.require}' is a number, not a condition"
            for unknown in _unknown(rule.require, op, target):
                yield path, unknown
    if limits.ops != "all":
        for op in limits.unsupported:
            if op in limits.ops:
                yield ("limits", "unsupported", op), f"'{op}' is also in limits.ops"


def _rewrites(target: Target) -> Contradictions:
    for op, rewrite in target.limits.rewrites.items():
        path = ("limits", "rewrites", op)
        if rewrite.to in target.limits.rewrites:
            yield (*path, "to"), f"'{rewrite.to}' is itself rewritten"
        for name, expression in rewrite.parameters.items():
            if name not in OP_KINDS[rewrite.to]:
                known = OP_KINDS[rewrite.to]
                yield (
                    (*path, "parameters", name),
                    f"'{rewrite.to}' has no such parameter{nearest(name, known)}",
                )
            if expression.kind != "number":
                yield (*path, "parameters", name), f"'{expression}' is true or false, not a number"
            for unknown in _unknown(expression, op, target):
                yield (*path, "parameters", name), unknown


def _unknown(expression: Expression, op: str, target: Target) -> Iterator[str]:
    known = {**OP_KINDS[op], **target.limits.constants, **MACHINE}
    for name in sorted(expression.names):
        if name not in known:
            yield f"'{name}' is neither a parameter of {op} nor a constant{nearest(name, known)}"
