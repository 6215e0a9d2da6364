"""Registries: the tables that npuc and its plugins add to, all of one class with one rule.

    RULES: Registry[str, Rule] = Registry("an import rule for the TFLite operator", provider="npuc.frontend.tflite.rules")

    @RULES.register("CONV_2D")
    def conv(ctx): ...

**The rule: a name is taken once.** A second registration under it is an error that names the module that took it, unless it says
`replace=True`. So nothing is replaced by accident, and the order in which modules are imported decides nothing: a plugin may
replace what npuc registers only later. Registries that took a second registration silently before there was this rule say so
(`Lenient`): they still take it for one release, with a `FutureWarning`.

What npuc itself registers is loaded when a registry is first read, or when anybody else adds to it: from `provider`, a package or
module below the registry, or from what `PROVIDERS` names for tables of low packages that packages above them fill.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from typing import Any, Generic, TypeVar, overload

from npuc.errors import PluginError, UsageError

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
DefaultT = TypeVar("DefaultT")
_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])

PROVIDERS: dict[str, tuple[str, ...]] = {}
"""Table to the modules that fill it when they are imported; `npuc/__init__.py`, which is above all packages, names them."""

REGISTRIES: list[Registry[Any, Any]] = []
"""All that there are in this process, in the order in which they were made."""


def fill(table: str) -> None:
    """Import what fills a table; without effect from the second time on."""
    for module in PROVIDERS.get(table, ()):
        import_module(module)


class Lenient(Enum):
    """Which second registrations a registry took silently before there was one rule; they warn now, and will be errors."""

    NONE = "none"
    OWN = "what npuc itself registers, and what the same module has registered before"
    ALL = "any"


class Registry(Mapping[KeyT, ValueT], Generic[KeyT, ValueT]):
    """What is registered, by name or class, in the order of registration; only `add` and `register` write to it.

    >>> sounds = Registry("a sound of the animal")
    >>> sounds.add(["cat"], "meow", module="house")
    >>> sounds.add(["dog", "cat"], "woof", module="farm")
    Traceback (most recent call last):
    npuc.errors.PluginError: [E602] there is a sound of the animal 'cat' already, of house. Leave one of the two out, \
