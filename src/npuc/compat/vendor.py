"""What a vendor's toolchain offers under its own names, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Vendor:
    """A toolchain that npuc stands in for. Nothing is imported before one of its commands or modules is used."""

    name: str
    """What `npuc compat` calls it; also the package below `npuc.compat`."""
    title: str
    """What its users call it."""
    page: str
    """The page of `docs/` for people who come from there."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Each console script, with its suffix if it has one, and the function behind it: `package.module:function`, which takes
    the list of arguments and returns the exit status."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Each importable module by its dotted name, and the adapter module whose names it shows; empty for a package that only
    holds modules."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """Packages of others of which the vendor ships a build of its own, and the adapter module with the function `extend` that
    gives the package that is installed what that build adds."""
    headers: str = ""
    """The folder with the vendor's C++ headers, below the package of its adapter; empty if there are none."""
    libraries: tuple[str, ...] = ()
    """The names by which C++ programs link the vendor's runtime: `vart-runner` for -lvart-runner."""
    error_identifiers: Mapping[str, str] = field(default_factory=dict)
    """The identifier that the vendor's documents give to an error, by npuc's code of it."""
    option_names: Mapping[str, str] = field(default_factory=dict)
    """What the vendor calls an option of npuc that errors speak of."""
