"""Import rules of a format by name: `@rule("Conv2D")` above a function is all it takes to add one.

The modules of a package register npuc's own rules when the first one is asked for. A rule from elsewhere (a plugin, a user's
program) takes the place of npuc's, whichever comes first; two such rules from different modules are a conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from npuc.registries import taken

RuleT = TypeVar("RuleT", bound=Callable[..., Any])
_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


@cache
def load_rules(package: str) -> None:
    """Import all modules of a package, so that they register what they have."""
    found = import_module(package)
    for module in sorted(iter_modules(found.__path__), key=lambda m: m.name):
        import_module(f"{package}.{module.name}")


class Rules(Generic[RuleT]):
    """The rules of one format; `package` holds the modules that register npuc's own."""

    def __init__(self, package: str) -> None:
        self.table: dict[str, RuleT] = {}
        """What is registered so far."""
        self._package = package

    def rule(self, *names: str) -> Callable[[_FunctionT], _FunctionT]:
        """Register a rule for one or more names."""

        def register(function: _FunctionT) -> _FunctionT:
            own = self._is_own(function)
            for name in names:
                before: Any = self.table.get(name)
                # A module may register a rule again, as a cell of a notebook does that is run twice.
                again = not own and before is not None and before.__module__ == function.__module__
                if before is not None and self._is_own(before) == own and not again:
                    raise taken(f"an import rule for '{name}'", before)
            for name in names:
                if name not in self.table or not own:
                    self.table[name] = function  # type: ignore[assignment]
            return function

        return register

    def _is_own(self, function: Callable[..., Any]) -> bool:
        return function.__module__.startswith(f"{self._package}.")

    def all(self) -> dict[str, RuleT]:
        """All rules by name."""
        load_rules(self._package)
        return dict(self.table)

    def find(self, name: str) -> RuleT | None:
        """The rule for a name, or None."""
        load_rules(self._package)
        return self.table.get(name)

    def supported(self) -> dict[str, str]:
        """Every name that has a rule, and its limits in words: the first paragraph of the rule's docstring."""
        return {
            name: " ".join((function.__doc__ or "").split("\n\n")[0].split())
            for name, function in sorted(self.all().items())
        }
