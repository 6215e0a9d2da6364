"""torch is an optional extra: its absence is one sentence, not an ImportError."""

from __future__ import annotations

import importlib
from typing import Any

from npuc.errors import MissingExtraError


def require_torch() -> Any:
    """The package torch, or an error that names the extra."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "models of PyTorch are read by PyTorch itself, and torch is not installed",
            fix="Install it with: pip install 'npuc[torch]'",
        ) from error
