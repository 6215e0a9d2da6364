"""Where things are: the repository, its examples, and the folder of shared models and data beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PLUGINS = ROOT / "examples" / "plugin"
"""The example plugins."""
SHARED = ROOT.parent / "shared"
"""Real models and images, which belong to others; absent on most machines."""
