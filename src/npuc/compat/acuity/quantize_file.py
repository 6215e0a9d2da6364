"""X.quantize: range, scale and type of every tensor and weight, and the layers with a type of their own. It is read and edited.

    version: 3
    quantize_parameters:
      '@conv1_1:out0':
        qtype: u8
        quantizer: asymmetric_affine
        max_value: [2.70]
        min_value: [-2.88]
        scale: [0.0219]
        zero_point: [132]
    customized_quantize_layers: {conv2_3: float32, conv1_1: dynamic_fixed_point-i16}

The range counts: scale and zero point follow from it. Fixed point has the number of fraction bits, `fl`, in place of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuc.compat.acuity.input_meta import read_yaml
from npuc.compat.acuity.layers import lid_of
from npuc.errors import FileFormatError
from npuc.files import existing_file, write_atomically

QUANTIZERS = {
    "asymmetric_affine": "asymmetric_quantized",
    "dynamic_fixed_point": "dynamic_fixed_point",
    "perchannel_symmetric_affine": "perchannel_symmetric_quantized",
    "symmetric_affine": "symmetric_quantized",
    "qbfloat16": "qbfloat16",
    "float16": "float16",
    "float32": "float32",
}
"""The names of `quantizer`, and what older files say under `dtype`."""
_BITS = {"u8": 8, "i8": 8, "i16": 16, "i32": 32}
_SPELLINGS = {
    "8": "i8",
    "16": "i16",
    "int8": "i8",
    "int16": "i16",
    "uint8": "u8",
    "bfloat16": "bf16",
    "qbfloat16": "bf16",
    "float16": "f16",
}
_LISTS = ("max_value", "min_value", "scale", "zero_point", "fl")
FLOAT = "float32"
FLOATS = ("bf16", "f16")
"""Types of numbers that have no scales."""


@dataclass(frozen=True)
class NumberType:
    """A quantizer and a type of integers: `asymmetric_affine-u8`."""

    quantizer: str
    qtype: str = ""

    @staticmethod
    def parse(text: str) -> NumberType:
        """The value of a customized layer; `ValueError` if it is none.

        >>> NumberType.parse("dynamic_fixed_point-16")
        NumberType(quantizer='dynamic_fixed_point', qtype='i16')
        """
        plain = text.strip()
        if plain in ("float32", "float", "float16"):
            return NumberType(FLOAT)
        if plain in ("qbfloat16", "bfloat16"):
            return NumberType("qbfloat16", "bf16")
        quantizer, _, kind = plain.rpartition("-")
        known = NumberType(quantizer, _SPELLINGS.get(kind, kind))
        if known not in LEVELS:
            raise ValueError(f"'{text}' is none of {', '.join(str(entry) for entry in LEVELS)}")
        return known

    def __str__(self) -> str:
        return f"{self.quantizer}-{self.qtype}" if self.qtype and self.qtype not in FLOATS else self.quantizer


LEVELS: dict[NumberType, Any] = {
    NumberType("asymmetric_affine", "u8"): "uint8-weights",
    NumberType("asymmetric_affine", "i8"): {"per_channel": False},
    NumberType("dynamic_fixed_point", "i8"): "pow2",
    NumberType("dynamic_fixed_point", "i16"): "dfp16",
    NumberType("perchannel_symmetric_affine", "i8"): "int8-symmetric",
    NumberType("symmetric_affine", "i8"): {"activation_scales": "symmetric", "per_channel": False},
    NumberType("qbfloat16", "bf16"): "bf16",
    NumberType("float16", "f16"): "f16",
    NumberType(FLOAT): "float",
}
"""npuc's scheme of each type."""


@dataclass(frozen=True)
class QuantizedTensor:
    """One entry of the file."""

    kind: NumberType
    max_value: tuple[float, ...] = ()
    min_value: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the greatest value, with zero between; None if the entry has none."""
        if not self.max_value or not self.min_value:
            return None
        return min(0.0, *self.min_value), max(0.0, *self.max_value)


@dataclass(frozen=True)
class QuantizeFile:
    """The whole file."""

    tensors: Mapping[str, QuantizedTensor]
    """By the toolkit's names of tensors: `@conv1_1:out0`, `@conv1_1:weight`."""
    customized: Mapping[str, NumberType] = field(default_factory=dict)
    """The layers with a type of their own, by identifier."""
    tuned: str = ""
    """The network whose weights --MLE changed, beside X.data; empty for the imported one."""

    @property
    def base(self) -> NumberType:
        """The type that most results have."""
        counts = Counter(
            tensor.kind
            for name, tensor in self.tensors.items()
            if ":out" in name and lid_of(name) not in self.customized and tensor.kind.quantizer != FLOAT
        )
        return counts.most_common(1)[0][0] if counts else NumberType("asymmetric_affine", "u8")


def fraction_bits(scale: float) -> int:
    """The number of fraction bits of a power-of-two scale.

    >>> fraction_bits(0.0625)
    4
    """
    return round(-math.log2(scale))


