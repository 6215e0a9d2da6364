"""Schemes that tests of random networks draw from: together every element type and every width that programs may have.

`drawn_scheme(seed)` is the integer scheme of a network; `FLOATS` and `BLOCKS` are the types of the other tests, and
`with_types` gives a machine those that it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from npuc.arithmetic.kinds import Scales
from npuc.quant import SCHEMES
from npuc.quant.scheme import Scheme
from npuc.target import Target

INTEGER = sorted(name for name, scheme in SCHEMES.items() if scheme.needs_ranges)
FLOATS = ("bf16", "f16", "f32")
BLOCKS = ("mx6", "mx9")


def drawn_scheme(seed: int, random: np.random.Generator) -> Scheme:
    """One of the named schemes; for every fourth seed, with widths of its own."""
    scheme = SCHEMES[INTEGER[random.integers(len(INTEGER))]]
    return of_odd_widths(scheme, seed) if seed % 4 == 1 else scheme


def of_odd_widths(scheme: Scheme, seed: int) -> Scheme:
    """The scheme with weights of 2 to 16 bits and, where they have no zero point, activations of 9 to 15."""
    random = np.random.default_rng((seed, 1))
    if scheme.weight != "ui8":
        scheme = replace(scheme, weight=f"i{random.integers(2, 17)}")
    if scheme.activation != "ui8" and scheme.activation_scales is not Scales.AFFINE:
        scheme = replace(scheme, activation=f"i{random.integers(9, 16)}")
    return replace(
        scheme, bias_bits=int(random.integers(16, 33)), wide_bias_bits=int(random.integers(16, 49))
    )


def with_types(target: Target, rates: Mapping[str, str]) -> Target:
    """The same machine with floating-point types, each with its rate."""
    data = target.to_dict()
    for name, rate in rates.items():
        data["arithmetic"]["activations"]["formats"][name] = ["float"]
        data["arithmetic"]["weights"]["formats"][name] = ["float"]
        data["compute"]["array"]["rates"][name] = {name: rate}
    return Target.from_dict(data)
