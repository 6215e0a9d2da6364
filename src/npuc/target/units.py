"""Quantities with units as fields of a target: read in any spelling, written in one (`npuc.arithmetic.units`)."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, InstanceOf, PlainSerializer

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.arithmetic.units import (
    Bandwidth,
    Latency,
    parse_bandwidth,
    parse_bytes,
    parse_frequency,
    parse_latency,
    parse_rate,
    print_bytes,
    print_frequency,
    print_rate,
)


def _text(value: Any) -> str:
    return str(value)


Bytes = Annotated[int, BeforeValidator(parse_bytes), PlainSerializer(print_bytes)]
Frequency = Annotated[int, BeforeValidator(parse_frequency), PlainSerializer(print_frequency)]
BandwidthField = Annotated[InstanceOf[Bandwidth], BeforeValidator(parse_bandwidth), PlainSerializer(_text)]
LatencyField = Annotated[InstanceOf[Latency], BeforeValidator(parse_latency), PlainSerializer(_text)]
Pattern = Annotated[
    InstanceOf[SparsityPattern], BeforeValidator(SparsityPattern.parse), PlainSerializer(_text)
]
Rate = Annotated[InstanceOf[Fraction], BeforeValidator(parse_rate), PlainSerializer(print_rate)]