def write_quantize_file(file: QuantizeFile, path: Path) -> None:
    """Write the file."""
    lines = ["# Written by npuc.", "version: 3"]
    if file.tuned:
        lines.append(f"npuc_network: {_quoted(file.tuned)}")
    lines.append("quantize_parameters:" if file.tensors else "quantize_parameters: {}")
    for name, tensor in file.tensors.items():
        lines.append(f"  {_quoted(name)}:")
        lines += [f"    {line}" for line in _tensor_lines(tensor)]
    entries = ", ".join(f"{_quoted(lid)}: {kind}" for lid, kind in file.customized.items())
    lines.append(f"customized_quantize_layers: {{{entries}}}")
    with write_atomically(path) as out:
        out.write(("\n".join(lines) + "\n").encode())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _tensor_lines(tensor: QuantizedTensor) -> list[str]:
    many = len(tensor.scale) > 1
    lines = [
        f"qtype: {tensor.kind.qtype or 'f32'}",
        f"quantizer: {tensor.kind.quantizer}",
        "rounding: rtne",
        f"dtype: {QUANTIZERS[tensor.kind.quantizer]}",
        f"method: {'channel' if many else 'layer'}",
    ]
    values: dict[str, Sequence[float]] = {"max_value": tensor.max_value, "min_value": tensor.min_value}
    if tensor.kind.quantizer == "dynamic_fixed_point" and tensor.kind.qtype != "i32":
        values["fl"] = [fraction_bits(scale) for scale in tensor.scale]
    else:
        values |= {"scale": tensor.scale, "zero_point": tensor.zero_point}
    for key, numbers in values.items():
        if numbers:
            lines += [f"{key}:", *(f"- {number!r}" for number in numbers)]
    return lines


def read_quantize_file(path: Path | str) -> QuantizeFile:
    """Read the file; `FileFormatError` names the entry."""
    file = existing_file(path)
    content = read_yaml(file, "a .quantize file")
    if not isinstance(content, Mapping) or not isinstance(content.get("quantize_parameters"), Mapping):
        raise FileFormatError(
            "has no quantize_parameters",
            where=str(file),
            fix="'pegasus quantize --rebuild' writes such a file",
        )
    tensors = {}
    for name, entry in content["quantize_parameters"].items():
        try:
            tensors[str(name)] = _tensor(entry)
        except ValueError as error:
            raise FileFormatError(f"'{name}': {error}", where=str(file)) from error
    tuned = content.get("npuc_network", "")
    if not isinstance(tuned, str) or Path(tuned).name != tuned:
        raise FileFormatError("npuc_network is no file beside the model", where=str(file))
    return QuantizeFile(tensors, _customized(content, file), tuned)


def _customized(content: Mapping[Any, Any], file: Path) -> dict[str, NumberType]:
    """The customized layers; lines below the key that are not indented count, too."""
    stated = content.get("customized_quantize_layers") or {}
    if not isinstance(stated, Mapping):
        raise FileFormatError(
            "customized_quantize_layers is no mapping", where=str(file), fix="Write {conv1_1: float32}"
        )
    known = ("version", "quantize_parameters", "customized_quantize_layers", "npuc_network")
    loose = {key: value for key, value in content.items() if key not in known and isinstance(value, str)}
    kinds = {}
    for lid, value in {**stated, **loose}.items():
        try:
            kinds[str(lid)] = NumberType.parse(str(value))
        except ValueError as error:
            raise FileFormatError(f"customized_quantize_layers: {lid}: {error}", where=str(file)) from error
    return kinds


def _tensor(entry: Any) -> QuantizedTensor:
    if not isinstance(entry, Mapping):
        raise ValueError("is no mapping")
    lists = {}
    for key in _LISTS:
        values = entry.get(key, [])
        values = values if isinstance(values, list) else [values]
        if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
            raise ValueError(f"{key} {values!r} has what is no number")
        lists[key] = values
    low, high = lists["min_value"], lists["max_value"]
    if len(low) != len(high) or any(a > b for a, b in zip(low, high, strict=False)):
        raise ValueError("min_value is above max_value, or one of them is missing")
    scale = [2.0**-bits for bits in lists["fl"]] if lists["fl"] else lists["scale"]
    return QuantizedTensor(
        _kind(entry),
        tuple(map(float, high)),
        tuple(map(float, low)),
        tuple(map(float, scale)),
        tuple(int(value) for value in lists["zero_point"]),
    )


def _kind(entry: Mapping[str, Any]) -> NumberType:
    by_dtype = {dtype: name for name, dtype in QUANTIZERS.items()}
    quantizer = str(entry.get("quantizer") or by_dtype.get(str(entry.get("dtype")), entry.get("dtype", "")))
    kind = _SPELLINGS.get(str(entry.get("qtype", "")), str(entry.get("qtype", "")))
    if quantizer not in QUANTIZERS:
        raise ValueError(f"there is no quantizer '{quantizer}'")
    if quantizer == FLOAT:
        return NumberType(FLOAT)
    if kind not in (*_BITS, *FLOATS):
        raise ValueError(f"there is no qtype '{kind}'")
    return NumberType(quantizer, kind)
