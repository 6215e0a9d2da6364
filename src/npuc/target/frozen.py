"""A mapping that never changes, so that a target can be hashed, cached, pickled and shared between threads.

Pydantic freezes the fields of a model but not the dictionaries inside them; `FrozenMapping[K, V]` is the annotation of
those. In a target file the value null removes an entry that came from the file that it extends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, BeforeValidator

_K = TypeVar("_K")
_V = TypeVar("_V")


class FrozenDict(dict[_K, _V]):
    """A dict without its mutators, with a hash.

    >>> hash(FrozenDict(a=1)) == hash(FrozenDict(a=1))
    True
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a target does not change; make another one")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


def _without_removed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if item is not None}
    return value


FrozenMapping = Annotated[dict[_K, _V], BeforeValidator(_without_removed), AfterValidator(FrozenDict)]
