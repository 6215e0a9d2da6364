"""The options of a command as one object, declared once: a class whose fields are the command line.

    class SimCommand(CommandOptions):
        model: options.Model
        top: Annotated[int, typer.Option(min=1, help="Layers that are listed.")] = 10
        printing: options.Printing

    @takes(SimCommand)
    def command(args: SimCommand) -> None:
        print(args.model, args.top, args.printing.quiet)

A field whose type carries a `typer.Option` or `typer.Argument` is one; its name, default, help and place in the class are
those of the command line. A field whose type is such a class itself, or a dataclass, is a group of options that several
commands share: its options stand where it stands, and it needs no default. So a new option is a line here, or in a group,
and the line that uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import reduce, wraps
from inspect import Parameter, Signature
from typing import Any, Self, TypeVar, dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class CommandOptions:
    """What a command is told; a subclass is a frozen dataclass.

    It becomes one when the first object is made: to write the methods of thirty dataclasses would take a tenth of the time
    of `npuc --help`, and a run needs those of one command.
    """

    def __new__(cls, **_values: Any) -> Self:
        """An object of what is a dataclass from then on."""
        for base in reversed(cls.__mro__):
            if issubclass(base, CommandOptions) and "__dataclass_fields__" not in vars(base):
                dataclass(frozen=True, kw_only=True)(base)
        return super().__new__(cls)

    def changed(self, **changes: Any) -> Self:
        """The same with other values of some fields."""
        return type(self)(**{name: changes.get(name, getattr(self, name)) for name in names_of(type(self))})


T = TypeVar("T")
Options = TypeVar("Options", bound=CommandOptions)


def takes(kind: type[Options]) -> Callable[[Callable[[Options], T]], Callable[..., T]]:
    """Make a typer command of a function that takes the options as one object."""

    def decorate(function: Callable[[Options], T]) -> Callable[..., T]:
        @wraps(function)
        def command(**values: Any) -> T:
            return function(from_values(kind, values))

        shown: Any = command
        shown.__signature__ = Signature(list(_parameters(kind)))
        return command

    return decorate


def from_values(kind: type[T], values: Mapping[str, Any]) -> T:
    """An object of options, with its groups, from the values of a command line by name."""
    own = {}
    for name, annotation, _ in _fields(kind):
        if _is_group(annotation):
            own[name] = from_values(annotation, values)
        elif name in values:
            own[name] = values[name]
    return kind(**own)


def by_name(args: object) -> dict[str, Any]:
    """Every option of an object, those of its groups too."""
    values: dict[str, Any] = {}
    for name, value in vars(args).items():
        values |= by_name(value) if is_dataclass(value) else {name: value}
    return values


def names_of(kind: type[CommandOptions]) -> list[str]:
    """The fields of a class of options."""
    return [name for name, *_ in _fields(kind)]


def _parameters(kind: type[Any]) -> Iterator[Parameter]:
    for name, annotation, default in _fields(kind):
        if _is_group(annotation):
            yield from _parameters(annotation)
        elif _is_option(annotation):
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and (
        issubclass(annotation, CommandOptions) or is_dataclass(annotation)
    )


def _is_option(annotation: Any) -> bool:
    """Whether a type carries an option; fields without one are not the command line's."""
    return bool(getattr(annotation, "__metadata__", ()))


def _fields(kind: type[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each field, those of bases first, as a dataclass has them."""
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__])
        for name, text in vars(base).get("__annotations__", {}).items():
            yield name, _evaluated(text, names), vars(base).get(name, Parameter.empty)


def _evaluated(text: Any, names: dict[str, Any]) -> Any:
    """The type that an annotation of npuc's own source spells out: no text of a user comes here."""
    if not isinstance(text, str):
        return text
    first, *rest = text.split(".")
    if first in names and all(part.isidentifier() for part in rest):
        # Most are like `options.Model`, and to compile an expression takes twenty times as long.
        return reduce(getattr, rest, names[first])
    return eval(text, names)
