"""Formulas: a pattern is written as the arithmetic that it stands for.

    x = Variable("x")
    GELU = 0.5 * x * (1 + erf(x / sqrt(2)))

A formula is kept multiplied out, as a sum of products of powers, and so is the arithmetic of a graph when the two are
compared (`matching`). So one formula covers every order of operands, every place that a constant may be put in,
division or multiplication by the reciprocal, `sqrt` and `div` or `rsqrt` and `mul`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Monomial = frozenset[tuple[Hashable, float]]
"""A product of powers: atoms with their exponents."""

ONE: Monomial = frozenset()


@dataclass(frozen=True, eq=False)
class Parameter:
    """A number (or axes, or another property) that a match finds out."""

    name: str

    def __add__(self, other: Operand) -> Sum:
        return as_sum(self) + other

    def __mul__(self, other: Operand) -> Sum:
        return as_sum(self) * other

    def __neg__(self) -> Sum:
        raise TypeError("negate what a parameter was found to be, not the parameter")

    __radd__ = __add__
    __rmul__ = __mul__


Number = float | Parameter


def _times(a: Number, b: Number) -> Number:
    if isinstance(a, Parameter):
        a, b = b, a
    if isinstance(b, Parameter):
        if a != 1:
            raise TypeError(f"parameter '{b.name}' stands for a whole coefficient and cannot be multiplied")
        return b
    assert not isinstance(a, Parameter)
    return a * b


@dataclass(frozen=True)
class Sum:
    """A sum of products: each monomial with its coefficient."""

    terms: dict[Monomial, Number]

    def __add__(self, other: Operand) -> Sum:
        terms = dict(self.terms)
        for monomial, number in as_sum(other).terms.items():
            old = terms.get(monomial, 0.0)
            if monomial in terms and (isinstance(old, Parameter) or isinstance(number, Parameter)):
                raise TypeError("a parameter stands for a whole coefficient and cannot be added to another")
            terms[monomial] = number if monomial not in terms else float(old) + float(number)  # type: ignore[arg-type]
        if len(terms) > 1 and terms.get(ONE) == 0:
            del terms[ONE]
        return Sum(terms)

    def __mul__(self, other: Operand) -> Sum:
        product = Sum({})
        for a, m in self.terms.items():
            for b, n in as_sum(other).terms.items():
                product = product + Sum({_join(a, b): _times(m, n)})
        return product

    def __pow__(self, exponent: float) -> Sum:
        """The power, where it is a product again; a sum of several terms is raised as a `FormulaGroup`."""
        raised = self.power(exponent)
        return (
            raised if raised is not None else Sum({frozenset({(FormulaGroup(self), float(exponent))}): 1.0})
        )

    def power(self, exponent: float) -> Sum | None:
        """The power as a product of powers; None if it is not one that is true for every sign of the factors."""
        if len(self.terms) != 1:
            return None
        ((monomial, number),) = self.terms.items()
        if isinstance(number, Parameter):
            return None
        whole = float(exponent).is_integer()
        if number == 0 or (number < 0 and not whole):
            return None
        if not whole and any(power % 2 == 0 for _, power in monomial):
            return None  # sqrt(x^2) is |x|
        return Sum({frozenset((atom, power * exponent) for atom, power in monomial): number**exponent})

    def __neg__(self) -> Sum:
        return self * -1.0

    def __sub__(self, other: Operand) -> Sum:
        return self + as_sum(other) * -1.0

    def __rsub__(self, other: Operand) -> Sum:
        return as_sum(other) - self

    def __truediv__(self, other: Operand) -> Sum:
        return self * as_sum(other) ** -1.0

    def __rtruediv__(self, other: Operand) -> Sum:
        return as_sum(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    @cached_property
    def atoms(self) -> tuple[Hashable, ...]:
        """What it is made of, each once; functions before variables, because they say more about a graph."""
        atoms = dict.fromkeys(atom for monomial in self.terms for atom, _ in monomial)
        return tuple(sorted(atoms, key=lambda atom: isinstance(atom, Variable)))

    @cached_property
    def profile(self) -> Counter[tuple[float, ...]]:
        """The exponents of its monomials: sums with different profiles cannot be the same formula."""
        return Counter(tuple(sorted(power for _, power in monomial)) for monomial in self.terms)

    def use_of(self, atom: Hashable) -> list[tuple[float, ...]]:
        """The monomials that an atom is in, as its own exponent and then the others'."""
        uses = []
        for monomial in self.terms:
            powers = dict(monomial)
            if atom in powers:
                uses.append((powers.pop(atom), *sorted(powers.values())))
        return sorted(uses)

    @cached_property
    def bare(self) -> Hashable | None:
        """The atom, if the formula is that and nothing else."""
        if len(self.terms) == 1:
            ((monomial, number),) = self.terms.items()
            if number == 1 and len(monomial) == 1:
                ((atom, power),) = monomial
                return atom if power == 1 else None
        return None

    @cached_property
    def is_affine(self) -> bool:
        """True for a * atom + b: then no product or sum of two unknown values needs to be looked into."""
        unknown = [monomial for monomial in self.terms if monomial]
        return len(unknown) <= 1 and all(
            len(monomial) == 1 and power <= 1 for monomial in unknown for _, power in monomial
        )


