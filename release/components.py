"""What an installation of npuc consists of: its own wheel, the packages that it needs, and the libraries of the studio's page.

The packages are read from the metadata of the environment that runs this; extras are left out, because each is a choice of the
user. `licences.py` and `sbom.py` print the list in two forms.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent

SPDX = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "Apache License v2.0 with LLVM Exceptions": "Apache-2.0 WITH LLVM-exception",
    "3-Clause BSD License": "BSD-3-Clause",
}
"""What older metadata says, as SPDX expressions: classifiers, and the free text of two packages."""


@dataclass(frozen=True)
class Component:
    """One package: `purl` is its name in software bills of materials, `sha512` the hash that a lock file has of it."""

    name: str
    version: str
    licence: str
    purl: str
    needs: tuple[str, ...] = ()
    sha512: str = ""


def python_components() -> list[Component]:
    """npuc and all that `pip install npuc` brings, in the order of names."""
    found: dict[str, Component] = {}
    waiting = ["npuc"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        package = metadata.distribution(name)
        needs = tuple(
            sorted(_normal(r.name) for r in map(Requirement, package.requires or ()) if _applies(r))
        )
        purl = f"pkg:pypi/{name}@{package.version}"
        found[name] = Component(name, package.version, _licence(package), purl, needs)
        waiting += needs
    return [found[name] for name in sorted(found)]


def page_components() -> list[Component]:
    """What the page of the studio takes from npm, by the lock file: versions, licences and hashes."""
    lock = json.loads((ROOT / "npm" / "package-lock.json").read_text(encoding="utf-8"))
    components = []
    for path, entry in sorted(lock["packages"].items()):
        if not path or entry.get("dev"):
            continue
        name = path.removeprefix("node_modules/")
        purl = f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}"
        algorithm, _, digest = entry["integrity"].partition("-")
        assert algorithm == "sha512", entry["integrity"]
        components.append(Component(name, entry["version"], entry["license"], purl, sha512=digest))
    return components


def _normal(name: str) -> str:
    """The one spelling of a package's name.

    >>> _normal("ml_dtypes")
    'ml-dtypes'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def _licence(package: metadata.Distribution) -> str:
    """The licence as an SPDX expression; one that is not known here stops the run rather than to be guessed."""
    if expression := package.metadata.get("License-Expression"):
        return str(expression)
    said = [*(package.metadata.get_all("Classifier") or ()), str(package.metadata.get("License") or "")]
    known = sorted({SPDX[line] for line in said if line in SPDX})
    if not known:
        raise SystemExit(f"{package.name}: what is its licence? Add what its metadata says to SPDX: {said}")
    return " AND ".join(known)
