"""How a compiled network is called: the arguments and results of the original, kept in the metadata of the compiled model.

A `.npu` file has inputs and outputs by name. The signature says which arguments they are, in which structure results are
returned, and with which types and shapes; any framework that has such tensors can use it. It is read from a file, so nothing in
it is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any

from npuc.arrays import Array
from npuc.errors import FileFormatError, InputDataError, UsageError
from npuc.integrations.conversion import Conversion
from npuc.integrations.report import IntegrationReport
from npuc.integrations.structure import Form, rebuilt
from npuc.program.model import CompiledModel
from npuc.runtime import Runner

_KEY, _REPORT = "call_signature", "integration_report"
"""Where the metadata of a compiled model has them."""
_TYPES = frozenset(
    [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ]
)


@dataclass(frozen=True)
class CallSignature:
    """What a network takes and gives."""

    arguments: Form
    """The form of (args, kwargs)."""
    results: Form
    inputs: tuple[str, ...]
    """For each tensor of the arguments, the input of the program."""
    outputs: tuple[str, ...]
    """For each tensor of the results, the output of the program."""
    shapes: tuple[tuple[int, ...], ...]
    """Of the results."""
    dtypes: tuple[str, ...]
    rows_vary: bool
    """Whether a batch may have any number of rows."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "shapes": [list(shape) for shape in self.shapes]}

    @cached_property
    def positional_tensors(self) -> int:
        """How many arguments there are if all are tensors that are given by position; else -1."""
        return len(self.inputs) if self.arguments == _positional(len(self.inputs)) else -1

    @staticmethod
    def from_json(values: Any) -> CallSignature:
        """The signature that a file has."""
        try:
            return CallSignature(
                dict(values["arguments"]),
                dict(values["results"]),
                tuple(map(str, values["inputs"])),
                tuple(map(str, values["outputs"])),
                tuple(tuple(int(size) for size in shape) for shape in values["shapes"]),
                tuple(map(str, values["dtypes"])),
                bool(values["rows_vary"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError("the signature of the module is damaged") from error

    def rows(self, runner: Runner, arrays: dict[str, Array]) -> int | None:
        """The rows of a batch of any size, None if the batch is fixed; shapes that do not fit are refused.

        A runner takes any number of rows where inputs and outputs agree in their first axis. Only the signature knows whether
        rows are independent of each other.
        """
        for info in runner.input_tensors:
            array = arrays[info.name]
            if self.rows_vary and array.ndim and array.shape[1:] == info.shape[1:]:
                continue
            if array.ndim == 0 and info.shape in ((), (1,)):
                arrays[info.name] = array.reshape(info.shape)
            elif array.shape != info.shape:
                rest = " or any other number of rows" if self.rows_vary else ""
                raise InputDataError(
                    f"input '{info.name}' takes shape {list(info.shape)}{rest}, and was given {list(array.shape)}"
                )
        return len(next(iter(arrays.values()))) if self.rows_vary else None

    def check(self, runner: Runner) -> None:
        """Refuse a signature that does not fit its program."""
        inputs = {info.name for info in runner.input_tensors}
        outputs = {info.name: info.shape for info in runner.output_tensors}
        fits = (
            inputs == set(self.inputs)
            and len(self.outputs) == len(self.shapes) == len(self.dtypes)
            and all(
                name in outputs and dtype in _TYPES and prod(shape) == prod(outputs[name])
                for name, shape, dtype in zip(self.outputs, self.shapes, self.dtypes, strict=True)
            )
        )
        if not fits:
            raise FileFormatError("the signature of the module does not fit its program")
        rebuilt(self.results, self.outputs)
        arguments = rebuilt(self.arguments, self.inputs)
        if not (isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[1], dict)):
            raise FileFormatError("the signature of the module is damaged")


def with_signature(conversion: Conversion, signature: CallSignature) -> CompiledModel:
    """The compiled model of a conversion, with its signature and its report in it."""
    metadata = {
        **conversion.model.metadata,
        **described_as(signature),
        _REPORT: conversion.report.as_json(),
    }
    return replace(conversion.model, metadata=metadata)


def described_as(signature: CallSignature) -> dict[str, Any]:
    """The metadata of a compiled model that is called so."""
    return {_KEY: signature.as_json()}


def signature_of(runner: Runner) -> CallSignature:
    """The signature that a compiled model has; without one, inputs in order and a tuple of outputs."""
    values = runner.model.metadata.get(_KEY)
    signature = _plain(runner) if values is None else CallSignature.from_json(values)
    signature.check(runner)
    return signature


def saved_report(model: CompiledModel) -> IntegrationReport:
    """The report that a compiled model has."""
    if _REPORT not in model.metadata:
        raise UsageError("the program has no report", fix="Compile the network with an integration of npuc")
    return IntegrationReport.from_json(model.metadata[_REPORT])


def _positional(count: int) -> Form:
    """The form of arguments that are tensors, given by position."""
    return {"tuple": [{"tuple": [{"tensor": number} for number in range(count)]}, {"dict": []}]}


def _plain(runner: Runner) -> CallSignature:
    inputs, outputs = runner.input_tensors, runner.output_tensors
    return CallSignature(
        _positional(len(inputs)),
        {"tuple": [{"tensor": number} for number in range(len(outputs))]},
        tuple(info.name for info in inputs),
        tuple(info.name for info in outputs),
        tuple(info.shape for info in outputs),
        tuple(info.dtype.name for info in outputs),
        False,
    )
