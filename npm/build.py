"""Fetch what the page of the studio takes from npm, and put it into the package with its licences: `make studio`.

`package-lock.json` has the hash of every file that is fetched; `npm ci` refuses anything else. No script of a package is run.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENDOR = HERE.parent / "src" / "npuc" / "studio" / "web" / "vendor"
LIBRARIES = {"dagre.js": ("@dagrejs/dagre", "dist/dagre.min.js")}
"""What the page loads: the package, and the file of it that browsers run."""


def main() -> None:
    """Fetch and copy."""
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=HERE, check=True)
    VENDOR.mkdir(exist_ok=True)
    for name, (package, file) in LIBRARIES.items():
        folder = HERE / "node_modules" / package
        licence = (folder / "LICENSE").read_text(encoding="utf-8").replace("*/", "* /")
        lines = (folder / file).read_text(encoding="utf-8").splitlines()
        code = "\n".join(line for line in lines if not line.startswith("//# sourceMappingURL"))
        (VENDOR / name).write_text(f"/*! {package}\n{licence}*/\n{code}\n", encoding="utf-8")
    print(f"built {', '.join(LIBRARIES)} in {VENDOR.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
