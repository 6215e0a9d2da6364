"""Names of tensors in a vendor's spelling, both ways.

The table is made at import, where the operators of the original are known, and travels inside of the `.mlir` file and the
compiled model (`Graph.names_for`). Files of a vendor's layer have the vendor's names; npuc's own names are accepted back, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class NameMap:
    """The names of a vendor by npuc's names of the same tensors."""

    to_vendor: Mapping[str, str]

    @cached_property
    def to_npuc(self) -> dict[str, str]:
        """The other way; of tensors that a vendor calls alike, the first."""
        table: dict[str, str] = {}
        for own, theirs in self.to_vendor.items():
            table.setdefault(theirs, own)
        return table

    def vendor_name(self, name: str) -> str:
        """The vendor's name of a tensor; its own if there is no other.

        >>> NameMap({"122": "122_Conv"}).vendor_name("122")
        '122_Conv'
        """
        return self.to_vendor.get(name, name)

    def npuc_name(self, name: str) -> str:
        """The tensor that either name stands for.

        >>> names = NameMap({"122": "122_Conv"})
        >>> names.npuc_name("122_Conv"), names.npuc_name("122")
        ('122', '122')
        """
        return self.to_npuc.get(name, name)

    def outward(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """A mapping by npuc's names as one by the vendor's."""
        return {self.vendor_name(name): value for name, value in tensors.items()}

    def inward(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """A mapping by either names as one by npuc's."""
        return {self.npuc_name(name): value for name, value in tensors.items()}