def _join(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0.0) + power
    return frozenset((atom, power) for atom, power in powers.items() if power != 0)


class _Atom:
    """What formulas are made of; arithmetic on it makes a `Sum`."""

    def sum(self) -> Sum:
        """The formula that is this atom alone."""
        return Sum({frozenset({(self, 1.0)}): 1.0})

    def __add__(self, other: Operand) -> Sum:
        return self.sum() + other

    def __sub__(self, other: Operand) -> Sum:
        return self.sum() - other

    def __rsub__(self, other: Operand) -> Sum:
        return as_sum(other) - self.sum()

    def __mul__(self, other: Operand) -> Sum:
        return self.sum() * other

    def __truediv__(self, other: Operand) -> Sum:
        return self.sum() / other

    def __rtruediv__(self, other: Operand) -> Sum:
        return as_sum(other) / self.sum()

    def __pow__(self, exponent: float) -> Sum:
        return self.sum() ** exponent

    def __neg__(self) -> Sum:
        return -self.sum()

    __radd__ = __add__
    __rmul__ = __mul__


@dataclass(frozen=True, eq=False)
class Variable(_Atom):
    """Any value; the same one wherever the variable stands."""

    name: str


@dataclass(frozen=True, eq=False)
class FunctionCall(_Atom):
    """A function of formulas: the value of one op. Written once and used twice, it is the same value in both places."""

    function: str
    arguments: tuple[Sum, ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FormulaGroup(_Atom):
    """A formula that is one value in the graph because it is used twice, or raised to a power."""

    formula: Sum


Operand = Sum | _Atom | Parameter | float


def as_sum(value: Operand) -> Sum:
    """A number, parameter, atom or formula as a formula."""
    if isinstance(value, Sum):
        return value
    if isinstance(value, _Atom):
        return value.sum()
    return Sum({ONE: value if isinstance(value, Parameter) else float(value)})


def shared(formula: Operand) -> FormulaGroup:
    """A part of a formula that is used several times, as one value.

    >>> d = shared(Variable("x") - Variable("mean"))
    """
    return FormulaGroup(as_sum(formula))


@dataclass(frozen=True)
class FunctionSymbol:
    """The name of an op (or of one of `matching`'s views of ops), to be called in formulas."""

    name: str

    def __call__(self, *arguments: Operand, **options: Any) -> FunctionCall:
        """Its value for formulas, with options that its op has as properties."""
        return FunctionCall(self.name, tuple(as_sum(argument) for argument in arguments), options)


def sqrt(value: Operand) -> Sum:
    """The square root; `rsqrt` is `1 / sqrt(...)`."""
    return as_sum(value) ** 0.5


def is_close(number: float, expected: float, tolerance: float) -> bool:
    """True if a constant is meant to be another: exporters round them."""
    return math.isclose(number, expected, rel_tol=tolerance, abs_tol=1e-12)
