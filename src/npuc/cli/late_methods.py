"""Methods of dataclasses that are compiled when it pays, for a quicker start of the command.

`dataclass` writes and compiles five methods or so for every class: 3,400 in a command that compiles a network, of which it
calls one in nine, and most of these a few times. So a class gets stand-ins. Those of constructors, of `==` and of hashes do
by themselves, field by field, what the compiled method would do, and become it once they were called often; all others do
at their first call. Without this, the command takes a fifth more CPU time for the smallest network.

This leans on how the library of Python 3.11 and 3.12 is written; where it is written otherwise, classes are made as ever.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

_KNOWN = ("name", "args", "body", "globals", "locals", "return_type")
"""The parameters of the function behind `dataclass` that makes a method out of text."""

_PACKAGES = ("npuc", "xdsl", "pydantic", "annotated_types", "typer")
"""Whose classes get their methods late: most of all. Nobody looks at the signatures of these."""

_MARKS = ("ClassVar", "InitVar", "KW_ONLY")
"""Types of what is no field, or no common one."""

_OFTEN = 32
"""Calls of a method before it is compiled: one that goes through the fields takes 2 us longer, to compile takes 80."""

Method = Callable[..., Any]


@contextmanager
def late_methods() -> Iterator[None]:
    """Meanwhile, dataclasses of npuc and of what it needs get their methods late."""
    changes = {
        "_create_fn": _deferring,
        "_process_class": _without_signature,
        "_is_type": _by_its_word,
    }
    before: dict[str, Any] = {name: getattr(dataclasses, name, None) for name in changes}
    create = before["_create_fn"]
    if None in before.values() or tuple(inspect.signature(create).parameters) != _KNOWN:
        yield
        return
    for name, change in changes.items():
        setattr(dataclasses, name, change(before[name]))
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(dataclasses, name, method)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _PACKAGES


def _without_signature(process: Method) -> Method:
    """A class without words would get its signature as such, which takes as long as all the rest."""

    def processed(cls: Any, *options: Any) -> Any:
        if not cls.__doc__ and _is_ours(cls.__module__):
            cls.__doc__ = cls.__name__
        return process(cls, *options)

    return processed


def _by_its_word(is_type: Method) -> Method:
    """Whether the text of a type is one of three marks, which these packages call by their names."""

    def decided(annotation: str, cls: Any, *rest: Any) -> bool:
        if not any(mark in annotation for mark in _MARKS) and _is_ours(cls.__module__):
            return False
        return bool(is_type(annotation, cls, *rest))

    return decided


def _deferring(create: Method) -> Method:
    """Make stand-ins for methods."""

    def deferred(name: str, *text: Any, **scope: Any) -> Any:
        if not _is_ours(str((scope.get("globals") or {}).get("__name__", ""))):
            return create(name, *text, **scope)

        method: Any = None

        def compiled(self: Any) -> Any:
            """The method, which takes the place of its stand-in; behind a decorator the stand-in stays and passes on to it."""
            nonlocal method
            if method is None:
                method = create(name, *text, **scope)
                method.__qualname__ = stand_in.__qualname__
            owner = _owner(self, name, stand_in)
            if owner is not None:
                type.__setattr__(owner, name, method)
            return method

        stand_in = _STAND_INS.get(name, _at_first_call)(compiled)
        stand_in.__name__ = name
        return stand_in

    return deferred


def _at_first_call(compiled: Method) -> Any:
    def stand_in(self: Any, /, *arguments: Any, **keywords: Any) -> Any:
        return compiled(self)(self, *arguments, **keywords)

    return stand_in


def _constructor(compiled: Method) -> Any:
    """A stand-in that assigns fields; what it cannot do, or should refuse, is left to the method itself."""
    calls = 0
    plan: _Plan | None = None

    def stand_in(self: Any, /, *arguments: Any, **keywords: Any) -> None:
        nonlocal calls, plan
        if calls == 0:
            owner = _owner(self, "__init__", stand_in)
            plan = _plan(owner) if owner is not None else None
        calls += 1
        values = plan.values(arguments, keywords) if plan is not None and calls <= _OFTEN else None
        if plan is None or values is None:
            compiled(self)(self, *arguments, **keywords)
            return
        for name, value in values:
            plan.assign(self, name, value)
        if plan.finishes:
            self.__post_init__()

    return stand_in


def _equality(compiled: Method) -> Any:
    """A stand-in that compares fields one after the other, as tuples of them would be."""
    calls = 0
    names: list[str] = []

    def stand_in(self: Any, other: Any, /) -> Any:
        nonlocal calls
        if calls == 0:
            owner = _owner(self, "__eq__", stand_in)
            if owner is None:
                return compiled(self)(self, other)
            names.extend(field.name for field in dataclasses.fields(owner) if field.compare)
        calls += 1
        if calls > _OFTEN:
            return compiled(self)(self, other)
        if other.__class__ is not self.__class__:
            return NotImplemented
        return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]

    return stand_in


def _hash(compiled: Method) -> Any:
    """A stand-in that makes the tuple of what counts and takes its hash."""
    calls = 0
    names: list[str] = []

    def stand_in(self: Any, /) -> int:
        nonlocal calls
        if calls == 0:
            owner = _owner(self, "__hash__", stand_in)
            if owner is None:
                return int(compiled(self)(self))
            for field in dataclasses.fields(owner):
                if field.compare if field.hash is None else field.hash:
                    names.append(field.name)
        calls += 1
        if calls > _OFTEN:
            return int(compiled(self)(self))
        return hash(tuple([getattr(self, name) for name in names]))

    return stand_in


_STAND_INS = {"__init__": _constructor, "__eq__": _equality, "__hash__": _hash}


def _owner(self: Any, name: str, method: Method) -> Any:
    """The class that a method was made for; None where a decorator wrapped the method since."""
    return next((cls for cls in type(self).__mro__ if cls.__dict__.get(name) is method), None)


class _Plan(NamedTuple):
    """What a constructor does."""

    by_place: list[str]
    """Fields that may be given without their names."""
    fields: list[dataclasses.Field[Any]]
    assign: Method
    finishes: bool
    """Whether it calls `__post_init__`."""

    def values(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[tuple[str, Any]] | None:
        """The value of each field; None if one lacks its value or has two, or a name is not known."""
        if len(arguments) == len(self.fields) == len(self.by_place) and not keywords:
            return list(zip(self.by_place, arguments, strict=True))
        given = dict(zip(self.by_place, arguments, strict=False))
        known = len(arguments)
        values = []
        for field in self.fields:
            name = field.name
            if name in given:
                values.append((name, given[name]))
            elif field.init and name in keywords:
                known += 1
                values.append((name, keywords[name]))
            elif field.default is not dataclasses.MISSING:
                values.append((name, field.default))
            elif field.default_factory is not dataclasses.MISSING:
                values.append((name, field.default_factory()))
            else:
                return None
        return values if known == len(given) + len(keywords) else None


def _plan(cls: Any) -> _Plan | None:
    """What the constructor of a class does, if that is no more than to assign fields."""
    fields = []
    for field in cls.__dataclass_fields__.values():
        kind = getattr(field, "_field_type", None)
        if kind is getattr(dataclasses, "_FIELD_CLASSVAR", None):
            continue
        if kind is not getattr(dataclasses, "_FIELD", None):
            return None
        if field.init or field.default_factory is not dataclasses.MISSING:
            fields.append(field)
        elif "__slots__" in vars(cls):
            return None
    by_place = [field.name for field in fields if field.init and not field.kw_only]
    assign = object.__setattr__ if cls.__dataclass_params__.frozen else setattr
    return _Plan(by_place, fields, assign, hasattr(cls, "__post_init__"))
