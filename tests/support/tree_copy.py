"""A changed copy of the sources, run in a process of its own: what the tests of walkthroughs share."""

from __future__ import annotations

import os
from pathlib import Path

from npuc import native

_CUSTOMIZE = """
# An editable install finds npuc before any path does; the copy has to come first.
import sys

sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "ScikitBuildRedirectingFinder"]
"""


def environment_of(tree: Path) -> dict[str, str]:
    """The environment in which Python imports npuc from `tree`/src, with the native library of this process."""
    folder = tree / "sitecustomize"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_CUSTOMIZE)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(folder)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NPUC_LIBRARY": str(native.library()._name),
    }
