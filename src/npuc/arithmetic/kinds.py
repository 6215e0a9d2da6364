"""Requantization kinds, roundings and kinds of scale: each stated once, and nowhere else.

A kind is one member of `Kind` with everything that the rest of npuc asks about it: its code in instructions, the parameters
that it has, how it rounds, its formula on integers, its older name. The tables of the instruction set, of the kernels, of the
IR, of targets and of schemes, the C header native/include/npuc/kinds.h and the table in docs/arithmetic.md come from here.

    >>> Kind("single_rounding").parameters, Kind("single") is Kind.SINGLE_ROUNDING
    (('multiplier', 'shift'), True)

To add one, add a member and its formula here and a case to native/src/requant.h; CONTRIBUTING.md has the whole way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from npuc.arrays import Array

MAX_SHIFT = 62
"""The largest shift of the native kernels; a target may have a smaller one."""
MIN_SHIFT = -31
"""The least shift, to the left, of a kind that has shifts alone; a target may have none below 0."""


class _Named(StrEnum):
    """A name that shows as plain text and has facts; older spellings are understood where it is read."""

    spelling: str
    """How files of earlier versions spell it: what fingerprints are made of and what is written to `.mlir` files."""

    def __new__(cls, name: str, facts: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """A member with its facts as attributes."""
        member = str.__new__(cls, name)
        member._value_ = name
        vars(member).update({"spelling": name, **facts})
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return next((member for member in cls if member.spelling == value), None)

    def __repr__(self) -> str:
        return repr(self.value)


class Rounding(_Named):
    """How a number between two integers becomes one of them."""

    code: int
    """Its code in instructions, `npuc_rounding`; -1 for what only constants are rounded by."""
    doc: str

    HALF_AWAY = "half_away", {"code": 0, "doc": "to the nearest, ties away from zero"}
    HALF_EVEN = "half_even", {"code": 1, "doc": "to the nearest, ties to the even one"}
    HALF_UP = "half_up", {"code": 2, "doc": "to the nearest, ties towards +infinity"}
    FLOOR = "floor", {"code": -1, "doc": "down"}
    HALF_DOWN = "half_down", {"code": -1, "doc": "to the nearest, ties towards -infinity"}
    HALF_ZERO = "half_zero", {"code": -1, "doc": "to the nearest, ties towards zero"}
    CEIL = "ceil", {"code": -1, "doc": "up"}
    TRUNCATE = "truncate", {"code": -1, "doc": "towards zero"}


class Scales(_Named):
    """What the scale and the zero point of a quantized tensor may be."""

    SYMMETRIC = "symmetric"
    AFFINE = "affine"
    POWER_OF_TWO = "power_of_two", {"spelling": "pow2"}


class Kind(_Named):
    """A requantization kind: how an exact accumulator becomes an output."""

    code: int
    """Its code in instructions and in the native core, `npuc_requant_kind`."""
    parameters: tuple[str, ...]
    """What it is described by, in the order in which an op states them: of multiplier, shift and scale."""
    rounding: Rounding
    """How its last step rounds."""
    shift_rounding: Rounding
    """How ops that shift without an output stage (bilinear resize) round under it."""
    multiplier_bits: int | None
    """Bits of its multiplier, 0 where it has none; None where the target decides."""
    formula: Callable[[int, int, int, Any], int]
    """rq(acc) of one accumulator for its multiplier, shift and scale, in Python's integers, which have no end."""
    text: str
    """The formula, as docs/arithmetic.md has it."""
    doc: str

    DOUBLE_ROUNDING = (
        "double_rounding",
        {
            "spelling": "double",
            "code": 0,
            "parameters": ("multiplier", "shift"),
            "rounding": Rounding.HALF_AWAY,
            "shift_rounding": Rounding.HALF_AWAY,
            "multiplier_bits": 31,
            "formula": lambda acc, multiplier, shift, scale: _twice(acc, multiplier, shift),
            "text": "`rdbp(srdhm(acc << max(e, 0), m), max(-e, 0))`, `e = 31 - shift`",
            "doc": "two roundings, as TFLite and gemmlowp have them",
        },
    )
    SINGLE_ROUNDING = (
        "single_rounding",
        {
            "spelling": "single",
            "code": 1,
            "parameters": ("multiplier", "shift"),
            "rounding": Rounding.HALF_UP,
            "shift_rounding": Rounding.HALF_UP,
            "multiplier_bits": None,
            "formula": lambda acc, multiplier, shift, scale: shifted(
                acc * multiplier, shift, Rounding.HALF_UP
            ),
            "text": "`half_up(acc * m, shift)`",
            "doc": "one rounding, ties up",
        },
    )
    SINGLE_EVEN = (
        "single_even",
        {
            "code": 2,
            "parameters": ("multiplier", "shift"),
            "rounding": Rounding.HALF_EVEN,
            "shift_rounding": Rounding.HALF_EVEN,
            "multiplier_bits": None,
            "formula": lambda acc, multiplier, shift, scale: shifted(
                acc * multiplier, shift, Rounding.HALF_EVEN
            ),
            "text": "`half_even(acc * m, shift)`",
            "doc": "one rounding, ties to even",
        },
    )
    POW2 = (
        "pow2",
        {
            "code": 3,
            "parameters": ("shift",),
            "rounding": Rounding.HALF_UP,
            "shift_rounding": Rounding.HALF_UP,
            "multiplier_bits": 0,
            "formula": lambda acc, multiplier, shift, scale: shifted(acc, shift, Rounding.HALF_UP),
            "text": "`half_up(acc, shift)`; a negative shift goes left",
            "doc": "a shift alone, for scales that are powers of two",
        },
    )
    FLOAT_SCALE = (
        "float_scale",
        {
            "spelling": "float",
            "code": 4,
            "parameters": ("scale",),
            "rounding": Rounding.HALF_EVEN,
            "shift_rounding": Rounding.HALF_UP,
            "multiplier_bits": 0,
            "formula": lambda acc, multiplier, shift, scale: _in_float(acc, scale),
            "text": "`float32(acc) * float32(M)` in IEEE single, clamped to int32, then rounded half to even",
            "doc": "a factor in float32, as ONNX Runtime has it",
        },
    )

    @property
    def has_multiplier(self) -> bool:
        """Whether it multiplies by integers."""
        return "multiplier" in self.parameters

    @property
    def has_shift(self) -> bool:
        """Whether it shifts."""
        return "shift" in self.parameters

    @property
    def has_scale(self) -> bool:
        """Whether it multiplies by a number in float32."""
        return "scale" in self.parameters

    @property
    def least_shift(self) -> int:
        """The least shift: to the left only where there is no multiplier that could have the bits."""
        return 0 if self.has_multiplier else MIN_SHIFT

    @property
    def row_rounding(self) -> Rounding:
        """How softmax and norms, which round halves up or to even, round under it."""
        even = self.shift_rounding is Rounding.HALF_EVEN
        return Rounding.HALF_EVEN if even else Rounding.HALF_UP

    def bits(self, of_target: int) -> int:
        """Bits of its multiplier on a target whose multipliers have so many."""
        return of_target if self.multiplier_bits is None else self.multiplier_bits

    def rescaled(self, acc: Any, multiplier: Any = 0, shift: Any = 0, scale: Any = 0.0) -> Array:
        """rq(acc) of arrays, exact and slow: what kernels and other forms of this kind are held to.

        >>> Kind.SINGLE_ROUNDING.rescaled([5, -5], 1 << 30, 31).tolist()
        [3, -2]
        """
        arrays = np.broadcast_arrays(acc, multiplier, shift, np.asarray(scale, np.float32))
        rows = zip(*(array.ravel().tolist() for array in arrays[:3]), arrays[3].ravel(), strict=True)
        rescaled = [self.formula(*row) for row in rows]
        return np.array(rescaled, np.int64).reshape(arrays[0].shape)