give yours a name of its own, or say replace=True.
    >>> sounds.add(["dog", "cat"], "woof", replace=True)
    >>> dict(sounds)
    {'cat': 'woof', 'dog': 'woof'}
    >>> REGISTRIES.remove(sounds)
    """

    def __init__(
        self,
        what: str,
        entries: Mapping[KeyT, ValueT] | None = None,
        *,
        provider: str | tuple[str, ...] = (),
        table: str = "",
        lenient: Lenient = Lenient.NONE,
    ) -> None:
        """`what` stands before a name in messages, as in 'a pass'; `table` is a key of `PROVIDERS`."""
        self._what = what
        self._home = str(sys._getframe(1).f_globals["__name__"])
        self._entries: dict[KeyT, ValueT] = dict(entries or {})
        self._owners: dict[KeyT, str] = dict.fromkeys(self._entries, self._home)
        self._replacing: set[KeyT] = set()
        """Names whose entry stands in the place of another, also of one of npuc's own that is still to come."""
        self._providers = (provider,) if isinstance(provider, str) else provider
        self._table = table
        self._loaded = not (provider or table)
        self.lenient = lenient
        REGISTRIES.append(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<registry of {self._home}: {len(self._entries)} times {self._what} ...>"

    # Writing

    def register(self, *keys: KeyT, replace: bool = False) -> Callable[[_FunctionT], _FunctionT]:
        """Decorate a function or class: it is what is registered under these names."""

        def add(thing: _FunctionT) -> _FunctionT:
            self.add(keys, thing, replace=replace)  # type: ignore[arg-type]
            return thing

        return add

    def add(
        self, keys: Iterable[KeyT], value: ValueT, *, replace: bool = False, module: str | None = None
    ) -> None:
        """Register a value under some names: under all of them, or under none if one is taken.

        `module` is who registers it; unless given, whoever called the module that has the registry.
        """
        keys = list(keys)
        caller, depth = self._caller()
        owner = module or caller
        if not _is_own(owner):
            self.load()
        granted = []
        for key in keys:
            if replace or self._may_take(key, owner, depth):
                granted.append(key)
        for key in granted:
            if replace or key in self._entries:
                self._replacing.add(key)
            self._entries[key] = value
            self._owners[key] = owner

    def remove(self, *keys: KeyT) -> None:
        """Forget entries, as a test or a notebook does that takes a plugin out again."""
        for key in keys:
            del self._entries[key], self._owners[key]
            self._replacing.discard(key)

    def require_free(self, key: KeyT) -> None:
        """Raise the error of a second registration if a name is taken."""
        self.load()
        if key in self._entries:
            raise self.taken(key)

    def taken(self, key: KeyT) -> PluginError:
        """The error for a name that stands for something already."""
        owner = self._owners.get(key, self._home)
        return PluginError(
            f"there is {self._what} '{_words(key)}' already, of {owner}",
            fix="Leave one of the two out, give yours a name of its own, or say replace=True",
        )

    def _may_take(self, key: KeyT, owner: str, depth: int) -> bool:
        """Whether an owner gets a name; an error if it is taken. npuc's own modules are first, even if they come later."""
        if key not in self._entries:
            return True
        before = self._owners[key]
        late = _is_own(owner) and not _is_own(before)
        if late and key in self._replacing:
            return False
        first, second = (owner, before) if late else (before, owner)
        own_place = not _is_own(second) and (_is_own(first) or first == second)
        if not (self.lenient is Lenient.ALL or (self.lenient is Lenient.OWN and own_place)):
            raise self.taken(key)
        warnings.warn(
            f"there is {self._what} '{_words(key)}' already, of {first}, and {second} replaces it: that will be an error, "
            "unless it says replace=True",
            FutureWarning,
            stacklevel=depth + 2,
        )
        return not late

    def _caller(self) -> tuple[str, int]:
        """The module that registers something, and how many calls it is away from `add`."""
        frame, depth = sys._getframe(2), 1
        while True:
            module = str(frame.f_globals.get("__name__"))
            if module.partition(".")[0] == "importlib":
                return (
                    self._home,
                    depth,
                )  # the module that has the registry is being imported, and fills it itself
            if module not in (__name__, self._home) and not module.startswith("npuc.plugins."):
                return module, depth
            if frame.f_back is None:
                return module, depth
            frame, depth = frame.f_back, depth + 1

    # Reading

    def load(self) -> None:
        """Import what registers npuc's own; without effect from the second time on."""
        if self._loaded:
            return
        fill(self._table)
        for name in self._providers:
            import_all(name)
        self._loaded = True

    def __getitem__(self, key: KeyT) -> ValueT:
        self.load()
        return self._entries[key]

    @overload
    def get(self, key: Any) -> ValueT | None: ...

    @overload
    def get(self, key: Any, default: DefaultT) -> ValueT | DefaultT: ...

    def get(self, key: Any, default: Any = None) -> Any:
        """The entry of a name, or the default."""
        self.load()
        return self._entries.get(key, default)

    def __contains__(self, key: object) -> bool:
        self.load()
        return key in self._entries

    def __iter__(self) -> Iterator[KeyT]:
        self.load()
        return iter(self._entries)

    def __len__(self) -> int:
        self.load()
        return len(self._entries)

    def named(self, name: KeyT) -> ValueT:
        """The entry of a name that a user gave; `UsageError` has the nearest ones."""
        if name in self:
            return self._entries[name]
        from difflib import get_close_matches

        names = sorted(map(str, self))
        near = get_close_matches(str(name), names, n=1)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        noun = self._what.partition(" ")[2]
        raise UsageError(f"there is no {noun} '{name}'", fix=f"{hint}There are: {', '.join(names)}")

    def owner(self, key: KeyT) -> str:
        """The module that registered an entry."""
        self.load()
        return self._owners[key]


@contextmanager
def isolated() -> Iterator[None]:
    """What plugins register inside the block is forgotten after it: for tests of plugins.

    What npuc itself registers there stays, because its modules are imported once.
    """
    before = {
        id(registry): (dict(registry._entries), dict(registry._owners), set(registry._replacing))
        for registry in REGISTRIES
    }
    try:
        yield
    finally:
        for registry in REGISTRIES:
            entries, owners, replacing = before.get(id(registry), ({}, {}, set()))
            for key, owner in registry._owners.items():
                if _is_own(owner) and key not in entries:
                    entries[key], owners[key] = registry._entries[key], owner
            registry._entries, registry._owners, registry._replacing = entries, owners, replacing


def import_all(name: str) -> None:
    """Import a module, and all modules in it if it is a package."""
    from pkgutil import iter_modules

    package = import_module(name)
    for module in sorted(iter_modules(getattr(package, "__path__", ())), key=lambda m: m.name):
        import_module(f"{name}.{module.name}")


def _is_own(module: str) -> bool:
    return module == "npuc" or module.startswith("npuc.")


def _words(key: Any) -> str:
    if isinstance(key, type):
        return str(getattr(key, "name", key.__name__))
    return ":".join(filter(None, key)) if isinstance(key, tuple) else str(key)


def renamed(module: str, name: str, table: dict[str, Any]) -> Any:
    """What a module's old name stands for, with a warning that tells the new one; for the `__getattr__` of that module."""
    if name not in table:
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    thing = table[name]
    warnings.warn(f"{module}.{name} is now {thing.__name__}", FutureWarning, stacklevel=3)
    return thing
