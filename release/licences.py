"""Write docs/third-party.md, the licences of all that an installation brings: `make licences`.

    python release/licences.py [--check]

Versions are not on the page, so that it changes when a package comes, goes, or changes its licence.
"""

from __future__ import annotations

import sys

from components import ROOT, Component, page_components, python_components

PAGE = ROOT / "docs" / "third-party.md"
_HEAD = """# Third-party software

Written by `make licences` from the metadata of the packages; do not edit. npuc itself is under the
[Apache License 2.0](../LICENSE) and contains no code of others, but for the libraries of the studio's page below, which its wheel
carries with their licences. `make sbom` writes the same as a software bill of materials (CycloneDX), with versions.

## What `pip install npuc` brings

| package | licence | needed by |
|---|---|---|
"""
_PAGE = """
## What the wheel carries for the page of the studio

| package | licence |
|---|---|
"""
_TAIL = """
Extras (`npuc[torch]`, `npuc[studio]` and so on) bring packages of their own, each under its own licence:
`pip show NAME` tells it.
"""


def page() -> str:
    """The text of the page."""
    packages = [component for component in python_components() if component.name != "npuc"]
    rows = [f"| {component.name} | {component.licence} | {_users(component)} |" for component in packages]
    libraries = [f"| {component.name} | {component.licence} |" for component in page_components()]
    return _HEAD + "\n".join(rows) + "\n" + _PAGE + "\n".join(libraries) + "\n" + _TAIL


def _users(component: Component) -> str:
    return ", ".join(other.name for other in python_components() if component.name in other.needs)


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is up to date."""
    text = page()
    if "--check" in arguments:
        stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
        print("docs/third-party.md " + ("is not up to date: make licences" if stale else "is up to date"))
        return int(stale)
    PAGE.write_text(text, encoding="utf-8")
    print("wrote docs/third-party.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