def shifted(x: int, shift: int, rounding: Rounding) -> int:
    """x / 2^shift under a rounding; a negative shift goes left.

    >>> [shifted(-3, 1, how) for how in Rounding]
    [-2, -2, -1, -2, -2, -1, -1, -1]
    """
    if shift <= 0:
        return x << -shift
    whole, rest, half = x >> shift, x & ((1 << shift) - 1), 1 << (shift - 1)
    directed = {Rounding.FLOOR: False, Rounding.CEIL: True, Rounding.TRUNCATE: x < 0}
    if rounding in directed:
        return whole + (rest > 0 and directed[rounding])
    ties = {
        Rounding.HALF_AWAY: x >= 0,
        Rounding.HALF_EVEN: whole & 1 == 1,
        Rounding.HALF_UP: True,
        Rounding.HALF_DOWN: False,
        Rounding.HALF_ZERO: x < 0,
    }
    return whole + (rest > half or (rest == half and ties[rounding]))


def _twice(acc: int, multiplier: int, shift: int) -> int:
    """TFLite's MultiplyByQuantizedMultiplier; the left shift wraps at 32 bits."""
    exponent = 31 - shift
    wrapped = (((acc << max(exponent, 0)) + (1 << 31)) & ((1 << 32) - 1)) - (1 << 31)
    product = wrapped * multiplier
    total = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    high = total >> 31 if total >= 0 else -(-total >> 31)
    return shifted(high, max(-exponent, 0), Rounding.HALF_AWAY)


def _in_float(acc: int, scale: Any) -> int:
    product = np.float32(acc) * np.float32(scale)
    return int(np.rint(np.clip(product, np.float32(-(2.0**31)), np.float32(2.0**31 - 128))))


ARITHMETIC_KEY = "npuc.arithmetic"
"""The metadata of a QDQ file of npuc's own that states the requantization kind of its integers."""


def stated_kind(text: str) -> tuple[Kind, int] | None:
    """The kind and the multiplier bits that a file states, "single_rounding/31"; None for any other text.

    >>> stated_kind("single_rounding/15"), stated_kind("tflite"), stated_kind("single_rounding/99")
    (('single_rounding', 15), None, None)
    """
    name, _, bits = text.partition("/")
    if name not in {str(kind) for kind in Kind} or bits not in ("7", "15", "31"):
        return None
    return Kind(name), int(bits)


def kind_named(name: str) -> Kind:
    """The kind of a name, an older one too; `ValueError` with those that there are.

    >>> kind_named("float")
    'float_scale'
    """
    try:
        return Kind(name)
    except ValueError:
        known = ", ".join(Kind)
        raise ValueError(f"there is no requantization kind {str(name)!r}; there are {known}") from None


KINDS = tuple(sorted(Kind, key=lambda kind: kind.code))
"""By their codes."""
ROUNDINGS = tuple(sorted((how for how in Rounding if how.code >= 0), key=lambda how: how.code))
"""Those of instructions, by their codes."""
