"""Write a software bill of materials in CycloneDX's form: `make sbom`.

    python release/sbom.py build/npuc.cdx.json

It lists npuc, the packages that an installation brings at the versions of this environment, and the libraries of the studio's
page with the hashes of their lock file. The same environment gives the same bytes: there is no time and no random number in it.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

from components import Component, page_components, python_components


def document() -> dict[str, Any]:
    """The bill as a JSON object of CycloneDX 1.6."""
    own, *_ = [component for component in python_components() if component.name == "npuc"]
    packages = [component for component in python_components() if component.name != "npuc"]
    libraries = page_components()
    known = {component.name: component.purl for component in python_components()}
    edges = [
        {"ref": component.purl, "dependsOn": [known[name] for name in component.needs]}
        for component in (own, *packages)
    ]
    edges[0]["dependsOn"] = [known[name] for name in own.needs] + [library.purl for library in libraries]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_component(own), "type": "application"}},
        "components": [_component(component) for component in (*packages, *libraries)],
        "dependencies": edges,
    }


def _component(component: Component) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "licenses": [{"expression": component.licence}],
        "purl": component.purl,
    }
    if component.sha512:
        entry["hashes"] = [{"alg": "SHA-512", "content": base64.b64decode(component.sha512).hex()}]
    return entry


def main(arguments: list[str]) -> int:
    """Write the file that is named."""
    if len(arguments) != 1:
        print("usage: python release/sbom.py FILE.cdx.json", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    bill = document()
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path}: npuc and {len(bill['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
