"""Optional packages: the absence of one is a sentence that names the extra, not an ImportError."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from npuc.activity import activity
from npuc.errors import MissingExtraError


def require_torch(
    missing: str = "models of PyTorch are read by PyTorch itself, and torch is not installed",
) -> Any:
    """The package torch, or an error that says what it is needed for and names the extra."""
    try:
        if sys.modules.get("torch") is not None:
            return sys.modules["torch"]
        with activity("loading PyTorch"):
            return importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError(missing, fix="Install it with: pip install 'npuc[torch]'") from error
