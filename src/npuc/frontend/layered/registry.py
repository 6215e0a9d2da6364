"""Import rules of a format by kind of layer: `@rule("Convolution")` above a function is all it takes to add one.

A rule gets the context of its layer and returns what the layer makes: a value, or a list of them. It raises `NoForm`
where a layer cannot be expressed, and the layer is kept as a custom op. The first paragraph of a rule's docstring says
what is supported and within which limits: the tables in `docs/` show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from npuc.frontend.layered.context import Context
from npuc.ir import Value

ContextT = TypeVar("ContextT", bound=Context)
Outcome = Value | Sequence[Value]
_RuleT = TypeVar("_RuleT", bound=Callable[[Any], Outcome])


class Rules(Generic[ContextT]):
    """The rules of one format; `package` holds the modules that register them."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._rules: dict[str, Callable[[ContextT], Outcome]] = {}
        self._loaded = False

    def rule(self, *kinds: str) -> Callable[[_RuleT], _RuleT]:
        """Register a rule for one or more kinds of layers; a later one takes the place of an earlier one."""

        def register(function: _RuleT) -> _RuleT:
            for kind in kinds:
                self._rules[kind] = function
            return function

        return register

    def _all(self) -> dict[str, Callable[[ContextT], Outcome]]:
        if not self._loaded:
            self._loaded = True
            # What users registered before the first import stays in force.
            theirs = dict(self._rules)
            package = import_module(self._package)
            for module in sorted(iter_modules(package.__path__), key=lambda m: m.name):
                import_module(f"{package.__name__}.{module.name}")
            self._rules.update(theirs)
        return self._rules

    def find(self, kind: str) -> Callable[[ContextT], Outcome] | None:
        """The rule for a kind of layer, or None."""
        return self._all().get(kind)

    def supported(self) -> dict[str, str]:
        """Every kind of layer that has a rule, and its limits in words."""
        found = {}
        for kind, function in sorted(self._all().items()):
            found[kind] = " ".join((function.__doc__ or "").split("\n\n")[0].split())
        return found
